#!/usr/bin/env bash
# Training from text with modifiers: killed by SIGKILL and resumed it ends as an undisturbed run, bitwise; on 1, 2 and 4 data ranks its
# samples are the same; what is wrong with a text ends with its line and code 65.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1
prepare_data 600 20 10 120
paste text/train.en text/train.de > train.tsv
paste text/valid.en text/valid.de > valid.tsv
awk 'BEGIN { for (line = 0; line < 600; ++line) print "0-0" }' > links
configure 'data.train="train.tsv"' 'data.valid="valid.tsv"' 'data.vocabulary="data/vocab.model"' train.steps=24 \
  train.batch_tokens=512 train.micro_batch_tokens=128 train.validate_every=12 train.validate_bleu=false train.log_every=1 \
  train.deterministic=true optimizer.warmup_steps=5 checkpoint.every_steps=8 model.max_length=128
cat >> run.toml << 'TABLES'
[data.modifiers]
upper_case = 0.1
title_case = 0.1
typos = 0.3
noise = 0.05
merge = 0.05
remove_end_punctuation = 0.1
prefix = 0.1
context = 0.1
swap = 0.1
tags = 0.1
subword_sampling = { rate = 0.5, alpha = 0.2 }
TABLES
paste train.tsv links > linked.tsv
last_step=24

# The dataset gives the losses of text without modifiers: the same pairs in the same order.
for name in text data; do
  sed '/^\[data.modifiers\]/,$d' run.toml > "$name.toml"
done
ends 0 "$HEDDLE" train text.toml --set run.directory=text.run
ends 0 "$HEDDLE" train data.toml --set run.directory=data.run --set data.train=data/train.h5 --set data.valid=data/valid.h5
[ "$(without_times text.run)" = "$(without_times data.run)" ] || fail "text and its dataset are trained on in another way"

linked=(--set data.train=linked.tsv)
train 0 0 "${linked[@]}" --set run.directory=undisturbed
setsid "$HEDDLE" train run.toml "${linked[@]}" --set run.directory=killed > log 2>&1 &
victim=$!
wait_for_step killed 10
kill -KILL "$victim" || fail "it ended before it was killed"
wait "$victim" 2> /dev/null || true
[ ! -e "$(state killed)" ] || fail "it was killed too late"
train 0 0 "${linked[@]}" --set run.directory=killed
grep -q 'resuming after step' log || fail "it did not resume"
same_parameters undisturbed killed
for ranks in 2 4; do
  train "$ranks" 0 "${linked[@]}" --set "run.directory=ranks$ranks"
  same_parameters undisturbed "ranks$ranks"
done

# A stream is trained on in its order: the same on any number of data ranks, and after it was killed and is sent again.
cat train.tsv train.tsv train.tsv | awk '{ print (NR % 7 == 3 ? "\t" : $0) }' > stream.tsv
stream=("$HEDDLE" train run.toml --set 'data.train="-"' --set data.modifiers.tags=0)
ends 0 "${stream[@]}" --set run.directory=stream < stream.tsv
grep -q 'sentence pairs of the standard input, in its order' log || fail "a stream is not described"
for ranks in 2 4; do
  ends 0 "$HEDDLE_MPIRUN" -np "$ranks" "${stream[@]}" --set "run.directory=stream$ranks" < <(gzip -c stream.tsv)
  same_parameters stream "stream$ranks"
done
setsid "${stream[@]}" --set run.directory=stopped > log 2>&1 < stream.tsv &
victim=$!
wait_for_step stopped 10
kill -KILL "$victim" || fail "it ended before it was killed"
wait "$victim" 2> /dev/null || true
[ ! -e "$(state stopped)" ] || fail "it was killed too late"
expect 65 'the standard input has no sentence pair' "${stream[@]}" --set run.directory=stopped
head -n 20 stream.tsv > start.tsv
input=start.tsv expect 65 'is not a place in sentence pairs of the standard input' "${stream[@]}" --set run.directory=stopped
ends 0 "${stream[@]}" --set run.directory=stopped < stream.tsv
grep -q 'resuming after step' log || fail "it did not resume"
same_parameters stream stopped
# A signal is obeyed while a run waits for its sender.
cat stream.tsv stream.tsv > twice.tsv
"${stream[@]}" --set run.directory=paused --set train.steps=200 > log 2>&1 < <(head -n 2100 twice.tsv; exec sleep 200 2> /dev/null) &
victim=$!
wait_for_step paused 24
sleep 2
kill -USR1 "$victim" || fail "it did not wait for its sender"
code=0
wait "$victim" || code=$?
[ "$code" -eq 75 ] || fail "a run that waits for its sender ended with $code"
paused=$(lines paused)
grep -q "stopped by SIGUSR1 after step $paused of 200" log || fail "it did not stop after its step $paused"
[ -e "$(state paused "$paused")" ] || fail "the step before the pause is not saved"
ends 0 "${stream[@]}" --set run.directory=paused --set train.steps=200 < twice.tsv
grep -q "resuming after step $paused" log || fail "it did not resume"
# Its end is the run's. A sender that is silent does not keep a run that is done.
ends 0 "${stream[@]}" --set run.directory=shorter < <(head -n 300 stream.tsv)
grep -q 'done: step [0-9]* of 24, ' log || fail "the end of a stream is not the run's"
grep -q 'to train longer: send the same lines again, and more' log || fail "what continues a stream is not said"
ends 0 "${stream[@]}" --set run.directory=shorter < stream.tsv
grep -q 'done: step 24 of 24, ' log || fail "a longer stream does not continue the run"
ends 0 timeout 100 "${stream[@]}" --set run.directory=waiting < <(cat stream.tsv{,,,,}; exec sleep 200 2> /dev/null)
expect 64 'which a restart could not read again' "$HEDDLE" run "${stream[@]:2}" --set run.directory=wrong -- mpirun -np 2
expect 78 'a plan reads data that the run reads' "${stream[@]}" --dry-run

# A text that shrank is not the one that the run started with.
head -n 500 linked.tsv > shorter.tsv
mv shorter.tsv linked.tsv
expect 65 'was trained on other data' "$HEDDLE" train run.toml "${linked[@]}" --set \
  run.directory=undisturbed --set train.steps=30
expect 78 'tags needs alignments of words, and train.tsv has none' "$HEDDLE" train run.toml --set run.directory=wrong
printf 'one\teins\ntwo\tzw\xffei\n' > wrong.tsv
expect 65 'wrong.tsv: line 2 has a byte 7 that is not valid UTF-8' "$HEDDLE" train text.toml --set data.train=wrong.tsv \
  --set run.directory=wrong
expect 65 'text/train.en has 600 lines, text/valid.de has 20' "$HEDDLE" train text.toml --set 'data.train=""' --set \
  data.source=text/train.en --set data.target=text/valid.de --set run.directory=wrong
expect 78 'data.vocabulary is not set, and train.tsv is text' "$HEDDLE" train text.toml --set 'data.vocabulary=""' --set \
  run.directory=wrong
echo "figures: text with 11 modifiers, bitwise after a kill and on 1, 2 and 4 data ranks"
