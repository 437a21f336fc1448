#!/usr/bin/env bash
# A run that is watched: programs as metrics of its translations, several metrics that decide, the loss of each corpus.
source "$HEDDLE_SOURCE/tests/integration/small_run"
field() { sed -n "s/.*\"step\":$3,.*\"$2\":\([-0-9.e]*\)[,}].*/\1/p" "$1/metrics.jsonl"; }
train=(train run.toml --set train.validate_every=10 --set train.steps=30 --set checkpoint.keep=10)

# Programs: one that scores, and counts its runs; others that hang, print text, cannot be executed, and are slow.
cat > score.sh << 'SH'
#!/bin/sh
echo run >> "$RUNS"
[ -z "$OMPI_COMM_WORLD_RANK$PMI_RANK" ] || exit 1
[ "$(wc -l < "$1")" = "$(wc -l < "$2")" ] && [ "$(wc -l < "$1")" = "$(wc -l < "$3")" ] || exit 1
[ "$(wc -l < "$RUNS")" -eq 2 ] && echo 9 || wc -l < "$RUNS"
SH
printf '#!/bin/sh\necho 1\n' > plain.sh
chmod +x score.sh
export RUNS=$PWD/runs
score=(--set train.validate_command.score=./score.sh)

# A metric that nothing waits for has its value under its step, also if later steps end before it; it is awaited at the end.
ends 0 "$HEDDLE" "${train[@]}" --set run.directory=undisturbed --set train.validate_bleu=true
ends 0 "$HEDDLE" "${train[@]}" --set run.directory=beside --set train.validate_bleu=true "${score[@]}" \
  --set 'train.validate_command.slow=sleep 1; echo 5; #'
[ "$(field beside valid_score 10),$(field beside valid_score 20),$(field beside valid_score 30)" = 1,9,3 ] || fail "the program's numbers"
[ "$(field beside valid_slow 30)" = 5 ] || fail "a program was not awaited"
grep -q 'waiting for [1-9] validation command' log || fail "the wait is not said"
grep -q 'best score 9.00 at step 20' log || fail "the best number is not named"
h5diff {undisturbed,beside}/checkpoints/step-00000030/tensors-00000.h5 || fail "a program changes the training"
[ ! -e beside/validation ] || fail "files are left"
ends 0 "$HEDDLE" "${train[@]}" --set run.directory=beside --set train.validate_bleu=true "${score[@]}" --set train.steps=31
[ "$(grep -c '"valid_score"' beside/metrics.jsonl)" = 4 ] || fail "a resumed run counts twice"
ends 0 "$HEDDLE" average beside --best 1 --by score --out mean
grep -q '^1.* x .*/step-00000020' log || fail "average --by a program's metric"

# Failures are told and end nothing.
ends 0 "$HEDDLE" "${train[@]}" --set run.directory=failing --set train.validate_every=30 --set train.validate_command_seconds=0.5 \
  --set 'train.validate_command.hangs=echo loading; sleep 1000; #' --set 'train.validate_command.text=echo good; #' \
  --set 'train.validate_command.forbidden=./plain.sh'
grep -q 'warning: step 30: the validation command hangs did not end in 0.5 s; its last lines:' log && grep -q '^  loading$' log ||
  fail "a program that hangs"
grep -q 'the validation command text printed something else than one line with a number' log || fail "a program that prints text"
grep -q 'the validation command forbidden ended with 126; its last lines:' log || fail "a program that cannot be executed"
! grep -q valid_hangs failing/metrics.jsonl || fail "a failed program has a value"
! pgrep -f 'sleep 100[0]' > /dev/null || fail "a program is left"

# Where it decides, the checkpoint waits for it, and it chooses the best one, on any number of ranks.
: > runs
ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" "${train[@]}" --set run.directory=decides "${score[@]}" --set train.best_metric=score \
  --set train.early_stopping=1
[ "$(readlink decides/checkpoints/best)" = step-00000020 ] || fail "the program's number does not decide"
grep -q 'early stopping: no better score than 9.00 (step 20) in 1 validation' log || fail "no early stopping by a program's number"

# A stop ends a program.
"$HEDDLE" "${train[@]}" --set run.directory=stopped --set train.steps=1000 --set 'train.validate_command.slow=sleep 1000; #' > log 2>&1 &
wait_for_step stopped 10
kill -TERM $!
code=0
wait $! || code=$?
[ "$code" -eq 75 ] && [ ! -e stopped/validation ] || fail "a stopped run with a program: $code"

