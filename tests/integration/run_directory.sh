#!/usr/bin/env bash
# Faults around a run's directory and its process: signals, a size limit for files, a directory that is removed, a copied
# `best`, a second run, a validation set of no use.
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
train=("$HEDDLE" train run.toml)

# SIGTERM and SIGINT: said at once, a checkpoint, 75; to mpirun, too, which leaves two seconds.
for signal in TERM INT; do
  "${train[@]}" --set run.directory=alone_$signal --set train.steps=100000 --set checkpoint.every_steps=7 > log 2>&1 &
  victim=$!
  wait_for_step alone_$signal 10
  kill -$signal "$victim"
  code=0
  wait "$victim" || code=$?
  [ "$code" -eq 75 ] || fail "SIG$signal: exit code $code instead of 75"
  grep -Eq "^heddle: SIG$signal in step [0-9,]+: .* of step [0-9,]+ in alone_$signal/checkpoints; the next start" log ||
    fail "SIG$signal is not answered at once"
  grep -q "^stopped by SIG$signal after step" log || fail "SIG$signal: no orderly end"
done
"$HEDDLE_MPIRUN" -np 2 "${train[@]}" --set run.directory=mpirun --set train.steps=100000 --set checkpoint.every_steps=0 \
  --set train.validate_every=0 > log 2>&1 &
victim=$!
wait_for_step mpirun 10
kill -TERM "$victim"
wait "$victim" && fail "SIGTERM to mpirun ended with 0" || code=$?
grep -Eq "^heddle: SIGTERM in step [0-9,]+: .*until then there is none" log || fail "SIGTERM to mpirun is not answered"
saved=$(basename "$(echo mpirun/checkpoints/step-*)")
[ "$saved" != 'step-*' ] || fail "SIGTERM to mpirun: no checkpoint of a model that is saved in a moment"
ends 0 "$HEDDLE_MPIRUN" -np 2 "${train[@]}" --set run.directory=mpirun --set train.steps=$((10#${saved#step-} + 2)) \
  --set train.validate_every=0
grep -q "^resuming after step $(grouped $((10#${saved#step-}))) in mpirun" log || fail "a run that mpirun ended did not resume at $saved"

# Beyond the limit of a file's size: named, code 1, and nothing half-written stays.
code=0
(ulimit -f 100 && exec "${train[@]}" --set run.directory=limited) > log 2>&1 || code=$?
[ "$code" -eq 1 ] || fail "a file beyond the limit: exit code $code instead of 1"
grep -q "^heddle: checkpoint of step .* was not written: .*File too large" log || fail "a file beyond the limit is not named"
[ -z "$(find limited -name '.tmp*')" ] || fail "a file beyond the limit left $(find limited -name '.tmp*')"

# The run's directory is removed while it trains: said once, made again with a checkpoint and a lock.
"${train[@]}" --set run.directory=removed --set train.steps=100000 --set checkpoint.every_steps=0 \
  --set train.validate_every=0 > log 2>&1 &
victim=$!
wait_for_step removed 5
mv removed elsewhere
wait_for_step removed 5
ends_log=$(mktemp -p .)
code=0
"${train[@]}" --set run.directory=removed > "$ends_log" 2>&1 || code=$?
[ "$code" -eq 78 ] || fail "the directory that was made again is not locked"
kill -USR1 "$victim"
code=0
wait "$victim" || code=$?
[ "$code" -eq 75 ] || fail "a run whose directory was removed ended with $code instead of 75"
[ "$(grep -c "^removed was removed or replaced while training" log)" -eq 1 ] || fail "it did not say so once"
ends 0 "$HEDDLE" checkpoint verify removed
[ -e removed/config.toml ] || fail "no config.toml in the directory that was made again"

# The second process in a directory is told which the first is.
"${train[@]}" --set run.directory=shared --set train.steps=100000 > first.log 2>&1 &
victim=$!
wait_for_step shared 2
ends 78 "${train[@]}" --set run.directory=shared
grep -Eq "another process is training in shared: process $victim on $(hostname) since [0-9-]+ [0-9:]+ UTC; wait for it" log ||
  fail "the first process is not named"
kill -USR1 "$victim"
wait "$victim" || true

# A copy that followed the link `best` is a directory: it is kept beside, and the next best is marked.
ends 0 "${train[@]}" --set run.directory=original --set train.steps=20
[ -L original/checkpoints/best ] || fail "no best checkpoint"
cp -rL original copied
ends 0 "${train[@]}" --set run.directory=copied --set train.steps=40
[ -L copied/checkpoints/best ] && [ -d copied/checkpoints/best-copied-1 ] || fail "a copied best was not replaced"

# A validation set without a usable pair is refused before anything is trained.
for language in en de; do head -n 15 text/train.$language | tr '\n' ' ' > long.$language; done
ends 0 "$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source long.en --valid-target long.de \
  --vocab-size 150 --out long
ends 65 "${train[@]}" --set run.directory=useless --set data.train=long/train.h5 --set data.valid=long/valid.h5
grep -q "long/valid.h5: every sample is longer than model.max_length = 64" log ||
  fail "a validation set of no use is not named"
[ ! -e useless ] || fail "a refused run left its directory"
echo "run_directory: all as promised"
