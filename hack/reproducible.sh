#!/usr/bin/env bash
# Two virtual runs with one seed give the same bytes, a judgement of the bundle gives the same verdicts, and a changed record is refused.
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for run in A B; do
	bin/weir certify --env virtual --seed 7 --out "$out/$run" >/dev/null
done
diff -r "$out/A" "$out/B"
bin/weir judge "$out/A" >"$out/judged"
grep -q 'the same verdicts as stored in the bundle' "$out/judged"
sed -i '0,/"status":429/s//"status":503/' "$out/A/client.ndjson"
status=0
bin/weir judge "$out/A" 2>"$out/refused" || status=$?
if [ "$status" != 2 ] || ! grep -q 'client.ndjson was changed' "$out/refused"; then
	echo "an edited bundle must be refused by name with status 2, got $status: $(cat "$out/refused")" >&2
	exit 1
fi
status=0
bin/weir judge --unsealed "$out/A" >"$out/unsealed" 2>&1 || status=$?
if [ "$status" != 1 ] || ! grep -q '^changed: ' "$out/unsealed"; then
	echo "an edited status must change verdicts, got status $status" >&2
	exit 1
fi
echo "equal to the byte, judged alike, edits refused"
