#!/usr/bin/env bash
# Checkpoints in memory (checkpoint.memory_every_steps): after SIGKILL of a rank the run resumes from there without a file, bitwise
# as an undisturbed one; a damaged one is refused by name; what belongs to another directory is not used; nothing is left behind.
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
export OMPI_MCA_odls_base_sigkill_timeout=0
memory=$work/memory
mkdir "$memory"
steps=60
sed -i 's/^batch_tokens = 1024/batch_tokens = 512/' run.toml
run=("$HEDDLE" run run.toml --set train.steps=$steps)
# The disk has a checkpoint of step 20 only; memory one of each step.
options=(--set checkpoint.every_steps=20 --set checkpoint.memory_every_steps=1 --set checkpoint.memory_directory="$memory")
in_memory() { compgen -G "$memory/heddle-*/step-*"; }
# killed DIRECTORY STEP OPTIONS...: a supervised run, one rank of which is killed once after this step.
killed() {
  local directory=$1 step=$2 supervisor victim
  shift 2
  "${run[@]}" "$@" --set run.directory="$directory" -- "$HEDDLE_MPIRUN" -np 2 > "$directory.log" 2>&1 &
  supervisor=$!
  wait_for_step "$directory" "$step"
  victim=$(rank_of "$directory" 1)
  local began
  kill -KILL "$victim" || fail "$directory had ended before it was killed"
  began=$(date +%s%N)
  local size=
  for _ in $(seq 1000); do
    if grep -q "resuming after step" "$directory.log"; then
      size=${size:-$(lines "$directory")}
      [ "$(lines "$directory")" -le "$size" ] || break
    fi
    sleep 0.01
  done
  awk -v t="$(($(date +%s%N) - began))" 'BEGIN { printf "%.1f ", t / 1e9 }' >> seconds
  wait "$supervisor" || { cp "$directory.log" log; fail "$directory did not end with 0"; }
  cp "$directory.log" log
}

for layout in data tensor; do
  ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set parallel.$layout=2 --set train.steps=$steps \
    --set checkpoint.every_steps=20 --set run.directory=whole_$layout
  killed killed_$layout 25 "${options[@]}" --set parallel.$layout=2
  grep -Eq "resuming from step [2-9][0-9] in memory; the newest on disk is of step [2468]0" log ||
    fail "it did not resume from memory"
  same whole_$layout killed_$layout $steps
  ! in_memory || fail "a finished run left its memory"
done

# A run that was stopped in the middle: kill -9 of all, by hand.
stopped() { # stopped DIRECTORY
  "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml "${options[@]}" --set train.steps=100000 --set run.directory="$1" > log 2>&1 &
  local job=$!
  wait_for_step "$1" 25
  kill -KILL "$(rank_of "$1" 0)"
  wait "$job" && fail "the job outlived its rank"
  in_memory > /dev/null || fail "nothing in memory"
}
go_on() { ends 0 "$HEDDLE_MPIRUN" -np "${ranks:-2}" "$HEDDLE" train run.toml "${options[@]}" --set train.steps=$steps "$@"; }

# One changed byte, in any of the files: refused by name, and the disk's is used.
stopped damaged
cp -a "$memory" copy
cp -a damaged damaged_copy
for file in state.h5 tensors-00000.h5 tensors-00001.h5 MANIFEST.json; do
  rm -rf "$memory" damaged
  cp -a copy "$memory"
  cp -a damaged_copy damaged
  for checkpoint in $(in_memory); do
    printf '\xa5' | dd of="$checkpoint/$file" bs=1 seek=1000 conv=notrunc status=none
  done
  go_on --set run.directory=damaged
  if [ $file != MANIFEST.json ]; then
    grep -Eq "step-[0-9]+ in memory rejected: no host has a complete copy of $file; on $(hostname), .*$file: bytes .* do not have the SHA-256" log ||
      fail "a damaged $file is not named"
  else
    grep -Eq "step-[0-9]+ in memory on $(hostname) rejected: .*MANIFEST.json" log || fail "a damaged manifest is not named"
  fi
  grep -q "resuming after step 20 in damaged" log || fail "it did not resume from the disk"
  same whole_data damaged $steps
done

# Undamaged, with other ranks; and not if it is told to go back, or to another directory of the same name.
rm -rf "$memory" damaged
cp -a copy "$memory"
cp -a damaged_copy damaged
ranks=1 go_on --set run.directory=damaged
grep -q "resuming from step [0-9]* in memory" log || fail "one rank did not resume from the memory of two"
rm -rf "$memory" damaged
cp -a copy "$memory"
cp -a damaged_copy damaged
ends 78 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml "${options[@]}" --set run.directory=damaged --set train.seed=2
go_on --set run.directory=damaged --resume-from 20
! grep -q "in memory" log || fail "--resume-from took what is in memory"
grep -q "resuming after step 20 in damaged" log || fail "--resume-from did not go back"
rm -rf "$memory" damaged
cp -a copy "$memory"
go_on --set run.directory=damaged
grep -q "starting in damaged" log || fail "a new directory took the memory of the old one"
! in_memory || fail "the old directory's memory is still there"

# No room is told before the first step.
if [ "$(id -u)" -eq 0 ] && mkdir small && mount -t tmpfs -o size=1m tmpfs small 2> /dev/null; then
  trap 'umount "$work/small"; rm -rf "$work"' EXIT
  ends 78 "$HEDDLE" train run.toml --set run.directory=no_room --set checkpoint.memory_every_steps=5 --set checkpoint.memory_directory=small
  grep -q "checkpoint.memory_directory = \"small\" has 1 MiB free on" log || fail "the lack of room is not explained"
  # A run that has checkpoints continues without it.
  ends 0 "$HEDDLE" train run.toml --set run.directory=no_room --set train.steps=5
  ends 0 "$HEDDLE" train run.toml --set run.directory=no_room --set train.steps=10 --set checkpoint.memory_every_steps=5 --set checkpoint.memory_directory=small
  grep -q "^note: .*has 1 MiB free on .* The run continues" log && grep -q "^done: step 10 of 10" log || fail "a restart needs room in memory"
fi
ends 78 "$HEDDLE" train run.toml --set run.directory=no_place --set checkpoint.memory_every_steps=5 --set checkpoint.memory_directory=missing
echo "memory: killed and damaged, bitwise the undisturbed runs; seconds from SIGKILL to the next finished step: $(cat seconds)"
