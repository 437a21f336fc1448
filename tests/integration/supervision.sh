#!/usr/bin/env bash
# heddle run: after SIGKILL of ranks and of mpirun the run resumes by itself and ends bitwise as an undisturbed one. Signals
# and final codes are forwarded. tests/apps/supervision has the rules of restarting and giving up, with launchers that train nothing. HEDDLE_KILLS: kills in each layout (3).
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
kills=${HEDDLE_KILLS:-3}
RANDOM=${HEDDLE_SEED:-1}
steps=$((120 + 15 * kills))  # enough left when the last kill comes
run=("$HEDDLE" run run.toml --set train.steps=$steps)
export OMPI_MCA_odls_base_sigkill_timeout=0
: > recoveries

# The first process of the launcher, as the child of heddle run.
launcher_of() { tr -d ' ' < "/proc/$1/task/$1/children"; }

# disturb DIRECTORY RANKS OPTIONS...: a run that is killed at random moments, each time another rank or mpirun.
disturb() {
  local directory=$1 ranks=$2 supervisor kill_number target began before
  shift 2
  "${run[@]}" "$@" --set run.directory="$directory" -- "$HEDDLE_MPIRUN" -np "$ranks" > "$directory.log" 2>&1 &
  supervisor=$!
  for kill_number in $(seq "$kills"); do
    wait_for_step "$directory" $((kill_number * 15 - RANDOM % 8))
    sleep "0.0$((RANDOM % 10))"
    if [ $((kill_number % 3)) -eq 0 ]; then
      target=$(launcher_of "$supervisor")
    else
      target=$(rank_of "$directory" $((RANDOM % ranks)))
    fi
    before=$(stat -c %Y%N "$directory/metrics.jsonl")
    kill -KILL "$target" || fail "$directory had ended before kill $kill_number"
    began=$(date +%s%N)
    # The new start drops the lines after the newest checkpoint (another file); its first line is a finished step.
    local inode size
    inode=$(stat -c %i "$directory/metrics.jsonl")
    for _ in $(seq 3000); do
      if [ "$(stat -c %i "$directory/metrics.jsonl")" != "$inode" ]; then
        size=$(lines "$directory")
        while [ "$(lines "$directory")" -le "$size" ] && kill -0 "$supervisor" 2> /dev/null; do sleep 0.01; done
        break
      fi
      sleep 0.01
    done
    awk -v t="$(($(date +%s%N) - began))" 'BEGIN { printf "%.2f\n", t / 1e9 }' >> recoveries
  done
  wait "$supervisor" || { cp "$directory.log" log; fail "$directory did not end with 0"; }
  [ "$(grep -c ": starting again" "$directory.log")" -eq "$kills" ] ||
    { cp "$directory.log" log; fail "$directory did not start again $kills times"; }
}

for layout in data tensor; do
  options=(--set parallel.$layout=2)
  ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml "${options[@]}" --set train.steps=$steps --set run.directory=whole_$layout
  disturb killed_$layout 2 "${options[@]}"
  same whole_$layout killed_$layout $steps
done
grep -Eq "a rank was lost \(code (137|9): Killed\) after step [0-9]*: starting again" killed_data.log || fail "no reason for a start"
grep -q "the launcher was ended by signal 9 (Killed) after step [0-9]*: starting again" killed_data.log ||
  fail "a killed mpirun is not named"

# A directory that is still locked is waited for, with a message.
mkdir held
exec 9> held/.lock
flock -n 9
printf 'process 1 on elsewhere since yesterday\n' >&9
"${run[@]}" --set run.directory=held --set train.steps=3 -- "$HEDDLE_MPIRUN" -np 2 > log 2>&1 9>&- &
supervisor=$!
sleep 1
grep -q "waiting for held: it is still locked by process 1 on elsewhere since yesterday" log || fail "no message while it waits"
exec 9>&-
wait "$supervisor" || fail "it did not start once the lock was free"

# A hang is a reason to start again.
"${run[@]}" --set run.directory=hung --set train.steps=30 --set train.hang_seconds=1 -- "$HEDDLE_MPIRUN" -np 2 > log 2>&1 &
supervisor=$!
wait_for_step hung 10
stopped=$(rank_of hung 1)
kill -STOP "$stopped"
wait "$supervisor" || fail "a run with a hang did not resume"
grep -q "a rank hung (code 86) after step [0-9]*: starting again" log || fail "the hang is not named as the reason"

