#!/usr/bin/env bash
# A rank that fails alone, inside a group in which the others wait for it, ends the job at once with its own exit code.
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for ranks in 2 4; do
  code=0
  timeout -k 2 20 "$HEDDLE_MPIRUN" -np $ranks "$HEDDLE_BUILD/tests/integration/failing_rank" > "$log" 2>&1 || code=$?
  [ "$code" -eq 71 ] || { echo "FAILED: $ranks ranks end with $code, not 71"; cat "$log"; exit 1; }
  grep -qF "the rank's own fault" "$log" || { echo "FAILED: $ranks ranks do not say why"; cat "$log"; exit 1; }
done
echo "failing_rank: the job ends at once"
