#!/usr/bin/env bash
# ROUNDS rounds (default 20) of killed, stopped and suspended processors and of a killed broker, under load on a real redis-server. From 20
# rounds on the figures go to results/chaos-async.md.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${ROUNDS:=20}"
mkdir -p .weir results
log=.weir/chaos-async.log
go test -count=1 -v -run TestChaos ./harness/cli -chaos="$ROUNDS" -timeout 30m | tee "$log"
if ! grep -q 'rounds,.*lost' "$log"; then
  echo "nothing was played: is there a redis-server on PATH?" >&2
  exit 1
fi
[ "$ROUNDS" -ge 20 ] || exit 0
{
  echo "# The reference Async Processor under faults"
  echo
  echo "Two processors at one queue of a real redis-server ($(redis-server --version | awk '{print $3}')), 400 requests a round with a concurrency quota; each round one fault in turn: kill -9,"
  echo "SIGTERM, broken connections, kill -9 of the broker (appendfsync always), SIGSTOP beyond the lease and SIGCONT."
  echo
  grep -o '[0-9]* rounds,.*' "$log" | sed 's/^/    /'
  echo
  echo "Every request ended in exactly one result; afterwards queue, claims, retry set and quota counters were empty. Made by \`make chaos-async\` at"
  echo "commit $(git describe --always --dirty)."
} >results/chaos-async.md
cat results/chaos-async.md
