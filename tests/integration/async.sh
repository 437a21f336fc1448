#!/usr/bin/env bash
# Asynchronous checkpoints (checkpoint.async): the same run and the same checkpoints; after SIGKILL of ranks at any moment it goes
# on, bitwise, every checkpoint on the disk verifies, and nothing unfinished stays.
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
export OMPI_MCA_odls_base_sigkill_timeout=0
memory=$work/memory
mkdir "$memory"
steps=150
kills=3
options=(--set checkpoint.async=true --set checkpoint.memory_directory="$memory" --set checkpoint.every_steps=3
  --set train.validate_every=10 --set train.steps=$steps)
clean() { # clean DIRECTORY: all checkpoints verify, nothing unfinished, nothing in memory
  "$HEDDLE" checkpoint verify "$1" > log || fail "a checkpoint of $1 does not verify"
  ! compgen -G "$1/checkpoints/.tmp-*" || fail "$1 has unfinished checkpoints"
  ! compgen -G "$memory/*" || fail "$1 has left its memory"
}

ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml "${options[@]}" --set checkpoint.async=false --set run.directory=whole
ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml "${options[@]}" --set run.directory=async
same whole async $steps
clean async
[ "$(readlink async/checkpoints/best)" = "$(readlink whole/checkpoints/best)" ] || fail "another checkpoint is the best"

"$HEDDLE" run run.toml "${options[@]}" --set run.directory=killed -- "$HEDDLE_MPIRUN" -np 2 > killed.log 2>&1 &
supervisor=$!
for number in $(seq $kills); do
  wait_for_step killed $((number * 30 - RANDOM % 10))
  kill -KILL "$(rank_of killed $((number % 2)))" || fail "it had ended before kill $number"
done
wait "$supervisor" || { cp killed.log log; fail "killed did not end with 0"; }
[ "$(grep -c "starting again" killed.log)" -eq $kills ] || { cp killed.log log; fail "it did not start again $kills times"; }
grep -q "resuming from step [0-9]* in memory" killed.log || fail "it never went on from memory"
same whole killed $steps
clean killed

# A signal: the checkpoint is on the disk when it ends.
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml "${options[@]}" --set train.steps=100000 --set run.directory=signalled > log 2>&1 &
job=$!
wait_for_step signalled 20
kill -USR1 "$job"
waited 75 "$job"
stopped=$(sed -n 's/^stopped by SIGUSR1 after step \([0-9,]*\) of .*/\1/p' log | tr -d ,)
[ -n "$stopped" ] || fail "the last lines name no step"
clean signalled
"$HEDDLE" train run.toml "${options[@]}" --set train.steps="$((stopped + 1))" --set run.directory=signalled > log 2>&1 || fail "it did not resume"
grep -q "resuming after step $(grouped "$stopped") in" log || fail "the step of the signal was not on the disk"
echo "async: $kills kills, bitwise the synchronous run"
