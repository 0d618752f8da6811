#!/usr/bin/env bash
# Measures the Async Processor on a real redis-server, where there is one, and writes results/bench/async.md.
# PASSES says how often, MESSAGES how many messages each time; BACKLOG=1000000 measures the memory at such a backlog too (a minute).
set -euo pipefail
cd "$(dirname "$0")/.."
passes=${PASSES:-3} messages=${MESSAGES:-50000} backlog=${BACKLOG:-0}
raw=$(mktemp)
trap 'rm -f "$raw" "$raw.test"' EXIT
load=$(cut -d' ' -f1 /proc/loadavg)
go test -c -o "$raw.test" ./reference/asyncproc
for _ in $(seq "$passes"); do
	"$raw.test" -test.run '^$' -test.bench 'Messages|IdleLatency' -test.benchtime "${messages}x" -test.timeout 20m | tee -a "$raw"
done
if [ "$backlog" -gt 0 ]; then
	"$raw.test" -test.run '^$' -test.bench BacklogMemory -test.benchtime 1x -test.timeout 20m -backlog "$backlog" | tee -a "$raw"
fi
broker=$(redis-server --version 2>/dev/null | awk '{sub("v=", "", $3); print "redis-server " $3}' || true)
# median NAME UNIT: of the passes
median() { awk -v name="$1" -v unit="$2" '$1 ~ name { for (i = 3; i < NF; i += 2) if ($(i + 1) == unit) print $i }' "$raw" | sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print "-" }'; }
# row WHAT VALUE TARGET OK: a line of the table; OK is an awk condition on v
row() { awk -v what="$1" -v v="$2" -v target="$3" "BEGIN { print \"| \" what \" | \" v \" | \" target \" | \" (v == \"-\" ? \"not measured\" : ($4) ? \"reached\" : \"**missed**\") \" |\" }"; }
out=results/bench/async.md
mkdir -p results/bench
{
	echo "# Benchmarks of the Async Processor"
	echo
	echo "Commit $(git rev-parse --short HEAD)$(git diff --quiet HEAD -- . ':!results' || echo ' with changes'), $(go version | awk '{print $3, $4}'), ${broker:-the embedded broker}, $(nproc) processors, $(awk -F': ' '/model name/ {print $2; exit}' /proc/cpuinfo), load average $load at the start: the machine was shared with other work. \`make bench\`, or \`hack/bench-async.sh\` alone, makes the figures anew."
	echo
	echo "| figure | measured | target | |"
	echo "|---|---|---|---|"
	row "messages a second through one queue" "$(median BenchmarkMessages messages/s)" "≥ 5,000" 'v >= 5000'
	row "from submission to the gateway when idle, p50, ms" "$(median BenchmarkIdleLatency p50-ms)" "< 5" 'v < 5'
	row "commands sent to the broker for a message" "$(median BenchmarkMessages commands/message)" "≤ 4" 'v <= 4'
	echo
	echo "Beside them: p99 when idle $(median BenchmarkIdleLatency p99-ms) ms; commands that the broker executes for a message, those inside scripts included, $(median BenchmarkMessages executed/message)."
	echo
	cat <<-'EOF'
	How it is measured: processor (`--eager`, 64 workers, leases and fenced results), producer and upstream are one process, the broker
	another, all on the same processors; the upstream answers at once over HTTP. Throughput is from the first submission of a backlog to the
	last result in the broker, its loading included. When idle, a message is submitted after the one before has arrived. A script is one
	command sent, whatever it does inside, and serves many messages.
	EOF
	echo "Each figure is the median of $passes passes of $messages messages."
	echo
	echo "## Memory at a backlog"
	echo
	if [ "$backlog" -gt 0 ]; then
		echo "Heap in use after a collection, when 10,000 messages are done and all 64 workers are busy; target: the same at every length."
		echo
		echo "| messages waiting | heap, MB |"
		echo "|---|---|"
		awk '/^BenchmarkBacklogMemory/ { for (i = 3; i < NF; i += 2) f[$(i + 1)] = $i; printf "| %d | %s |\n", f["waiting"], f["heap-MB"] }' "$raw"
	else
		echo 'Not measured in this run; `BACKLOG=1000000 hack/bench-async.sh` does.'
	fi
} >"$out"
echo "written to $out"
