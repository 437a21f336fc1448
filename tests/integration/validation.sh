#!/usr/bin/env bash
# Validation: several sets, metrics of translations, and the metric that decides which checkpoint is the best.
source "$HEDDLE_SOURCE/tests/integration/small_run"

"$HEDDLE" demo-data --out other --train 300 --valid 30 --test 20 > log 2>&1 || fail "demo-data"
"$HEDDLE" prepare --source other/valid.en --target other/valid.de --valid-source other/test.en --valid-target other/test.de \
  --vocab-model data/vocab.model --out other.data > log 2>&1 || fail "prepare with the vocabulary of the run"
sets=(--set data.valid_sets.small=other.data/valid.h5 --set data.valid_sets.large=other.data/train.h5)
metrics=(--set 'train.validate_metrics=["chrf","ter"]' --set train.best_metric=chrf)
train=(train run.toml --set train.validate_every=10 --set train.steps=30 --set checkpoint.keep=10)
field() { sed -n "s/.*\"step\":$3,.*\"$2\":\([-0-9.e]*\)[,}].*/\1/p" "$1/metrics.jsonl"; }

# A further set gives the values that it gives as data.valid, under keys with its name, and the training is the same.
ends 0 "$HEDDLE" "${train[@]}" "${metrics[@]}" --set run.directory=alone
ends 0 "$HEDDLE" "${train[@]}" "${metrics[@]}" --set run.directory=other.alone --set data.valid=other.data/valid.h5
ends 0 "$HEDDLE" "${train[@]}" "${metrics[@]}" "${sets[@]}" --set run.directory=several
grep -q '^best: chrF2 [0-9.]* at step [123]0; .*best TER [0-9.]* at step [123]0$' log && grep -q '^best small loss [0-9.]* at step [123]0; ' log || fail "the best values are not named"
h5diff alone/checkpoints/step-00000030/tensors-00000.h5 several/checkpoints/step-00000030/tensors-00000.h5 ||
  fail "another validation set changes the training"
for key in valid_loss valid_perplexity valid_chrf valid_ter; do
  for step in 10 20 30; do
    [ -n "$(field alone $key $step)" ] && [ "$(field alone $key $step)" = "$(field several $key $step)" ] || fail "$key of step $step"
    [ "$(field other.alone $key $step)" = "$(field several "$key\/small" $step)" ] || fail "$key of the second set in step $step"
    [ -n "$(field several "$key\/large" $step)" ] || fail "$key of the third set in step $step"
  done
done
! grep -q valid_bleu several/metrics.jsonl || fail "BLEU is measured although other metrics are listed"
"$HEDDLE" inspect several > log 2>&1 || fail "inspect"
grep -q '^best chrF2: [0-9.]* at step [123]0; ' log || fail "inspect does not show the best value"
"$HEDDLE" inspect several --html page.html > log 2>&1 || fail "inspect --html"
grep -q '"valid_chrf/small"' page.html || fail "the page has no curve of the second set"
report=$(tr -d ' \n' < several/report.json)
[[ $report == *'"best_metric":"chrf"'* && $report == *'"valid_ter":{"higher_is_better":false,"best":'* && $report == *'"valid_loss/large":{'* ]] ||
  fail "the report does not say what was measured"

# A tag is before a set's sources as if their text had it. A validation before the first step changes nothing, and has no
# checkpoint that could be the best.
sed 's/^/seven /' text/valid.en > tagged.en
"$HEDDLE" prepare --valid-source tagged.en --valid-target text/valid.de --vocab-model data/vocab.model --out tagged.data \
  > log 2>&1 || fail "prepare of a text with tags"
ends 0 "$HEDDLE" "${train[@]}" "${metrics[@]}" --set run.directory=tagged --set data.valid_tag=seven \
  --set data.valid_sets.same=tagged.data/valid.h5 --set train.validate_at_start=true
grep -q 'step 0: validation loss [0-9.]*, ' log || fail "no validation at the start"
for step in 0 10 30; do
  for key in valid_loss valid_chrf; do
    [ -n "$(field tagged $key $step)" ] && [ "$(field tagged $key $step)" = "$(field tagged "$key\/same" $step)" ] ||
      fail "$key of step $step with a tag"
  done
done
[ "$(field tagged valid_loss 10)" != "$(field alone valid_loss 10)" ] || fail "the tag is not read"
h5diff alone/checkpoints/step-00000030/tensors-00000.h5 tagged/checkpoints/step-00000030/tensors-00000.h5 ||
  fail "a validation before the first step changes the training"
[ ! -e tagged/checkpoints/step-00000000 ] || fail "the start has a checkpoint"

