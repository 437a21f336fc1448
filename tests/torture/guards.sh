#!/usr/bin/env bash
# Without a guard the tests of it must fail, and with it they must pass; the program that users run has none that can be
# removed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
programs=$HEDDLE_BUILD/tests/torture
most=12
[ "$HEDDLE_TORTURE" = small ] || most=1000

fail() { echo "FAILED: $*"; tail -n 20 "$log"; exit 1; }

# run_tests REMOVED PROGRAM CASES: the status of these tests; their output is in $log.
run_tests() {
  local command=("$programs/guards_$2" "--gtest_filter=$3" --gtest_brief=1 --gtest_color=no)
  [ "$2" = files ] || command=("$HEDDLE_MPIRUN" -np 2 "${command[@]}")
  HEDDLE_TORTURE=small HEDDLE_GUARD_REMOVED=$1 timeout 120 "${command[@]}" > "$log" 2>&1 < /dev/null
}

guards=0
declare -A cases
while IFS=$'\t' read -r name program filter; do
  [ "$guards" -lt "$most" ] || break
  guards=$((guards + 1))
  cases[$program]=${cases[$program]:+${cases[$program]}:}$filter
  ! run_tests "$name" "$program" "$filter" || fail "$filter passes without the guard '$name', or never comes to it"
  grep -q "reached without its guard: $name" "$log" ||
    fail "the line of the guard '$name' is not once in its file: change tests/torture/guards/table"
  grep -Eq 'FAILED|failed on another rank' "$log" || fail "without the guard '$name' the tests ended in another way than by failing"
  echo "without '$name': $(grep -E 'FAILED  \]|failed on another rank' "$log" | head -n 1), as it must be"
done < <(awk -v OFS='\t' '
  $1 == "guard" { sub(/^guard /, ""); name = $0; next }
  $1 == "fails" { print name, $2, $3 }' "$here/guards/table")
for program in "${!cases[@]}"; do
  run_tests '' "$program" "${cases[$program]}" || fail "the tests fail with all guards in place"
done

seam=HEDDLE_GUARD_REMOVED
grep -q "$seam" "$programs/guards_files" || fail "the seam has another name now"
mapfile -t product < <(echo "$HEDDLE" && find "$HEDDLE_BUILD" -name 'libheddle_*.so')
for file in "${product[@]}"; do
  ! grep -q "$seam" "$file" || fail "$file has the seam of the tests"
done
echo "figures: $guards guards removed one at a time: the tests of each failed; ${#product[@]} files of the product have no such seam"
