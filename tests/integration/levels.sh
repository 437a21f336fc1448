#!/usr/bin/env bash
# One program for every x86-64 processor from v2 on: its behaviour on processors that qemu-user emulates, and where
# ranks or a run's two halves have different ones. Without qemu-user the parts that need it are left out and the test
# counts as skipped.
source "$(dirname "${BASH_SOURCE[0]}")/common"
unset HEDDLE_CPU_LEVEL

skip() { echo "skipped: $*"; exit 77; }

[ "$(uname -m)" = x86_64 ] || skip "not an x86-64 processor"
"$HEDDLE" kernels > listing || fail "heddle kernels"
grep -q '^Instructions: x86-64-v' listing || fail "heddle kernels does not say which instructions it takes"
! grep -q '^Instructions: .*compiled for one machine' listing || skip "built with HEDDLE_NATIVE: for one machine"

prepare_data 400 50 20 150
configure model.max_length=64 train.steps=4 train.batch_tokens=256 train.micro_batch_tokens=256 train.validate_every=0 \
  checkpoint.every_steps=2

# The lowest level on this processor, then its highest: the resumed run reports that it is not bitwise the same.
HEDDLE_CPU_LEVEL=x86-64-v2 "$HEDDLE" train run.toml --set train.steps=2 > log 2>&1 || fail "training with x86-64-v2"
! grep 'has no instructions for it' log || fail "a note on bfloat16 where it is not used"
HEDDLE_CPU_LEVEL=x86-64-v2 "$HEDDLE" train run.toml --set train.steps=3 --set train.precision=bfloat16 > log 2>&1 || fail "bfloat16 with x86-64-v2"
grep -q 'note: train.precision = "bfloat16": x86-64-v2 has no instructions for it' log || fail "a slow precision has no note"
"$HEDDLE" inspect run > listing || fail "inspect"
grep -q '^computed with: x86-64-v2 ' listing || fail "the checkpoint does not record the instructions"
"$HEDDLE" train run.toml > log 2>&1 || fail "resuming with this processor's instructions"
if ! "$HEDDLE" kernels | grep 'this processor has x86-64-v2$' > /dev/null; then
  grep -q 'computed with the instructions x86-64-v2 .*not be bitwise' log || fail "it is not said that the run is not bitwise"
fi

# Ranks agree on the lowest.
"$HEDDLE_MPIRUN" -np 1 env HEDDLE_CPU_LEVEL=x86-64-v2 "$HEDDLE" train run.toml --fresh : \
  -np 1 "$HEDDLE" train run.toml --fresh > log 2>&1 || fail "two ranks of different levels"
"$HEDDLE" inspect run-2 > listing || fail "inspect"
grep -q '^computed with: x86-64-v2 ' listing || fail "ranks do not agree on the lowest level"

command -v qemu-x86_64 > /dev/null || skip "there is no qemu-x86_64 (apt-get install qemu-user): older processors were not imitated"
on() { local cpu=$1; shift; qemu-x86_64 -cpu "$cpu" "$@" 2> "$cpu.warnings"; }

# A processor that is too old gets an error message, not a signal.
status=0
on core2duo "$HEDDLE" --version > log || status=$?
[ "$status" -eq 78 ] && grep -q 'lacks.* SSE4.2' core2duo.warnings ||
  fail "a processor without SSE4.2 ended with $status: $(cat core2duo.warnings)"

# on_processor CPU LEVEL: it takes the kernels of this level, or of the lowest where the build has none of it, and trains with them.
on_processor() {
  local cpu=$1 level=$2 listing=$1.listing kokkos=$2
  [ -e "$HEDDLE_BUILD/core/libheddle_kernels_$level.so" ] || kokkos=x86-64-v2
  on "$cpu" "$HEDDLE" kernels > "$listing" || fail "heddle kernels on a $cpu: $(cat "$cpu.warnings")"
  grep -q "^Instructions: $level (kokkos $kokkos); this processor has $level\$" "$listing" ||
    fail "a $cpu takes other kernels than $level: $(cat "$listing")"
  on "$cpu" "$HEDDLE" train run.toml --set train.steps=2 --set run.directory="$cpu" > "$cpu.log" ||
    fail "training on a $cpu: $(cat "$cpu.log" "$cpu.warnings")"
  "$HEDDLE" inspect "$cpu" > "$listing" || fail "inspect"
  grep -q "^computed with: $level " "$listing" || fail "the checkpoint of a $cpu: $(cat "$listing")"
}
on_processor Nehalem x86-64-v2 &
on_processor Haswell x86-64-v3 || exit 1
wait $! || exit 1
