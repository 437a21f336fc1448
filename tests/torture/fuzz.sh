#!/usr/bin/env bash
# Builds the fuzzers of fuzz/ with clang and runs each for 10 minutes, or $HEDDLE_FUZZ_SECONDS. What they find is in
# BUILD/fuzz/findings; a small one belongs into fuzz/corpus.
set -euo pipefail
clang=$(command -v clang++-14 || command -v clang++ || true)
probe='extern "C" int LLVMFuzzerTestOneInput(unsigned char const*, unsigned long) { return 0; }'
if [ -z "$clang" ] || ! "$clang" -x c++ -fsanitize=fuzzer -o /dev/null - <<< "$probe" 2> /dev/null; then
  echo "NOT FUZZED: no clang++ with libFuzzer is here (apt-get install clang-14 libfuzzer-14-dev)"
  exit 77
fi
build=$(dirname "$HEDDLE_BUILD")/fuzz
seeds=$build/seeds
HEDDLE_FUZZ_SEEDS=$seeds "$HEDDLE_BUILD/tests/torture/torture_files" --gtest_filter='FuzzCorpus.*' > /dev/null
cmake -S "$HEDDLE_SOURCE" -B "$build" -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER="$clang" \
  -D HEDDLE_PRECOMPILE=OFF -D HEDDLE_WARNINGS_AS_ERRORS=OFF -D HEDDLE_SANITIZE=address,undefined,fuzzer-no-link > /dev/null
cmake --build "$build" --target fuzzers

mkdir -p "$build/findings"
failed=0
for target in config manifest state_file dataset kernel_times safetensors; do
  mkdir -p "$build/corpus/$target"
  log=$build/$target.log code=0
  ASAN_OPTIONS=detect_leaks=0 "$build/tests/torture/fuzz_$target" -max_total_time="${HEDDLE_FUZZ_SECONDS:-600}" -rss_limit_mb=2048 \
    -timeout=20 -max_len=20000 -print_final_stats=1 -artifact_prefix="$build/findings/$target-" \
    "$build/corpus/$target" "$seeds/$target" "$HEDDLE_SOURCE/tests/torture/fuzz/corpus/$target" > "$log" 2>&1 || code=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "figures: $target $executions executions, crashes $((code != 0)), largest memory $(sed -n 's/^stat::peak_rss_mb: *//p' "$log") MB"
  [ "$code" -eq 0 ] || { failed=1 && grep -E 'ERROR|SUMMARY|artifact|runtime error' "$log" | head -n 5; }
done
exit "$failed"