# --resume-from goes back once: the start after a lost rank resumes where the first one was.
"${run[@]}" --set run.directory=hung --set train.steps=100 --resume-from 25 -- "$HEDDLE_MPIRUN" -np 2 > log 2>&1 &
supervisor=$!
wait_for_step hung 40
kill -KILL "$(rank_of hung 1)"
wait "$supervisor" || fail "a run from an earlier checkpoint did not resume"
[ "$(grep -c "resuming after step 25 " log)" -eq 1 ] || fail "it did not go back to step 25 once"
[ "$(grep -c "resuming after step" log)" -eq 2 ] || fail "it did not resume after that"
grep -q "^resuming after step [0-9]* in hung (restart 1, ranks: 2)$" log || fail "the restart is not numbered"
[ "$(grep -c "^2 ranks on" log)" -eq 1 ] || fail "the restart printed the mesh again"
compgen -G "hung/checkpoints/rejected-*" > /dev/null || fail "no newer checkpoint was moved aside"
SLURM_RESTART_COUNT=1 ends 0 "${run[@]}" --set run.directory=hung --set train.steps=100 --resume-from 90 -- "$HEDDLE_MPIRUN" -np 2
grep -q "already at step 100" log || fail "a job that was queued again went back again"
ends 64 "${run[@]}" --resume-from 25 --fresh -- "$HEDDLE_MPIRUN" -np 2

# A launcher that waits after its ranks is ended, and the run's own report counts: done, or stopped by the signal.
cat > lagging << 'SH'
#!/bin/sh
trap 'kill -USR1 $ranks' USR1
"$@" &
ranks=$!
wait $ranks
wait $ranks
exec sleep 100
SH
chmod +x lagging
ends 0 "${run[@]}" --set run.directory=stuck --set train.steps=3 --launcher-ends-within 1 -- ./lagging "$HEDDLE_MPIRUN" -np 2
grep -q "no rank has trained in stuck for [1-9]* s: ending the launcher" log || fail "a launcher that waits is not ended"
grep -q "the launcher did not end after its ranks, but before that the run was done: ending with 0" log ||
  fail "the reason is not named"
! grep -q "starting again" log || fail "a run that was done was started again"
"${run[@]}" --set run.directory=late --set train.steps=100000 --launcher-ends-within 1 -- ./lagging "$HEDDLE_MPIRUN" -np 2 \
  > log 2>&1 &
supervisor=$!
wait_for_step late 3
kill -USR1 "$supervisor"
waited 75 "$supervisor"
ends 64 "${run[@]}" --launcher-ends-within 0 -- "$HEDDLE_MPIRUN" -np 2

# Codes that a restart would not change end it at once.
ends 78 "${run[@]}" --set run.directory=refused --set parallel.tensor=3 -- "$HEDDLE_MPIRUN" -np 2
! grep -q "starting again" log || fail "an impossible layout was tried again"
ends 78 "${run[@]}" --set train.nonsense=1 -- "$HEDDLE_MPIRUN" -np 2
ends 64 "${run[@]}"
ends 64 "${run[@]}" --ranks 4,2 -- "$HEDDLE_MPIRUN" -np 2
grep -q "in the launcher's arguments: mpirun -np {ranks}\$" log || fail "the example does not fit"
ends 64 "${run[@]}" --hosts localhost:3 --ranks 4,8 -- "$HEDDLE_MPIRUN" --host '{hosts}' -np '{ranks}'
grep -q "localhost:3 has 3 slots together, and --ranks 4,8 needs at least 4" log || fail "the slots are not named"
ends 64 "${run[@]}" --hosts n1:2,n2:2 -- "$HEDDLE_MPIRUN" -np 2
ends 64 "${run[@]}" -- "$HEDDLE_MPIRUN" --host '{hosts}' -np 2
ends 71 "${run[@]}" --set run.directory=diverged --set optimizer.learning_rate=1e30 --set optimizer.warmup_steps=1 -- \
  "$HEDDLE_MPIRUN" -np 2

# Signals: a checkpoint, and 75.
for signal in USR1 TERM INT; do
  "${run[@]}" --set run.directory="signalled_$signal" --set checkpoint.every_steps=0 --set train.steps=100000 -- \
    "$HEDDLE_MPIRUN" -np 2 > log 2>&1 &
  supervisor=$!
  wait_for_step "signalled_$signal" 5
  kill "-$signal" "$supervisor"
  waited 75 "$supervisor"
  compgen -G "signalled_$signal/checkpoints/step-*" > /dev/null || fail "SIG$signal to heddle run: no checkpoint"
done

# Signals to mpirun itself, which ends with 1; Hydra's ends with 75, as its ranks do, or with 0.
OMPI_MCA_odls_base_sigkill_timeout=2 "${run[@]}" --set run.directory=ended --set train.steps=100000 -- "$HEDDLE_MPIRUN" -np 2 \
  > log 2>&1 &
supervisor=$!
wait_for_step ended 5
kill -TERM "$(launcher_of "$supervisor")"
waited 75 "$supervisor"
by_hydra || grep -q "but before that the run was stopped by a signal, with a checkpoint: ending with 75" log || fail "the stop is not named"

sort -n recoveries | awk '{ t[NR] = $1 } END { printf "supervision: %d kills, bitwise the undisturbed runs; seconds to the next finished step: median %s, worst %s\n", NR, t[int((NR + 1) / 2)], t[NR] }'
