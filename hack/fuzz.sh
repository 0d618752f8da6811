#!/usr/bin/env bash
# Every fuzz target for FUZZTIME each (default 60s), one after the other. A finding is kept under the package's testdata/fuzz and fails the
# package's ordinary tests from then on.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${FUZZTIME:=60s}"
failed=0
# The tool now and then takes the end of its own time for a failure (golang/go#75804): that says nothing else, and names no input.
ended() {
  [ "$(sed -n '/^--- FAIL/,/^FAIL/p' <<<"$1" | grep -cv '^--- FAIL\|^FAIL')" = 1 ] && grep -qx '    context deadline exceeded' <<<"$1" && ! grep -q 'Failing input written' <<<"$1"
}
while IFS=: read -r file _ line; do
  pkg="./$(dirname "$file")"
  name="$(sed -E 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/' <<<"$line")"
  printf '%-24s %-28s ' "$pkg" "$name"
  if out="$(go test "$pkg" -run '^$' -fuzz "^$name\$" -fuzztime "$FUZZTIME" 2>&1)" || ended "$out"; then
    grep -E '^fuzz: elapsed' <<<"$out" | tail -1 | sed -E 's/^fuzz: //'
  else
    failed=1
    echo FOUND
    tail -40 <<<"$out"
  fi
done < <(git grep -n '^func Fuzz' -- '*_test.go')
exit "$failed"
