#!/usr/bin/env bash
# A slow disk, reads and writes of which fail now and then: no step is lost, and the losses are the same.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1
prepare_data 900 40 20 120
configure model.d_model=16 model.d_ff=16 model.max_length=128 train.steps=20 train.batch_tokens=512 train.micro_batch_tokens=256 \
  train.validate_every=10 train.validate_bleu=false train.log_every=1 optimizer.warmup_steps=2 checkpoint.every_steps=5 checkpoint.keep=9
# on_disk "MS EVERY READS WRITES" DIRECTORY CODE RUN [OPTION...]: trains on two ranks while the files below that directory are so.
on_disk() {
  local disk=$1 directory=$2 code=$3 run=$4
  shift 4
  LD_PRELOAD=$HEDDLE_BUILD/tests/integration/libslow_files.so HEDDLE_SLOW_FILES="$work/$directory $disk" \
    train 2 "$code" --set "run.directory=$run" "$@"
}
same() {
  [ "$(sed 's/"tokens_per_second.*//' "plain/metrics.jsonl")" = "$(sed 's/"tokens_per_second.*//' "$1/metrics.jsonl")" ] ||
    fail "$1 has other losses"
  "$HEDDLE" checkpoint verify "$1" > listing || fail "a checkpoint of $1 does not verify"
  [ "$(ls -d "$1"/checkpoints/step-* | wc -l)" -eq 4 ] || fail "$1 lacks checkpoints"
}
train 2 0 --set run.directory=plain

on_disk '50 10 0 0' . 0 slow
grep -q 'slow_files: [0-9]* calls, [1-9][0-9]* slow, 0 failed' log || fail "nothing was slow"
same slow

# Each fifth read of the datasets fails once.
on_disk '0 0 5 0' data 0 reads
grep -q 'warning: \(rank 1 on .*: \)*data/train.h5: [0-9]* reads\? so far failed (Input/output error) and succeeded when tried again' log ||
  fail "a read that was tried again is not warned about"
same reads
on_disk '0 0 1 0' data 65 unreadable
grep -q 'data/train.h5: .*Input/output error' log || fail "a file that cannot be read is not named"

# Writes of checkpoints fail: each save is made again, with checkpoint.async by its thread.
mkdir memory
for options in "" "--set checkpoint.async=true --set checkpoint.memory_directory=$work/memory"; do
  rm -rf writes
  # shellcheck disable=SC2086
  on_disk '0 0 0 23' writes/checkpoints 0 writes $options
  grep -q 'warning: checkpoint of step [0-9]* was not written: .*Input/output error; it is tried again' log ||
    fail "a save that was made again is not warned about"
  same writes
done
