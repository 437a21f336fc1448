#!/usr/bin/env bash
# A training step allocates nothing that grows with the model or the batch: after the second step no tensor, and nothing
# of a page or more. The allocations of a run of 46 steps are counted against those of one of 34: shorter ones plan their
# memory step by step.
source "$HEDDLE_SOURCE/tests/integration/small_run"
if grep -q '^HEDDLE_SANITIZE:[A-Z]*=.' "$HEDDLE_BUILD/CMakeCache.txt"; then
  echo "sanitizers replace the functions that are counted"
  exit 77
fi
counter=$HEDDLE_BUILD/tests/integration/liballocation_counter.so

# counts DIRECTORY STEPS RANKS SETTING...: "small large kokkos" of each rank.
counts() {
  local directory=$1 steps=$2 ranks=$3 arguments=() setting
  shift 3
  for setting in "run.directory=$directory" "train.steps=$steps" train.validate_every=0 checkpoint.every_steps=0 \
    train.log_every=100 train.batch_tokens=512 "$@"; do
    arguments+=(--set "$setting")
  done
  "$HEDDLE_MPIRUN" -np "$ranks" env "LD_PRELOAD=$counter:${LD_PRELOAD:-}" "ALLOCATIONS=$work/$directory.count" \
    "$HEDDLE" train run.toml "${arguments[@]}" > log 2>&1 || fail "training in $directory"
  cat "$directory".count.*
}

# steady NAME RANKS SETTING...: prints what 12 steps allocate, and fails if that is a tensor or a page in each step of a
# rank. Starts differ by one or two from run to run.
steady() {
  local name=$1 ranks=$2 short long
  shift 2
  short=$(counts "$name-34" 34 "$ranks" "$@")
  long=$(counts "$name-46" 46 "$ranks" "$@")
  [ "$(wc -l <<< "$long")" -eq "$ranks" ] || fail "$name: not every rank was counted"
  paste <(echo "$short") <(echo "$long") | awk -v name="$name" '
    { small += $4 - $1; large += $5 - $2; kokkos += $6 - $3 }
    END {
      printf "%s: in 12 steps of %d ranks %d allocations below a page, %d of a page or more, %d of Kokkos\n", name, NR, small, large, kokkos
      exit (large >= 12 || kokkos >= 12)
    }' || fail "$name: a step allocates"
}

# The counter counts: the start of a run allocates all of these.
counts counted 2 1 > first
read -r small large kokkos < first
[ "$small" -gt 1000 ] && [ "$large" -gt 10 ] && [ "$kokkos" -gt 10 ] || fail "the counter found only: $(cat first)"

steady data 2
steady tensor 2 parallel.tensor=2 parallel.sequence_parallel=true
steady pipeline 2 parallel.pipeline=2
steady context 2 parallel.context=2
steady sharded 2 parallel.shard_optimizer=true train.precision=bfloat16
