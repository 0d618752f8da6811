#!/usr/bin/env bash
# Everything on kind: create, load, deploy, certify the picker, the processor and the deployment as a whole, send a shared load, delete. What fails
# leaves its evidence, objects, events and logs under .weir/e2e; KEEP=1 keeps the cluster. Variables as in e2e-up.sh, and SEED, and regular expressions:
# SKIP, on what the certification of the picker leaves out, and FAULTS, on the faults that are put into the deployment (. takes all: 8 minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
: "${IMAGE:=weir:dev}" "${SEED:=0}" "${KEEP:=}" "${SKIP:=}" "${FAULTS:=^(server-cuts|gateway-cuts)$}"
export KIND=bin/kind
out=.weir/e2e
rm -rf "$out"
mkdir -p "$out"
step() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }
finish() {
  local rc=$?
  if [ "$rc" != 0 ] && [ -e .weir/kind/weir.kubeconfig ]; then
    bin/weir cluster dump "$out/failure" --node || true
  fi
  if [ -n "$KEEP" ]; then
    echo "the cluster is kept: export KUBECONFIG=$PWD/.weir/kind/weir.kubeconfig; make e2e-down deletes it"
  else
    bin/weir cluster down || true
  fi
  printf '\n== %s after %ss\n' "$([ "$rc" = 0 ] && echo passed || echo "FAILED with $rc")" "$SECONDS"
}
trap finish EXIT

step "a cluster, and the image in it"
bin/weir cluster up --image "$IMAGE"
step "the API server takes every overlay"
bin/weir cluster check --image "$IMAGE"
step "the stack"
bin/weir cluster deploy --image "$IMAGE"
step "what only a deployment shows"
bin/weir certify-deployment --image "$IMAGE" --seed "$SEED" --out "$out/deployment"
step "a deployment that is wrong fails"
bin/weir certify-deployment --faults --only "$FAULTS" --image "$IMAGE" --seed "$SEED" --out "$out/faults"
step "a load from three pods"
bin/weir load hack/e2e-load.yaml --env kind --image "$IMAGE" --workers 3 --seed 1 --out "$out/load"
step "the picker, scenario by scenario"
bin/weir certify --env kind --image "$IMAGE" --seed "$SEED" --skip "$SKIP" --out "$out/picker"
step "the processor in a pod"
bin/weir certify-async --env kind --image "$IMAGE" --seed "$SEED" --out "$out/processor"
