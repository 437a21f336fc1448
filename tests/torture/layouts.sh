#!/usr/bin/env bash
# Every layout of 8 ranks with no axis above 4 trains as one rank does; dist.np8 trains those that use three axes.
set -euo pipefail
output=$("$HEDDLE_MPIRUN" -np 8 "$HEDDLE_BUILD/tests/dist_tests" --gtest_filter='LayoutsTest.EveryLayout*' --gtest_brief=1)
echo "$output"
echo "figures: $(grep ' layouts of 8 ranks' <<< "$output")"
