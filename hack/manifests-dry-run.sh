#!/usr/bin/env bash
# Asks the API server of the kind cluster whether it would take every overlay. Without a cluster it says so: make e2e asks too.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e .weir/kind/weir.kubeconfig ]; then
  echo "no kind cluster is up, so no API server was asked: make e2e-up first"
  exit 0
fi
go build -o bin/weir .
bin/weir cluster check
