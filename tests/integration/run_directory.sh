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
  waited 75 "$victim"
  grep -Eq "^heddle: SIG$signal in step [0-9,]+: .* of step [0-9,]+ in alone_$signal/checkpoints; the next start" log ||
    fail "SIG$signal is not answered at once"
  grep -q "^stopped by SIG$signal after step" log || fail "SIG$signal: no orderly end"
done
"$HEDDLE_MPIRUN" -np 2 "${train[@]}" --set run.directory=mpirun --set train.steps=100000 --set checkpoint.every_steps=0 \
  --set train.validate_every=0 > log 2>&1 &
victim=$!
wait_for_step mpirun 10
kill -TERM "$victim"
wait "$victim" && ! by_hydra && fail "SIGTERM to mpirun ended with 0" || code=$?
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
waited 75 "$victim"
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

# Without locks the second one waits to see whether the first, which has a lease, is alive. It does not hang.
without_locks=(env LD_PRELOAD="$HEDDLE_BUILD/tests/integration/libno_locks.so:${LD_PRELOAD:-}" "${train[@]}")
"${without_locks[@]}" --set run.directory=leased --set train.steps=100000 > first.log 2>&1 &
victim=$!
wait_for_step leased 2
ends 78 "${without_locks[@]}" --set run.directory=leased --set train.hang_seconds=2
grep -q "leased is on a file system without locks: waiting to see" log && grep -q "another process is training in leased: process $victim on" log ||
  fail "the process with the lease is not named"
kill -USR1 "$victim"
wait "$victim" || true

# A copy that followed the link `best` is a directory: it is kept beside, and the next best is marked.
ends 0 "${train[@]}" --set run.directory=original --set train.steps=20
[ -L original/checkpoints/best ] || fail "no best checkpoint"
cp -rL original copied
ends 0 "${train[@]}" --set run.directory=copied --set train.steps=40
[ -L copied/checkpoints/best ] && [ -d copied/checkpoints/best-copied-1 ] || fail "a copied best was not replaced"

# With another validation set the best loss, its mark and early stopping start again.
sed 's/.*/zwölf xylophone/' text/valid.de > odd.de
ends 0 "$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source text/valid.en --valid-target odd.de \
  --vocab-model data/vocab.model --out odd
marked=$(readlink original/checkpoints/best)
ends 0 "${train[@]}" --set run.directory=original --set train.steps=20 --set data.valid=odd/valid.h5
[ "$(readlink original/checkpoints/best)" = "$marked" ] || fail "a start without a step changed the best checkpoint"
ends 0 "${train[@]}" --set run.directory=original --set train.steps=23 --set data.valid=odd/valid.h5 \
  --set train.validate_every=1 --set train.early_stopping=1
grep -q "note: odd/valid.h5 is another validation set than before, or has another tag or other masks: the best validation loss so far, [0-9.]* at step 20" log ||
  fail "another validation set is not named"
grep -q "validation set" original/log.txt || fail "another validation set is not in the log"
best=$(readlink original/checkpoints/best)
[ "$((10#${best#step-}))" -gt 20 ] || fail "the best checkpoint is $best, from before the other validation set"
ends 0 "${train[@]}" --set run.directory=original --set train.steps=25 --set data.valid=odd/valid.h5
! grep -q "another validation set" log || fail "the same validation set is another one"

# A run that resumes may change keys: without a word if results stay the same, as another run otherwise, and not those that
# the parameters need.
ends 0 "${train[@]}" --set run.directory=original --set train.steps=26 --set model.recompute=layer \
  --set model.decoder.layer.1.recompute=none --set train.micro_batch_tokens=128
! grep -q "changed since the checkpoint: .*\(recompute\|micro_batch_tokens\)" log || fail "a free key is named"
! grep -q "is another run" log || fail "a longer run with inverse_sqrt is another run"
ends 0 "${train[@]}" --set run.directory=original --set train.steps=27 --set model.dropout=0.2
grep -q "changed since the checkpoint: model.dropout = 0.2, before 0.1" log || fail "the change is not named"
grep -q "note: from step 27 on this is another run" log || fail "another run is not named"
ends 78 "${train[@]}" --set run.directory=original --set train.steps=28 --set model.dropout=0.3 \
  --set model.activation=gelu --set train.seed=7
grep -q "step-00000027 is of another run: model.activation = \"relu\" there, \"gelu\" here; train.seed = 1 there, 7 here; a" log ||
  fail "not only what the run needs is refused"

# A divergence right after a resume: the good checkpoints from before it stay, also when the run starts again.
diverge=("${train[@]}" --set run.directory=diverged --set checkpoint.keep=2 --set train.validate_every=0)
ends 0 "${diverge[@]}" --set train.steps=40
for steps in 60 80; do
  ends 0 "${diverge[@]}" --set train.steps=$steps --set optimizer.learning_rate=3
  [ -e "$(state diverged 40)" ] || fail "the last good checkpoint was pruned before step $steps"
done

# A validation set without a usable pair is refused before anything is trained.
for language in en de; do head -n 15 text/train.$language | tr '\n' ' ' > long.$language; done
ends 0 "$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source long.en --valid-target long.de \
  --vocab-size 150 --out long
ends 65 "${train[@]}" --set run.directory=useless --set data.train=long/train.h5 --set data.valid=long/valid.h5
grep -q "long/valid.h5: every sample is longer than model.max_length = 64" log ||
  fail "a validation set of no use is not named"
[ ! -e useless ] || fail "a refused run left its directory"
echo "run_directory: all as promised"
