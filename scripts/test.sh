#!/bin/sh
# Runs the workspace's tests. At the end, lists the scores in public test suites, and the tests that were skipped because a real server is
# missing. Exits with the status of cargo test.
set -u
cd "$(dirname "$0")/.." || exit 1

# tests append to these files (stdx::skipped)
FLOODMARK_SKIPPED=$(mktemp) && FLOODMARK_SCORES=$(mktemp) || exit 1
export FLOODMARK_SKIPPED FLOODMARK_SCORES
trap 'rm -f "$FLOODMARK_SKIPPED" "$FLOODMARK_SCORES"' EXIT

cargo test --workspace --locked --no-fail-fast "$@"
ended=$?

if [ -s "$FLOODMARK_SCORES" ]; then
    echo
    sort -u "$FLOODMARK_SCORES"
fi
if [ -s "$FLOODMARK_SKIPPED" ]; then
    tests=$(cut -f 2 "$FLOODMARK_SKIPPED" | sort -u | wc -l)
    echo
    echo "$tests tests were skipped, wholly or in part, because these are missing:"
    sort -u "$FLOODMARK_SKIPPED" | awk -F '\t' '
        { count[$1]++; names[$1] = names[$1] (names[$1] ? ", " : "") $2 }
        END { for (missing in count) printf "  %3d  %s: %s\n", count[missing], missing, names[missing] }' | sort -rn
else
    echo
    echo "No test was skipped."
fi
exit $ended