# The metric chooses the best checkpoint, also of `average --best`.
best=$(readlink alone/checkpoints/best)
highest=$(for step in 10 20 30; do echo "$(field alone valid_chrf $step) $step"; done | sort -g | tail -n 1)
[ "$best" = "step-000000${highest#* }" ] || fail "the best checkpoint is $best, and chrF is highest in step ${highest#* }"
ends 0 "$HEDDLE" average alone --best 1 --out mean
grep -q "^1.* x .*/$best" log || fail "average takes another checkpoint than the best"
lowest=$(for step in 10 20 30; do echo "$(field alone valid_loss $step) $step"; done | sort -g | head -n 1)
ends 0 "$HEDDLE" average alone --best 1 --by loss --out mean.loss
grep -q "^1.* x .*/step-000000${lowest#* }" log || fail "average --by loss takes another checkpoint"
ends 0 "$HEDDLE" average alone --best 1 --by perplexity --out mean.perplexity
grep -q "^1.* x .*/step-000000${lowest#* }" log || fail "average --by perplexity takes another checkpoint"
ends 64 "$HEDDLE" average alone --best 2 --by newest --out mean.newest
"$HEDDLE" translate --checkpoint alone --average 1 --average-by loss < text/test.en > by.loss 2> log || fail "--average-by loss"
"$HEDDLE" translate --checkpoint mean.loss < text/test.en > by.average 2> log || fail "the mean of one"
cmp by.loss by.average || fail "--average-by takes another checkpoint than average --by"
"$HEDDLE" checkpoint list alone > log 2>&1 || fail "checkpoint list"
grep -q "^$best .* validation [0-9.]*  chrF2 [0-9.]*  (best)$" log || fail "checkpoint list does not show the metric that decides"

# Early stopping follows the metric: translations of one word have no BLEU, while the loss falls. With another metric the
# same run starts to count again.
train+=(--set train.validate_bleu=true --set train.early_stopping=1 --set run.directory=stops)
ends 0 "$HEDDLE" "${train[@]}" --set train.best_metric=bleu
grep -q 'early stopping: no better BLEU than 0.00 (step 10) in 1 validation' log || fail "no early stopping by BLEU"
[ "$(readlink stops/checkpoints/best)" = step-00000010 ] || fail "the best checkpoint by BLEU"
ends 0 "$HEDDLE" "${train[@]}" --set train.best_metric=bleu
grep -q 'already stopped early, at step 20' log || fail "a resumed run does not count as before"
ends 0 "$HEDDLE" "${train[@]}"
grep -q 'train.best_metric = "loss" decides now: the best value whose checkpoint is there is validation loss [0-9.]* at step 20' log || fail "no note about the metric"
[ "$(readlink stops/checkpoints/best)" = step-00000030 ] || fail "the best checkpoint by the loss"

# A metric without a value so far leaves the best checkpoint in place until it has one.
train=(train run.toml --set train.validate_every=10 --set checkpoint.keep=2 --set run.directory=changed)
ends 0 "$HEDDLE" "${train[@]}" --set train.steps=10 --set train.validate_bleu=false
ends 0 "$HEDDLE" "${train[@]}" --set train.steps=20 "${metrics[@]}"
grep -q 'note: train.best_metric = "chrf" decides now: the best validation loss so far, [0-9.]* at step 10, does not count' log || fail "no note about a metric without values"
[ "$(readlink changed/checkpoints/best)" = step-00000020 ] || fail "the best checkpoint by a new metric"

# A stop signal does not wait for a validation: the checkpoint comes first, and the start that resumes validates.
train=(train run.toml --set train.validate_every=1 --set train.steps=4 --set data.valid=data/train.h5 --set checkpoint.keep=10)
ends 0 "$HEDDLE" "${train[@]}" --set run.directory=undisturbed
for try in 1 2 3 4 5; do
  rm -rf stopped
  "$HEDDLE" "${train[@]}" --set run.directory=stopped > log 2>&1 &
  wait_for_step stopped 1
  sleep 0.1$try
  kill -TERM $!
  code=0
  wait $! || code=$?
  [ "$code" -eq 75 ] || fail "a run that was stopped ended with $code"
  ! grep -q "is left to the start that resumes" log || break
done
grep -q "is left to the start that resumes" log || fail "no signal came in a validation"
newest=$(ls stopped/checkpoints | tail -n 1)
"$HEDDLE" inspect stopped --which last > log 2>&1 && grep -q "^validation: a stop signal came first" log || fail "inspect"
ends 0 "$HEDDLE" "${train[@]}" --set run.directory=stopped
grep -q "^step $((10#${newest#step-})): validation loss" log || fail "the start that resumed did not validate first"
for step in 1 2 3 4; do
  [ "$(field stopped valid_loss $step)" = "$(field undisturbed valid_loss $step)" ] || fail "the validation of step $step"
done
h5diff {undisturbed,stopped}/checkpoints/step-00000004/tensors-00000.h5 || fail "a validation changed the training"
[ "$(readlink stopped/checkpoints/best)" = "$(readlink undisturbed/checkpoints/best)" ] || fail "another checkpoint is the best"

ends 78 "$HEDDLE" "${train[@]}" --set run.directory=refused --set train.best_metric=chrf
grep -q 'train.best_metric = "chrf" is not measured in validation' log || fail "a metric that is not measured decides"
[ ! -e refused ] || fail "a refused run left a directory"
ends 65 "$HEDDLE" "${train[@]}" --set run.directory=refused --set data.valid_sets.absent=absent.h5
echo "validation: all as promised"
