#!/usr/bin/env bash
# Runs tests with the clock set to another time of day. This checks that no test depends on the time at which it runs.
#
#   scripts/test-at.sh 23:59:40                          all tests; each binary begins at that time (UTC)
#   scripts/test-at.sh 01:59:50 -p server --lib          further arguments go to cargo test: packages and targets
#   TESTS=transfer scripts/test-at.sh 23:59:55 -p floodmark --test it
#
# The clock is set forward to the next such time, never back. Tests with other servers are skipped, because these servers read the
# real clock.
set -euo pipefail
cd "$(dirname "$0")/.."

at=${1:?a time of day such as 23:59:40}
shift
library=$(mktemp -d)/test-clock.so
trap 'rm -r "$(dirname "$library")"' EXIT
cc -shared -fPIC -O2 -o "$library" scripts/test-clock.c

binaries=$(cargo test --locked --no-run --message-format=json "${@:---workspace}" | python3 -c '
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message.get("profile", {}).get("test"):
        print(os.path.dirname(message["manifest_path"]), message["executable"], sep="\t")')

failed=()
while IFS=$'\t' read -r folder binary; do
  ahead=$(( ($(date -u -d "$at" +%s) - $(date -u +%s) + 86400) % 86400 ))
  echo "$(basename "$binary") at $at"
  (cd "$folder" && LD_PRELOAD=$library FLOODMARK_TEST_AHEAD_S=$ahead \
    "$binary" ${TESTS:-} --skip real_prometheus --skip lake::s3 --skip lake::azure) || failed+=("$(basename "$binary")")
done <<< "$binaries"

[ ${#failed[@]} -eq 0 ] || { echo "failed at $at: ${failed[*]}"; exit 1; }
