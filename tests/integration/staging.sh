#!/usr/bin/env bash
# train --stage-data: the run is bitwise the same from copies, whether they are made, found, damaged or impossible.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1
prepare_data 900 40 20 120
configure model.d_model=16 model.d_ff=16 model.max_length=128 train.steps=6 train.batch_tokens=512 train.micro_batch_tokens=256 \
  train.validate_every=3 train.validate_bleu=false train.log_every=1 optimizer.warmup_steps=2
mkdir local
copies=local/heddle-datasets-$(id -u)
# The metrics and the tensors of an unstaged run on two ranks, and of the run in this directory, are the same.
same_as_plain() {
  [ "$(sed 's/"tokens_per_second.*//' plain/metrics.jsonl)" = "$(sed 's/"tokens_per_second.*//' "$1/metrics.jsonl")" ] ||
    fail "$1 has other losses"
  cmp plain/checkpoints/step-00000006/tensors-00000.h5 "$1/checkpoints/step-00000006/tensors-00000.h5" || fail "$1 has other tensors"
}
# staged DIRECTORY PATTERN [DISK]: trains in it with copies on a disk, which says the pattern.
staged() {
  local directory=$1 pattern=$2 disk=${3:-local}
  train 2 0 --set "run.directory=$directory" --stage-data "$disk"
  grep -q -- "$pattern" log || fail "$directory: '$pattern' is not said"
  same_as_plain "$directory"
}
train 2 0 --set run.directory=plain
staged first 'datasets staged in local of 1 host: 2 files copied, [0-9.]* MB in .*GB/s), 0 files there already'
! grep -q warning log || fail "a warning without a reason"
! grep -rq "$copies" first/config.toml first/checkpoints || fail "the run names its copies"
staged second ': 2 files there already'
train 2 0 --set run.directory=second --set train.steps=7
grep -q 'resuming after step 6' log || fail "a run does not resume without copies"

# A flipped bit of a block, which opening does not read.
copy=$(echo "$copies"/train-*.h5)
python3 - "$copy" << 'PYTHON'
import re, sys
data = bytearray(open(sys.argv[1], "rb").read())
run = max(re.finditer(rb"(?:[\x04-\x77]\x00){100,}", data), key=lambda found: len(found.group()))  # ids of a vocabulary of 120
data[(run.start() + run.end()) // 2] ^= 4
open(sys.argv[1], "r+b").write(data)
PYTHON
ends 65 "$HEDDLE" inspect "$copy" --verify
staged flipped "warning: $copy: the copy is damaged, or cannot be read: it is removed, and data/train.h5 is read in its place"
staged healed ': 1 file copied, .* 1 file there already'
cmp data/train.h5 "$copy" || fail "the new copy is not the file"

# One whose size or digests are others is found when it is opened; what a dead process left goes.
truncate -s -1 "$copy"
: > "$copies/.train.h5.01234567.partial"
staged shortened "$copy: has [0-9]* bytes, and data/train.h5 has [0-9]*: this copy is damaged, and is made again"
[ ! -e "$copies/.train.h5.01234567.partial" ] || fail "a partial copy of a dead process stays"
cp data/valid.h5 "$copy"
truncate -s "$(stat -c %s data/train.h5)" "$copy"
staged exchanged "is another dataset than data/train.h5: this copy is damaged, and is made again"

# Two starts at once: one copies, the other one waits and finds the copies.
rm "$copies"/*.h5
for run in one other; do
  "$HEDDLE" train run.toml --set "run.directory=$run" --stage-data local > "$run.log" 2>&1 &
done
wait -n && wait -n || { cat one.log other.log; fail "two starts at once"; }
cat one.log other.log > log
grep -q ': 2 files copied, .* 0 files there already' log && grep -q ': 2 files there already' log ||
  fail "of two starts at once not one copies"
[ -z "$(find "$copies" -name '*.partial')" ] || fail "two starts left $(find "$copies" -name '*.partial')"

# Files that cannot be copied are read in place.
staged unmade "warning: nowhere/heddle-datasets-.*: could not make the directory: No such file or directory: datasets are not copied there" \
  nowhere
paste text/valid.en text/valid.de > valid.tsv
train 0 0 --set run.directory=text --set data.valid=valid.tsv --stage-data local
grep -q 'warning: valid.tsv is text, which --stage-data does not copy; it is read in place' log || fail "text is not named"
if [ "$(id -u)" -eq 0 ]; then
  mkdir -p taken/"$(basename "$copies")"
  chown 65534 taken/*
  staged taken 'is not a directory of this user: datasets are not copied there' taken
  mkdir small
  unshare -m true 2> /dev/null || { echo "NOT RUN: a file system without room, because this system has no mount namespaces"; exit 77; }
  HEDDLE_RUN=("$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set run.directory=full --stage-data small)
  unshare -m bash -c 'mount -t tmpfs -o size=1m small small && exec "$@"' _ "${HEDDLE_RUN[@]}" > log 2>&1 || fail "a full file system"
  grep -q 'small/.*: 0.* MB and 67.1 MB to spare are needed for a copy, 1.0 MB are free: data/train.h5 is read in place' log ||
    fail "the missing room is not named"
  same_as_plain full
else
  echo "NOT RUN: a directory of another user and a file system without room, which need root"
fi

# A supervised run has the option, too.
"$HEDDLE" run run.toml --set run.directory=supervised --stage-data local -- "$HEDDLE_MPIRUN" -np 2 > log 2>&1 || fail "heddle run"
grep -q ': 2 files there already' log || fail "heddle run does not pass the option on"
same_as_plain supervised
