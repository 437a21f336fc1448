#!/usr/bin/env bash
# Training by several data ranks: interruption, crash, damage, and runs that are refused.
source "$(dirname "${BASH_SOURCE[0]}")/common"
prepare_data 4000 100 20 150
configure model.dropout=0.1 model.attention_dropout=0.1 model.activation_dropout=0.1 model.max_length=128 train.steps=30 \
  train.batch_tokens=1024 train.micro_batch_tokens=128 train.validate_every=15 train.validate_bleu=false train.log_every=1 \
  optimizer.learning_rate=0.003 optimizer.warmup_steps=20 checkpoint.every_steps=10
last_step=30
same() { same_parameters "$@"; }
differ() { ! h5diff -q "$(state "$1")"/tensors-*.h5 "$(state "$2")"/tensors-*.h5 /parameters > /dev/null || fail "$1 and $2 are equal"; }

# Without MPI, and with one rank: the same run. (An h5diff that cannot distinguish two runs would prove nothing.)
train 0 0 --set run.directory=alone
train 1 0 --set run.directory=one
same alone one
train 0 0 --set run.directory=other --set train.seed=2
differ alone other
grep -q '"valid_loss"' alone/metrics.jsonl || fail "no validation in metrics.jsonl"
[ "$(wc -l < alone/metrics.jsonl)" -eq 30 ] || fail "metrics.jsonl has not one line a step"

# Deterministic mode: bitwise the same on any number of data ranks.
for ranks in 1 3 4; do
  train "$ranks" 0 --set train.deterministic=true --set run.directory="deterministic$ranks"
  same deterministic1 "deterministic$ranks"
done
# In normal mode the same layout gives the same run.
train 2 0 --set run.directory=two
train 2 0 --set run.directory=two_again
same two two_again

# Killed by SIGKILL, resumed, and killed again; stopped by SIGUSR1 and resumed: bitwise the undisturbed run.
for at in 5 15; do
  setsid "$HEDDLE" train run.toml --set run.directory=killed > log 2>&1 &
  victim=$!
  wait_for_step killed "$at"
  kill -KILL "$victim"
  wait "$victim" 2> /dev/null || true
done
train 0 0 --set run.directory=killed
grep -q "resuming after step" log || fail "the killed run did not resume"
same alone killed
diff <(without_times alone) <(without_times killed) > log ||
  fail "metrics.jsonl of the killed run differs"

"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set run.directory=stopped > log 2>&1 &
victim=$!
wait_for_step stopped 8
kill -USR1 "$victim"
if by_hydra; then
  wait "$victim" || true
  grep -q "^stopped by SIGUSR1" log || fail "a signal to the launcher did not stop the run"
else
  waited 75 "$victim"
fi
train 2 0 --set run.directory=stopped
same two stopped