# Several metrics stop a run where all, or any, have no better value.
several=("${train[@]}" --set train.validate_bleu=true --set 'train.best_metric=["loss","bleu"]' --set train.early_stopping=1)
ends 0 "$HEDDLE" "${several[@]}" --set run.directory=first
grep -q '^done: step 30' log || fail "the first metric does not decide alone"
ends 0 "$HEDDLE" "${several[@]}" --set run.directory=all --set train.early_stopping_on=all
grep -q '^done: step 30' log || fail "the loss falls, and all are to stop"
ends 0 "$HEDDLE" "${several[@]}" --set run.directory=any --set train.early_stopping_on=any
grep -q 'early stopping: no better BLEU than 0.00 (step 10) in 1 validation' log || fail "any metric stops the run"
ends 0 "$HEDDLE" "${several[@]}" --set run.directory=any --set train.early_stopping_on=any
grep -q 'already stopped early, at step 20' log || fail "a resumed run has forgotten the second metric"
ends 0 "$HEDDLE" "${several[@]}" --set run.directory=any --set train.early_stopping_on=first
grep -q '^done: step 30' log || fail "the resumed run stops again"

# The weighted mean of metrics is one; with other weights it starts again.
mean=(--set 'train.validate_metrics=["chrf"]' --set data.valid_sets.same=data/valid.h5 --set train.best_metric=mean
  --set train.mean_metric.chrf=3 --set 'train.mean_metric."chrf/same"=1')
ends 0 "$HEDDLE" "${train[@]}" --set run.directory=weighted "${mean[@]}"
awk -v mean="$(field weighted valid_mean 20)" -v chrf="$(field weighted valid_chrf 20)" \
  'BEGIN { exit !(chrf > 0 && (mean - chrf) ^ 2 < 1e-12) }' || fail "the mean of two equal values"
ends 0 "$HEDDLE" "${train[@]}" --set run.directory=weighted "${mean[@]}" --set train.mean_metric.chrf=2 --set train.steps=31
grep -q 'note: the mean is of other metrics, weights or validation sets than before: ' log || fail "other weights are not noticed"

# The loss of each corpus: the same however the ranks are laid out, the mean of all is that of the run, and the line after a
# stop is that of a run that was not stopped.
cat > mixed.toml << 'TOML'
[data.corpus.first]
train = "data/train.h5"
tag = "one"
[data.corpus.second]
train = "data/train.h5"
tag = "two"
weight = 2
TOML
sed '/^train = /d; s/^log_every = .*/log_every = 10/; s/^dropout = .*/dropout = 0.0/' run.toml >> mixed.toml
mixed=(train mixed.toml --set data.valid_tag=one --set train.steps=30 --set train.validate_every=30 --set train.deterministic=true --set checkpoint.keep=10)
ends 0 "$HEDDLE" "${mixed[@]}" --set run.directory=one
grep -q 'epoch [0-9.]* (first [0-9.]*, second [0-9.]*)' log || fail "the progress does not have the epochs of corpora"
losses() { sed -n 's/.*"corpus_nll":{\([^}]*\)},"tag_nll":{\([^}]*\)}.*/\1 \2/p' "$1/metrics.jsonl"; }
[ "$(losses one | wc -l)" = 3 ] || fail "no loss of corpora"
losses one | tr -d '":a-z' | awk -F '[, ]' '$1 != $3 || $2 != $4 || $1 < 1 || $2 < 1 { exit 1 }' || fail "the losses of corpora and tags differ"
ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" "${mixed[@]}" --set run.directory=data2
[ "$(losses one)" = "$(losses data2)" ] || fail "another number of data ranks has other losses of corpora"
for layout in tensor pipeline context; do
  ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" "${mixed[@]}" --set run.directory=$layout --set parallel.$layout=2
  paste -d' ' <(losses one | tr -c '0-9.\n' ' ') <(losses $layout | tr -c '0-9.\n' ' ') |
    awk 'NF != 8 { exit 1 } { for (i = 1; i <= 4; ++i) if (($i - $(i + 4)) ^ 2 > 1e-4) exit 1 }' ||
    fail "the losses of corpora with parallel.$layout = 2"
done
cp -r one resumed
ends 0 "$HEDDLE" "${mixed[@]}" --set run.directory=resumed --resume-from 15
line_of() { grep '"step":[23]0,' "$1/metrics.jsonl" | sed 's/"tokens_per_second":[^,]*,"seconds":[^,}]*//'; }
[ "$(line_of one)" = "$(line_of resumed)" ] || fail "the line after a resumption is another one"
