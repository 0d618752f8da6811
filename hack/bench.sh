#!/usr/bin/env bash
# Runs the benchmarks once, side by side on this machine, and writes the table to results/bench/reference.md.
set -euo pipefail
cd "$(dirname "$0")/.."
raw=$(mktemp)
trap 'rm -f "$raw"' EXIT
go test -run '^$' -bench . -benchmem -benchtime "${BENCHTIME:-0.5s}" ./reference/picker ./reference/epp ./sim-vllm/engine ./harness/env/virtual | tee "$raw"
out=results/bench/reference.md
mkdir -p results/bench
{
	echo "# Benchmarks of the reference"
	echo
	echo "Commit $(git rev-parse --short HEAD), $(go version | awk '{print $3, $4}'), $(nproc) processors, $(awk -F': ' '/model name/ {print $2; exit}' /proc/cpuinfo). All figures from one run; \`make bench\` makes them anew."
	echo
	echo "| benchmark | figures |"
	echo "|---|---|"
	awk '/^Benchmark/ { name = $1; sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name); line = ""; for (i = 3; i < NF; i += 2) line = line (line == "" ? "" : ", ") $i " " $(i + 1); print "| " name " | " line " |" }' "$raw"
	echo
	awk '/^BenchmarkArriveDispatchFinish/ && /flows=10-|flows=10000-|flows=10\/|flows=10000\// {
		name = $1; sub(/-[0-9]+$/, "", name); key = name; sub(/flows=[0-9]+/, "flows=N", key)
		if (name ~ /flows=10000/) big[key] = $3; else small[key] = $3 }
		END { worst = 0; for (k in big) if (k in small) { r = big[k] / small[k]; if (r > worst && k !~ /program-aware/) { worst = r; at = k } }
		if (worst > 0) printf "Cost ratio of 10,000 to 10 flows at worst: %.2f (%s; program-aware fairness compares all waiting flows and is left out).\n", worst, at }' "$raw"
} >"$out"
echo "written to $out"