# A damaged checkpoint is rejected by name and the one before it is used; if none is left, nothing is trained.
cp -r alone damaged
rm -r "$(state damaged 30)"
printf 'x' | dd of="$(echo "$(state damaged 20)"/tensors-*.h5)" bs=1 seek=5000 conv=notrunc 2> /dev/null
train 0 0 --set run.directory=damaged
grep -q "step-00000020" log || fail "the damaged checkpoint was not named"
grep -q "resuming after step 15" log || fail "the checkpoint before the damaged one was not taken"
for file in damaged/checkpoints/step-*/*.h5; do printf 'x' | dd of="$file" bs=1 seek=5000 conv=notrunc 2> /dev/null; done
train 0 65 --set run.directory=damaged
train 2 65 --set run.directory=damaged
[ "$(grep -c '^heddle: .*none\|^heddle: .*verif' log)" -ge 1 ] || fail "the reason was not reported"

# Going back to an earlier step: newer checkpoints are moved aside, and the run ends as if it had never left.
cp -r alone back
train 0 65 --set run.directory=back --resume-from 17
train 0 0 --set run.directory=back --resume-from 20
grep -q 'moved aside to rejected-step-00000030: the run goes back to step 20' log || fail "--resume-from moved nothing aside"
grep -q "resuming after step 20" log || fail "--resume-from 20 began elsewhere"
same alone back

# Parameters that overflowed are not saved: the good checkpoints stay, and the message offers the way back.
cp -r two overflown
train 2 71 --set run.directory=overflown --set optimizer.learning_rate=1e39 --set train.steps=31 --set train.validate_every=0
grep -q 'holds values that are not finite, so this state is not kept.*--resume-from STEP' log || fail "an overflow was kept"
train 2 0 --set run.directory=overflown
grep -q "resuming after step 30" log || fail "the checkpoint before the overflow was not taken"

# A run may continue with other groups of parameters, and reports that.
cp -r alone grouped
train 0 0 --set run.directory=grouped --set train.steps=31 --set optimizer.group.still.frozen=true \
  --set 'optimizer.group.still.parameters=["encoder.layers.*"]'
grep -q '^changed since the checkpoint: optimizer.group.still.frozen = true, before (not set)' log ||
  fail "another group was not reported"
grep -Eq '^[0-9,]+ parameters \([0-9,]+ of them frozen\), training on' log || fail "frozen parameters are not counted"

# --fresh starts beside the old run and does not change it.
train 0 0 --fresh --set run.directory=alone --set train.steps=5
[ -e alone-2/metrics.jsonl ] || fail "--fresh made no new directory"

train 0 0 --fresh --set run.directory=alone/ --set train.steps=5
[ -e alone-3/metrics.jsonl ] || fail "--fresh with a trailing slash made no directory beside the old one"

# The time in a checkpoint is the time that was spent, whether or not a validation came before.
began=$(date +%s%N)
train 0 0 --set run.directory=timed --set train.validate_every=0 --set data.valid=nowhere.h5
spent=$(h5dump -a /training/seconds "$(state timed)"/state.h5 | awk '/\(0\)/ {print $2}')
awk -v spent="$spent" -v wall="$(($(date +%s%N) - began))" 'BEGIN { exit !(spent > 0 && spent < wall / 1e9) }' ||
  fail "the checkpoint has $spent s, more than the run took"

# bfloat16: resumed bitwise, the same on any number of data ranks, and near float32 in its losses.
narrow="--set train.precision=bfloat16 --set train.deterministic=true"
train 2 0 --set run.directory=narrow $narrow
train 0 0 --set run.directory=narrow_resumed $narrow --set train.steps=20
train 2 0 --set run.directory=narrow_resumed $narrow
same narrow narrow_resumed
differ narrow deterministic1
valid_loss() { sed -n 's/.*"step":30,.*"valid_loss":\([0-9.E-]*\).*/\1/p' "$1/metrics.jsonl"; }
awk -v narrow="$(valid_loss narrow)" -v wide="$(valid_loss deterministic1)" \
  'BEGIN { exit !(wide > 0 && narrow < 1.01 * wide && narrow > 0.99 * wide) }' ||
  fail "validation loss $(valid_loss narrow) in bfloat16, $(valid_loss deterministic1) in float32"

# Early stopping is final: the same command again finds nothing to do.
stop_early() { train 0 0 --set run.directory=early --set train.early_stopping=1 --set train.validate_every=5 \
  --set optimizer.learning_rate=0.0 --set train.steps=1000; }
stop_early
stop_early
[ "$(find early/checkpoints -name 'step-*' | sort | tail -n 1)" = early/checkpoints/step-00000010 ] ||
  fail "a run that had stopped early continued"

# Two processes never train in one directory.
"$HEDDLE" train run.toml --set run.directory=shared --set train.steps=100000 > first.log 2>&1 &
victim=$!
wait_for_step shared 2
train 0 78 --set run.directory=shared
kill -USR1 "$victim"
wait "$victim" || true

# The lock is taken before anything is read: checkpoints that another process may be writing are not verified.
exec 9> damaged/.lock
flock -n 9
train 0 78 --set run.directory=damaged
grep -q "another process is training in damaged" log || fail "a locked directory was read"
train 2 78 --set run.directory=damaged
exec 9>&-
train 0 65 --set run.directory=damaged

# A torn metrics.jsonl, left by a crash, does not stop a resume.
printf '3\n{"step": 7' >> timed/metrics.jsonl
train 0 0 --set run.directory=timed --set train.steps=40
[ "$(wc -l < timed/metrics.jsonl)" -eq 40 ] || fail "metrics.jsonl was not fixed"

# The mesh and the communication in lines; report.sh tests the tables. A decoder-only model is trained on the targets.
train 2 0 --set run.directory=reported --set parallel.tensor=2 --set train.steps=3 --set 'model.stacks=["decoder"]' \
  --set train.validate_every=3
grep -q '"valid_loss"' reported/metrics.jsonl || fail "a decoder without encoder was not validated"
grep -q "^2 ranks on one host: .*tensor 2" log || fail "no mesh"
[ "$(grep -c '"communication":{.*"tensor.all_reduce":{"operations":[1-9]' reported/metrics.jsonl)" -eq 3 ] ||
  fail "no communication in metrics.jsonl"
