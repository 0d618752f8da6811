#!/usr/bin/env bash
# The overlay gpu in the cluster of CONTEXT: deployed, loaded from inside at several rates, and written down under results/gpu/DATE. IMAGE is weir's
# image there, NAMESPACE the namespace (weir-gpu), WORKERS the pods that send (4), RATES the requests a second of each load.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${CONTEXT:?name the context of the kubeconfig that leads to the GPUs: make nightly-gpu CONTEXT=...}"
: "${NAMESPACE:=weir-gpu}" "${WORKERS:=4}" "${RATES:=2 4 8 16}" "${IMAGE:=}" "${MODEL:=$(sed -n 's/^ *- model=//p' manifests/gpu/vllm/kustomization.yaml)}"
at=(--env cluster --context "$CONTEXT" --namespace "$NAMESPACE")
[ -z "$IMAGE" ] || at+=(--image "$IMAGE")
out=results/gpu/$(date -u +%Y-%m-%d)
mkdir -p "$out"
trap 'bin/weir cluster dump "$out/cluster" "${at[@]}" || true; bin/weir cluster remove --overlay gpu "${at[@]}" || true' EXIT
bin/weir cluster deploy --overlay gpu "${at[@]}"
for rate in $RATES; do
  sed "s/RATE/$rate/" hack/gpu-load.yaml >"$out/load-$rate.yaml"
  # A load that fell behind is inconclusive, and its bundle says so: the next rate is played all the same.
  bin/weir load "$out/load-$rate.yaml" "${at[@]}" --model "$MODEL" --workers "$WORKERS" --seed 1 --out "$out/load-$rate" || echo "load $rate: exit $?"
done
