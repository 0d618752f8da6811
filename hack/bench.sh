#!/usr/bin/env bash
# Measures the picker process over ext_proc and the parts of the reference, prints both and writes them to results/bench/reference.md; then the
# Async Processor (hack/bench-async.sh), to results/bench/async.md.
# PASSES and BENCHTIME say how often and how long each benchmark of a part runs.
set -euo pipefail
cd "$(dirname "$0")/.."
passes=${PASSES:-3} benchtime=${BENCHTIME:-0.1s}
raw=$(mktemp) full=$(mktemp)
trap 'rm -f "$raw" "$full"' EXIT
load=$(cut -d' ' -f1 /proc/loadavg)
go build -ldflags '-s -w' -o bin/weir .
go run ./hack/bench --picker bin/weir >"$full"
cat "$full"
for _ in $(seq "$passes"); do # passes rather than -count, so that what disturbs the machine for a while meets one run of a benchmark only
	go test -p 1 -run '^$' -bench . -benchmem -benchtime "$benchtime" ./reference/picker ./reference/epp ./reference/scrape \
		./sim-vllm/engine ./harness/env/virtual | tee -a "$raw"
done
out=results/bench/reference.md
mkdir -p results/bench
{
	echo "# Benchmarks of the reference"
	echo
	echo "Commit $(git rev-parse --short HEAD)$(git diff --quiet HEAD -- . ':!results' || echo ' with changes'), $(go version | awk '{print $3, $4}'), $(nproc) processors, $(awk -F': ' '/model name/ {print $2; exit}' /proc/cpuinfo), load average $load at the start. All figures from one run; \`make bench\` makes them anew."
	echo
	echo "## The whole picker"
	echo
	cat "$full"
	echo
	cat <<-'EOF'
	How it is measured: `weir picker` runs as a process of its own with 8 model servers, whose metrics pages (43 KB each, as vLLM's) it
	scrapes every 50 ms. The load client is another process on the same processors and speaks ext_proc over loopback, 64 streams at a
	time on 8 connections; an exchange is a new stream with headers, a chat body of 1 KB, their answers, response headers, two chunks,
	their answers, and the end. CPU time is user and system time of the picker process as the kernel counts it, scraping included, over
	10,000 exchanges; the figure is the median of 5 rounds, in which the pickers for 1, 1,000 and 10,000 tenants and the server with canned
	answers take turns, stopped while it is not theirs; a ratio is the median of the ratios within a round. A target that is
	not reached reads **missed**.

	## Its parts

	EOF
	echo "Of $passes passes of $benchtime for each benchmark the one with the least time; wall time of one processor."
	echo
	echo "| benchmark | figures |"
	echo "|---|---|"
	awk '/^Benchmark/ { name = $1; sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name); line = ""
		for (i = 3; i < NF; i += 2) line = line (line == "" ? "" : ", ") $i " " $(i + 1)
		if (!(name in best)) order[++n] = name
		if (!(name in best) || $3 < best[name]) { best[name] = $3; text[name] = line } }
		END { for (i = 1; i <= n; i++) print "| " order[i] " | " text[order[i]] " |" }' "$raw"
	echo
	awk '/^BenchmarkArriveDispatchFinish/ && /flows=10(-|\/|$)|flows=10000(-|\/|$)/ {
		name = $1; sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name)
		if (!(name in best) || $3 < best[name]) best[name] = $3 }
		END { for (name in best) if (name ~ /flows=10000/ && name !~ /program-aware/) {
				small = name; sub(/flows=10000/, "flows=10", small); r = best[name] / best[small]
				if (r > worst) { worst = r; at = name } }
			if (worst > 0) printf "Cost ratio of 10,000 to 10 flows at worst: %.2f (%s; program-aware fairness compares all waiting flows and is left out).\n", worst, at }' "$raw"
} >"$out"
echo "written to $out"
hack/bench-async.sh
