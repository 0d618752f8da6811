#!/usr/bin/env bash
# How often the suite fails a router that is right, on a machine that has no time: RUNS certifications of the reference over real sockets
# (default 50, level LEVEL, each with a seed of its own, STREAMS at a time) beside a busy loop on every core. Writes
# results/selfcheck-loaded.md and ends with 1 if one of them did not pass. A run whose load generator fell behind its own schedule is
# inconclusive, and says so: it does not count as passed either. SKIP is left out: the benchmarks, which measure what the machine gives. Beside
# busy loops it gives less, and some of their runs say that they do not decide (SKIP='^$' plays them too).
set -euo pipefail
cd "$(dirname "$0")/.."
: "${RUNS:=50}" "${LEVEL:=core}" "${SKIP:=^BEN-}" "${PARALLEL:=16}" "${STREAMS:=1}"
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
one() {
  local i=$1 rc=0
  bin/weir certify --level "$LEVEL" --skip "$SKIP" --parallel "$PARALLEL" --seed "$i" --no-color --out "$out/$i" >"$out/$i.log" 2>&1 || rc=$?
  [ "$rc" != 0 ] || rm -rf "${out:?}/$i"
  echo "$rc" >"$out/$i.rc"
  printf '%s: seed %d: exit %d\n' "$(date +%T)" "$i" "$rc"
}
export -f one
export out LEVEL SKIP PARALLEL
start=$SECONDS commit=$(git describe --always --dirty)
seq "$RUNS" | xargs -P "$STREAMS" -I{} bash -c 'one {}'
count() { (grep -lx "$1" "$out"/*.rc || true) | wc -l; }
passed=$(count 0) failed=$(count 1) inconclusive=$(count 3)
{
  echo "# The reference under load"
  echo
  echo "$passed of $RUNS certifications of the unmutated reference passed (level $LEVEL without $SKIP, real sockets, $PARALLEL scenarios at a time, $STREAMS certification(s) at a"
  echo "time) beside a busy loop on each of $cores cores, in $(((SECONDS - start) / 60)) minutes, at commit $commit. $failed failed,"
  echo "$inconclusive were inconclusive, $((RUNS - passed - failed - inconclusive)) broke."
  echo
  echo "What $SKIP matches is not covered by these runs."
  for rc in "$out"/*.rc; do
    [ "$(cat "$rc")" = 0 ] && continue
    i=$(basename "$rc" .rc)
    echo "- seed $i, exit $(cat "$rc"): $(grep -E '^(fail|error|inconclusive)' "$out/$i.log" | awk '{print $1, $2}' | tr '\n' ';')"
  done
} >results/selfcheck-loaded.md
cat results/selfcheck-loaded.md
[ "$passed" = "$RUNS" ]
