#!/usr/bin/env bash
# heddle run: SIGKILL of ranks and of mpirun between the last checkpoint and the end, and while later starts find the run
# complete. Each run ends with 0, its report says done or stopped early, and its checkpoint and `best` are an undisturbed
# run's. HEDDLE_LATE_KILLS: kills (6; 1,000 with HEDDLE_TORTURE=big); HEDDLE_SEED chooses their moments.
source "$(dirname "${BASH_SOURCE[0]}")/../integration/small_run"
kills=${HEDDLE_LATE_KILLS:-6}
[ "${HEDDLE_TORTURE:-small}" = small ] || kills=${HEDDLE_LATE_KILLS:-1000}
RANDOM=${HEDDLE_SEED:-1}
points=$HEDDLE_BUILD/tests/integration/libkill_points.so
[ -e "$points" ] || fail "$points is missing"
export OMPI_MCA_odls_base_sigkill_timeout=0
# The first start makes one step, step 2: the last one, or the one after which there is nothing better.
common=(--set train.deterministic=true --set train.validate_every=1 --set checkpoint.every_steps=0
  --set checkpoint.memory_directory="$work/memory")
ways=(done async early)
declare -A options=([done]="train.steps=2" [async]="train.steps=2 checkpoint.async=true"
  [early]="train.early_stopping=1 optimizer.learning_rate=1e-30") ends_as=([done]=done [async]=done [early]="stopped early")
# run_of WAY DIRECTORY RANKS LAUNCHER-OPTION...: a run from step 1 on.
run_of() {
  local way=$1 directory=$2 ranks=$3 option sets=()
  shift 3
  cp -r first "$directory"
  for option in ${options[$way]}; do sets+=(--set "$option"); done
  "$HEDDLE" run run.toml "${common[@]}" "${sets[@]}" --set run.directory="$directory" --pause 0.05 -- \
    "$HEDDLE_MPIRUN" -np "$ranks" "$@"
}
# ended WAY DIRECTORY: the run is complete, and is the undisturbed one.
ended() {
  local whole=whole_$1
  grep -q "\"state\":\"${ends_as[$1]}\"" "$2/report.json" || fail "$2: the report does not say ${ends_as[$1]}"
  [ "$(readlink "$2/checkpoints/best")" = "$(readlink "$whole/checkpoints/best")" ] ||
    fail "$2: best is $(readlink "$2/checkpoints/best")"
  same "$whole" "$2" 2
}

ends 0 "$HEDDLE" train run.toml "${common[@]}" --set train.steps=1 --set run.directory=first
mkdir memory
for way in "${ways[@]}"; do
  run_of "$way" "whole_$way" 1 > log 2>&1 || fail "the undisturbed run of $way ended with $?"
  ended "$way" "whole_$way"
done
[ "$(readlink whole_done/checkpoints/best) $(readlink whole_early/checkpoints/best)" = "step-00000002 step-00000001" ] ||
  fail "the undisturbed runs are not as they should be"

# plan RANKS: moments of four kills; more would be given up as no progress. The first is at once, then from 50 µs to 0.4 s
# after the checkpoint is in its place; later starts, which find the run complete, are killed at any time.
plan() {
  local victims=(rank0 launcher rank0) start moment=$((run == 1 ? 0 : (50 << (RANDOM % 13)) * (1000 + RANDOM % 1000) / 1000))
  [ "$1" -eq 1 ] || victims+=(rank1 rank1)
  echo "saved $moment 0 ${victims[$((RANDOM % ${#victims[@]}))]}"
  for start in 1 2 3; do echo "start $((RANDOM % 500)) 0 ${victims[$((RANDOM % ${#victims[@]}))]}"; done
}
run=0 came=0 complete=0
while [ "$came" -lt "$kills" ]; do
  run=$((run + 1))
  way=${ways[$((run % ${#ways[@]}))]} ranks=$((1 + run % 2))
  plan "$ranks" > plan
  : > events
  code=0
  run_of "$way" killed "$ranks" env LD_PRELOAD="$points:${LD_PRELOAD:-}" HEDDLE_KILL_PLAN="$work/plan" HEDDLE_KILL_EVENTS="$work/events" \
    > log 2>&1 || code=$?
  [ "$code" -eq 0 ] || { cat plan events; fail "run $run ($way, $ranks ranks) ended with $code"; }
  complete=$((complete + $(grep -Ec '^already (at step 2|stopped early)' log || true)))
  came=$((came + $(grep -c '^kill ' events || true)))
  ended "$way" killed
  [ "$run" -le $((10 + 4 * kills)) ] || fail "only $came kills in $run runs"
  rm -rf killed
done
echo "figures: $came kills in $run runs, all ended with 0; $complete starts found the run complete"
