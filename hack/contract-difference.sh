#!/usr/bin/env bash
# Judges a reference set to one contract against another: exactly the requirements whose expectation differs must fail.
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
status=0
bin/weir certify --profile llm-d-router-0.9 --reference-profile llm-d-router-2026-09 --out "$out/bundle" >"$out/log" || status=$?
failed=$(grep '^fail ' "$out/log" | awk '{print $2}' | sort | tr '\n' ' ')
want="FC-REF-03 FC-REF-04 FC-REF-05 FC-REF-07 FC-REF-08 "
if [ "$status" != 1 ] || [ "$failed" != "$want" ]; then
	cat "$out/log"
	echo "exit status $status, want 1; failed: $failed, want: $want" >&2
	exit 1
fi
echo "fails exactly: $failed"
