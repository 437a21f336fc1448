#!/usr/bin/env bash
# Datasets as their users give them: files that are none, that never end, or that are damaged.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1
# expect CODE PATTERN COMMAND...: the exit code within 20 seconds, and a pattern in what it prints.
expect() {
  local code=$1 pattern=$2 found=0
  shift 2
  timeout 20 "$@" > log 2>&1 < /dev/null || found=$?
  [ "$found" = "$code" ] || fail "exit code $found instead of $code: $*"
  grep -q -- "$pattern" log || fail "'$pattern' is not said: $*"
}

prepare_data 900 40 20 120
configure model.d_model=16 model.d_ff=16 model.max_length=128 train.steps=6 train.batch_tokens=512 train.micro_batch_tokens=256 \
  train.validate_every=6 train.validate_bleu=false

expect 0 'every byte verified' "$HEDDLE" inspect data/train.h5 --verify
expect 0 'done: step 6' "$HEDDLE" train run.toml

# Several files are one dataset, and train as one file does.
"$HEDDLE" prepare --source text/train.en --target text/train.de --vocab-model data/vocab.model --samples-per-file 400 \
  --out parts > log 2>&1 || fail "prepare --samples-per-file"
parts='data.train=["parts/train-00001.h5", "parts/train-00002.h5", "parts/train-00003.h5"]'
expect 0 'training on 900 sentence pairs' "$HEDDLE" train run.toml --set run.directory=several --set "$parts"
[ "$(sed 's/"tokens_per_second.*//' run/metrics.jsonl)" = "$(sed 's/"tokens_per_second.*//' several/metrics.jsonl)" ] ||
  fail "several files train otherwise than one"

# Another dataset is noticed when a run resumes; a copy in another place is the same one.
head -n 899 text/train.en > less.en
head -n 899 text/train.de > less.de
"$HEDDLE" prepare --source less.en --target less.de --vocab-model data/vocab.model --out less > log 2>&1 ||
  fail "prepare with a given vocabulary"
mkdir copied && cp data/train.h5 copied/x.h5
expect 0 'resuming after step 6' "$HEDDLE" train run.toml --set data.train=copied/x.h5 --set train.steps=7
digest() { "$HEDDLE" inspect "$1" | sed -n 's/^digest: //p'; }
expect 78 "digest $(digest data/train.h5), less/train.h5 $(digest less/train.h5): " \
  "$HEDDLE" train run.toml --set data.train=less/train.h5 --set train.steps=8
expect 0 'note: data.train has new data: training starts with its first sample, epoch 1' \
  "$HEDDLE" train run.toml --set data.train=less/train.h5 --set train.steps=8 --new-data
expect 0 'resuming after step 8' "$HEDDLE" train run.toml --set data.train=less/train.h5 --set train.steps=9
expect 78 'resuming would mix their orders' "$HEDDLE" train run.toml --set train.steps=10

# Corpora are mixed by their weights; a run that stops half-way and resumes draws the same samples.
cat > mixed.toml << 'TOML'
[data.corpus.whole]
train = "data/train.h5"
weight = 3
[data.corpus.less]
train = "less/train.h5"
tag = "seven"
TOML
sed "/^train = /d; s/^steps = .*/&\nlog_every = 1/" run.toml >> mixed.toml
losses() { sed 's/"tokens_per_second.*//' "$1/metrics.jsonl"; }
expect 0 'less: 899 sentence pairs, 25.0 % of the samples; whole: 900 sentence pairs, 75.0 % of the samples' \
  "$HEDDLE" train mixed.toml --set run.directory=mixed
grep -q 'warning: data.valid is read without a tag, and mixed.toml:6:1: data.corpus.less.tag = "seven" is before ' log ||
  fail "a validation set without the corpus's tag is not warned about"
expect 0 'done: step 3' "$HEDDLE" train mixed.toml --set run.directory=halves --set train.steps=3
expect 0 'resuming after step 3' "$HEDDLE" train mixed.toml --set run.directory=halves --set data.valid_tag=seven
grep -q 'note: data/valid.h5 is another validation set than before, or has another tag or other masks' log ||
  fail "values with another tag are compared"
[ "$(losses mixed | tail -n 1)" = "$(losses halves | tail -n 1)" ] || fail "a mixture that was resumed differs"
expect 0 'data read.*less: 0 whole passes and .*; whole: 0 whole passes and ' "$HEDDLE" inspect mixed/checkpoints
expect 78 'data.corpus.less beside data.train' "$HEDDLE" train mixed.toml --set data.train=data/train.h5
expect 78 'data.corpus.third names no dataset' "$HEDDLE" train mixed.toml --set data.corpus.third.weight=1
expect 78 'data.corpus.less.weight' "$HEDDLE" train mixed.toml --set data.corpus.less.weight=0

# One of the corpora is exchanged: the other keeps its place.
expect 78 'data.corpus.less had other data' "$HEDDLE" train mixed.toml --set run.directory=mixed \
  --set data.corpus.less.train=data/train.h5 --set train.steps=7
expect 0 'note: data.corpus.less has new data: training starts with its first sample, epoch 1' \
  "$HEDDLE" train mixed.toml --set run.directory=mixed --set data.corpus.less.train=copied/x.h5 --set train.steps=7 --new-data
grep -q 'note: data.corpus.whole' log && fail "a corpus that is the same starts again"

# Stages: a run that resumes within one has the same losses, each step can be looked at, and the last one ends the run.
{ grep -v '^weight' mixed.toml && cat << 'TOML'
[[data.stage]]
title = "both"
weights = { whole = 3, less = 1 }
corpus = "whole"
epochs = 0.05
[[data.stage]]
weights = { less = 1 }
steps = 3
TOML
} > staged.toml
expect 0 'done: step [0-9]* of 100, ' "$HEDDLE" train staged.toml --set run.directory=staged --set train.steps=100
grep -q 'to train longer: raise train.epochs, or the end of the last data.stage' log || fail "the end of the stages is not said"
grep -q 'stage 2 of 2 starts after step' staged/log.txt || fail "a stage's start is not said"
expect 0 'already at the end of the data' "$HEDDLE" train staged.toml --set run.directory=staged --set train.steps=100
expect 0 'done: step 2' "$HEDDLE" train staged.toml --set run.directory=parts-of-stages --set train.steps=2
expect 0 'resuming after step 2' "$HEDDLE" train staged.toml --set run.directory=parts-of-stages --set train.steps=100
[ "$(losses staged | grep -v '"step":2,' )" = "$(losses parts-of-stages | grep -v '"step":2,')" ] || fail "a stage that was resumed differs"
expect 0 '^step 2: [0-9]* samples, [0-9,]* tokens, planned after step 0' "$HEDDLE" inspect staged --step 2
expect 0 '^sample 1: .*epoch 0, place [0-9]*, ' "$HEDDLE" inspect staged --step 2:1
grep -q '^  target: [a-z]' log || fail "a sample's text is not shown"
expect 64 'step 2 has samples 0 to' "$HEDDLE" inspect staged --step 2:100000
expect 64 'expected a step, or STEP:SAMPLE' "$HEDDLE" inspect staged --step x
expect 64 "step 90: the run's data end after step [0-9]*$" "$HEDDLE" inspect staged --step 90

# After which step a validation ended a stage is not known between checkpoints.
{ grep -v '^weight' mixed.toml && printf '[[data.stage]]\nweights = { whole = 1 }\nstalled = 1\n[[data.stage]]\nweights = { less = 1 }\n'; } > stalled.toml
expect 0 'stage 2 of 2 starts after step 4' "$HEDDLE" train stalled.toml --set run.directory=stalled \
  --set train.validate_every=2 --set optimizer.learning_rate=1e-30
expect 0 '^step 2: .* planned after step 0' "$HEDDLE" inspect stalled --step 2
expect 64 'step 5: after step 2 and by step 6 the run skipped batches that were not finite, or a validation ended a stage' "$HEDDLE" inspect stalled --step 5
# A stop in the validation that ends a stage: the start that resumes makes it, and ends the stage.
printf '%s\n' '#!/bin/sh' 'echo >> calls' '[ "$(wc -l < calls)" -ne 2 ] || sleep 100' 'echo 1' > score && chmod +x score
scored=(--set run.directory=stopped --set train.validate_every=2 --set train.validate_command.score=./score --set train.best_metric=score)
"$HEDDLE" train stalled.toml "${scored[@]}" > stopped.log 2>&1 &
for _ in $(seq 1500); do [ "$(cat calls 2> /dev/null | wc -l)" -ne 2 ] || break; sleep 0.02; done
kill -TERM $!
waited 75 $!
expect 0 'stage 2 of 2 starts after step 4' "$HEDDLE" train stalled.toml "${scored[@]}"

# A run that would see its data thousands of times is remarked.
expect 0 'note: data/train.h5 has 900 sentence pairs: train.steps = 100,000 are about [0-9,]* epochs, .*--size tiny' \
  "$HEDDLE" init --size base --data data --out base

# Pipes and the standard input are read as files, a run and a dataset lend their vocabularies, and a damaged gzip file
# ends each command.
"$HEDDLE" prepare --source <(cat text/train.en) --target - --vocab-model run --out piped < <(cat text/train.de) \
  > log 2>&1 || fail "prepare from pipes"
[ "$(digest piped/train.h5)" = "$(digest data/train.h5)" ] || fail "pipes give another dataset"
paste text/valid.en text/valid.de text/valid.en > valid.tsv
"$HEDDLE" prepare --valid-tsv valid.tsv --columns 3,2 --vocab-model less/train.h5 --out piped > log 2>&1 ||
  fail "prepare of a validation set"
[ "$(digest piped/valid.h5)" = "$(digest data/valid.h5)" ] || fail "a validation set alone is another one"
expect 0 'target tokens for each source token: median: ' "$HEDDLE" inspect piped
gzip -c text/test.en > test.gz
{ cat test.gz; echo more; } > more.gz
byte=$(($(stat -c %s test.gz) + 1))
expect 65 "more.gz: line 21: byte $byte of the gzip file" "$HEDDLE" prepare --text more.gz --vocab-model data --out other
expect 65 "more.gz: line 21: byte $byte of the gzip file" "$HEDDLE" translate --checkpoint run --input more.gz --threads 1
expect 65 "more.gz: line 21: byte $byte of the gzip file" \
  "$HEDDLE" score --checkpoint run --source text/test.en --target more.gz --threads 1
"$HEDDLE" score --checkpoint run --source <(zcat test.gz) --target - --threads 1 < <(cat text/test.de) > piped.scores 2> log ||
  fail "score of pipes"
"$HEDDLE" score --checkpoint run --source test.gz --target text/test.de --threads 1 2> log | cmp - piped.scores ||
  fail "pipes have other scores"
expect 64 'is given for two texts' bash -c 'cat text/test.en | "$HEDDLE" score --checkpoint run --source - --target -'

# Threads and ranks make the same files.
for number in 1 2 3; do
  for _ in 1 2 3 4; do sed "s/^/$number /" text/train.en; done
done > long.en
for number in 1 2 3; do
  for _ in 1 2 3 4; do sed "s/^/$number /" text/train.de; done
done > long.de
sed 's/.*/0-0 1-1/' long.en > links
prepare_long() {
  "$@" prepare --source long.en --target long.de --alignments links --valid-tsv valid.tsv --columns 3,2 --vocab-size 90 \
    --threads "$threads" --out "on$#-$threads" > log 2>&1 || fail "prepare on $* with $threads threads"
  for file in train.h5 valid.h5 vocab.model; do
    cmp "on$#-$threads/$file" "on1-1/$file" || fail "$* with $threads threads writes another $file"
  done
}
for threads in 1 2 5; do prepare_long "$HEDDLE"; done
for threads in 1 2; do
  for ranks in 1 2 3; do
    prepare_long "$HEDDLE_MPIRUN" -np "$ranks" "$HEDDLE"
    grep -q '^train: 10,800 pairs' log || fail "no report on $ranks ranks"
    rm -r "on4-$threads"
  done
done
sed '9000s/.*/7-7/' links > bad.links
for launcher in '' "$HEDDLE_MPIRUN -np 2"; do
  # shellcheck disable=SC2086
  expect 65 'bad.links, line 9000: "7-7" is not a link' $launcher "$HEDDLE" prepare --source long.en --target long.de \
    --alignments bad.links --vocab-model on1-1 --out bad
  [ ! -e bad ] || fail "files are left after an error"
done

# Files that never end, or wait for a writer.
mkfifo pipe
for path in /dev/zero pipe; do
  expect 78 "$path: is not a regular file; expected a TOML file" "$HEDDLE" train "$path"
  expect 65 "$path: is not a regular file" "$HEDDLE" train run.toml --set run.directory=other --set data.train="$path"
  expect 65 "$path: is not a regular file; expected a vocabulary model" \
    "$HEDDLE" prepare --text text/train.en --vocab-model "$path" --out prepared
done
mkdir fifo
mkfifo fifo/metrics.jsonl
expect 65 'fifo/metrics.jsonl: is not a regular file' "$HEDDLE" train run.toml --set run.directory=fifo
rm -r fifo && mkdir fifo && mkfifo fifo/checkpoints
expect 65 'fifo/checkpoints: is not a directory; move it away' "$HEDDLE" train run.toml --set run.directory=fifo
rm -r fifo && mkdir fifo && mkfifo fifo/.lock
expect 78 'run.directory fifo: fifo/.lock: is not a regular file; move it away' "$HEDDLE" train run.toml --set run.directory=fifo
# A run does not need event files for TensorBoard.
mkdir events && : > events/tensorboard
expect 0 'warning: no more event files for TensorBoard in this start: ' "$HEDDLE" train run.toml --set run.directory=events

