#!/usr/bin/env bash
# Asks the API server of a kind cluster whether it would take every overlay: that of make e2e-up, or a bare one that lives as long as this. Variables
# as in e2e-up.sh. Without a container engine it says so, and nothing was asked.
set -euo pipefail
cd "$(dirname "$0")/.."
export KIND=bin/kind
go build -o bin/weir .
if [ -e .weir/kind/weir.kubeconfig ]; then
  exec bin/weir cluster check
fi
if ! docker version >/dev/null 2>&1; then
  echo "WARNING: no container engine answers, so no API server was asked whether it takes the overlays"
  exit 0
fi
make bin/kind
trap 'bin/weir cluster down --cluster-name weir-dry-run' EXIT
bin/weir cluster up --bare --cluster-name weir-dry-run
bin/weir cluster check --cluster-name weir-dry-run
