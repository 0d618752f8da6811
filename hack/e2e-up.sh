#!/usr/bin/env bash
# A kind cluster with the whole stack deployed. KIND_NODE_IMAGE is the node's image (kind's own, from a registry), KIND_CONFIG a config file of
# kind, IMAGE the image of every role (weir:dev), which the engine must have.
set -euo pipefail
cd "$(dirname "$0")/.."
export KIND=bin/kind
bin/weir cluster up --image "${IMAGE:-weir:dev}"
bin/weir cluster deploy --image "${IMAGE:-weir:dev}"