train 0 0 --set run.directory=single --set train.steps=3
grep -q "^one rank on " log || fail "one rank does not report its host"
! grep -q '"communication"' single/metrics.jsonl || fail "one rank reports communication"

# Refused configurations leave no files behind.
train 0 78 --set run.directory=refused --set 'model.stacks=["encoder"]'
grep -q 'model.stacks = \["encoder"\]' log || fail "a model that has nothing to learn is not refused by name"
train 0 78 --set run.directory=refused --set kernels.gemm=nonsense
[ ! -e refused ] || fail "a refused run left its directory behind"
train 2 78 --set run.directory=refused --set parallel.data=3
train 0 78 --set run.directory=alone --set model.d_ff=64
train 0 78 --set run.directory=refused --set 'optimizer.group.slow.parameters=["encodr.*"]'
grep -q 'optimizer.group.slow.parameters has the pattern "encodr.\*"' log || fail "a pattern without parameters is not named"
train 0 78 --set run.directory=refused --set 'model.decoder.self_attention={mask="bidirectional"}'
grep -q 'model.decoder.self_attention.mask = "bidirectional": a decoder.s tokens would see those that they are to predict' log ||
  fail "a decoder that sees what it is to predict is not refused"
train 2 78 --set model.dropuot=0.1
grep -q "dropout" log || fail "no suggestion for a misspelt key"
[ "$(grep -c '^heddle:' log)" -eq 1 ] || fail "an error of all ranks was reported more than once"
train 0 65 --set data.train=text/train.en
train 0 71 --set run.directory=diverged --set optimizer.learning_rate=1e30 --set optimizer.warmup_steps=1

# Plans take two passes of each sample, also where the micro-batches of the data have odd numbers of rows.
for command in "train run.toml --dry-run" "plan run.toml --nodes 1 --ranks-per-node 2"; do
  "$HEDDLE" $command --set train.r_drop=1 --set model.dropout=0.1 > log 2>&1 || fail "$command with two passes"
done
train 0 0 --set run.directory=passes --set train.r_drop=1 --set model.dropout=0.1 --set train.steps=5

# The noise of gradients is in each line where two ranks have parts of the batch, and changes nothing.
train 2 0 --set run.directory=noise --set train.noise_scale=true --set train.log_every=10
grep -q '"gradient_noise_scale":[0-9]' noise/metrics.jsonl || fail "no noise scale"
same two noise

# A model is trained on for int8: its gradients are computed, and planned, without it.
"$HEDDLE" train run.toml --dry-run --set kernels.gemm=int8 > log 2>&1 || fail "a plan with int8"
train 2 0 --set run.directory=for-int8 --set kernels.gemm=int8 --set train.initialize_from=two --set train.steps=5 --set train.validate_at_start=true
awk 'match($0, /"valid_loss":[0-9.]*/) { loss[++n] = substr($0, RSTART + 13, RLENGTH - 13) + 0 } END { exit !(n == 2 && loss[2] < loss[1]) }' \
  for-int8/metrics.jsonl || fail "training for int8 did not lower the loss"

# A teacher of its own size is planned, trained from on every layout of two ranks, and refused where its tokens are others.
teacher='train.teacher=["passes"]'
for command in "train run.toml --dry-run" "plan run.toml --nodes 1 --ranks-per-node 2"; do
  "$HEDDLE" $command --set "$teacher" > log 2>&1 || fail "$command with a teacher"
done
for layout in data tensor pipeline context; do
  train 2 0 --set run.directory=taught-$layout --set "$teacher" --set train.steps=5 --set parallel.$layout=2 --set model.d_ff=32
  losses+=$(tail -n 1 taught-$layout/metrics.jsonl | sed 's/.*"train_loss":\([0-9.]*\).*/\1 /')
done
awk '{ for (i = 2; i <= NF; ++i) if ($i - $1 > 1e-4 || $1 - $i > 1e-4) exit 1; exit NF != 4 }' <<< "$losses" ||
  fail "with a teacher the losses are $losses"
