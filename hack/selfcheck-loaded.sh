#!/usr/bin/env bash
# How often the suite fails a router that is right, on a machine that has no time: RUNS certifications of the reference over real sockets
# (default 50, level LEVEL, each with a seed of its own) beside a busy loop on every core. Writes results/selfcheck-loaded.md and ends with
# 1 if one of them did not pass.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${RUNS:=50}" "${LEVEL:=core}" "${PARALLEL:=16}"
out=.weir/loaded
rm -rf "$out"
mkdir -p "$out" results
cores="$(nproc)"
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
for _ in $(seq "$cores"); do
  bash -c 'while :; do :; done' &
  busy+=("$!")
done
passed=0
lines=()
start=$SECONDS
for i in $(seq "$RUNS"); do
  rc=0
  bin/weir certify --level "$LEVEL" --parallel "$PARALLEL" --seed "$i" --no-color --out "$out/$i" >"$out/$i.log" 2>&1 || rc=$?
  if [ "$rc" = 0 ]; then
    passed=$((passed + 1))
    rm -rf "${out:?}/$i"
  else
    lines+=("- seed $i, exit $rc: $(grep -E '^(fail|error|inconclusive)' "$out/$i.log" | awk '{print $1, $2}' | tr '\n' ';')")
  fi
  printf '%s: run %d of %d: exit %d, %d passed\n' "$(date +%T)" "$i" "$RUNS" "$rc" "$passed"
done
{
  echo "# The reference under load"
  echo
  echo "$passed of $RUNS certifications of the unmutated reference passed (level $LEVEL, real sockets, $PARALLEL scenarios at a time) beside a busy"
  echo "loop on each of $cores cores, in $(((SECONDS - start) / 60)) minutes, at commit $(git describe --always --dirty)."
  if [ "${#lines[@]}" -gt 0 ]; then
    echo
    printf '%s\n' "${lines[@]}"
  fi
} >results/selfcheck-loaded.md
cat results/selfcheck-loaded.md
[ "$passed" = "$RUNS" ]