train 0 65 --set run.directory=refused --set 'train.teacher=["nobody"]'
# A resumed run keeps the checkpoint that taught it, where another one is the best meanwhile, and never with its own.
train 0 0 --set run.directory=taught --set "$teacher" --set train.steps=10
grep -q 'teacher: .*/passes/checkpoints/step-00000005 (step 5)' log || fail "the teacher is not named"
train 0 0 --set run.directory=passes --set train.r_drop=1 --set model.dropout=0.1 --set train.steps=10
train 0 0 --set run.directory=taught --set "$teacher" --set train.steps=15
grep -q 'teacher: .*/passes/checkpoints/step-00000005 (step 5)' log || fail "a resumed run has another teacher"
train 0 78 --set run.directory=taught --set 'train.teacher=["taught"]' --set train.steps=20
grep -q 'train.teacher: taught is the run itself' log || fail "a run teaches itself"
"$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source text/valid.en --valid-target text/valid.de \
  --vocab-size 100 --out other > log 2>&1 || fail "prepare with another vocabulary"
train 0 65 --set run.directory=refused --set "$teacher" --set data.train=other/train.h5 --set data.valid=other/valid.h5
grep -q "train.teacher: .*passes/.* was trained with another vocabulary than this run's data have" log || fail "a teacher of other tokens"

code=0; "$HEDDLE" train run.toml --dry-run --set "$teacher" --set data.train=other/train.h5 --set data.valid=other/valid.h5 > log 2>&1 || code=$?
[ $code -eq 65 ] || fail "a dry run ends with $code where the start has a teacher of other tokens"

# A distillation refuses what it can before it translates, keeps what is done, and does not mix two.
distill() { "$HEDDLE" distill run.toml --source text/test.en --out distilled --beam 1 --set train.steps=2 "$@" > log 2>&1; }
code=0; distill --teacher nobody || code=$?
[ $code -eq 65 ] && [ ! -e distilled ] || fail "a distillation without a teacher ends with $code"
code=0; distill --teacher passes --set model.heads=5 || code=$?
[ $code -eq 78 ] && [ ! -e distilled ] || fail "a distillation of an impossible student ends with $code"
distill --teacher passes || fail "a distillation"
[ -e distilled/student/checkpoints ] || fail "the student trains in the directory of run.toml"
[ "$(wc -l < distilled/translations.txt)" -eq "$(wc -l < text/test.en)" ] || fail "a distillation lost lines"
"$HEDDLE" distill run.toml --source text/test.en --out "$PWD/distilled" --beam 1 --set train.steps=2 --teacher passes > log 2>&1 ||
  fail "a distillation that is done"
[ "$(grep -c '^\$ ' log)" -eq 1 ] || fail "a distillation that is done translates again"
cp text/test.en test.en && tac test.en > text/test.en
code=0; distill --teacher passes || code=$?
cp test.en text/test.en
[ $code -eq 64 ] || fail "a distillation continues with another source of as many bytes"
code=0; distill --teacher two || code=$?
[ $code -eq 64 ] && grep -q 'was made by other options, another teacher or another source' log || fail "two distillations are mixed"

# A range test proposes a rate, on one rank and on two, leaves a plot and no checkpoint, and overwrites nothing.
for ranks in 0 2; do
  command=("$HEDDLE"); [ $ranks = 0 ] || command=("$HEDDLE_MPIRUN" -np $ranks "$HEDDLE")
  "${command[@]}" find-rate run.toml --set optimizer.schedule=wsd --set optimizer.decay_steps=5 --steps 60 --out rates$ranks > log 2>&1 ||
    fail "find-rate on $ranks ranks"
  [ "$(grep -c '^proposed: optimizer.learning_rate = 0.0[0-9]*$' log)" -eq 1 ] || fail "find-rate on $ranks ranks proposes nothing"
  grep -q polyline rates$ranks/rates.svg && grep -q '"proposed"' rates$ranks/rates.json || fail "find-rate leaves no plot"
  [ ! -e rates$ranks/checkpoints ] || fail "find-rate leaves a checkpoint"
done
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" find-rate run.toml --to 1e30 --steps 90 --out steep > log 2>&1 || fail "find-rate to rates without a loss on 2 ranks"
grep -q 'the loss is no longer finite at the highest rates' log && grep -q '^proposed:' log || fail "find-rate ends where the loss does"
code=0; "$HEDDLE" find-rate run.toml --out rates0 > log 2>&1 || code=$?
[ $code -eq 64 ] && grep -q 'is there already' log || fail "find-rate overwrites a directory"
code=0; "$HEDDLE" find-rate run.toml --from 1 --to 0.1 --out falling > log 2>&1 || code=$?
[ $code -eq 64 ] && [ ! -e falling ] || fail "rates that fall are not refused"
echo "training: all as promised"
