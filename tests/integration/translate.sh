#!/usr/bin/env bash
# Use of a trained model: translate, evaluate, inspect; and their error messages.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1
prepare_data 2000 40 60 120
configure train.steps=30 train.validate_every=10 checkpoint.every_steps=10 model.d_ff=32 model.max_length=40 train.batch_tokens=512 train.validate_bleu=false optimizer.learning_rate=0.01 \
  optimizer.warmup_steps=10
train 0 0

# translate: a line for each line, in order, from the standard input and from gzip, to the standard output and to a file.
{ sed -n 1,7p text/test.en; echo; echo "  "; sed -n 8,20p text/test.en; } > some.en
"$HEDDLE" translate --checkpoint run < some.en > some.de
[ "$(wc -l < some.de)" = 22 ] || fail "$(wc -l < some.de) lines for 22"
[ "$(sed -n 8,9p some.de | tr -d '\n')" = "" ] || fail "an empty line did not stay empty"
[ -n "$(sed -n 7p some.de)" ] || fail "a line was lost"
gzip -k some.en
"$HEDDLE" translate --checkpoint run/checkpoints --input some.en.gz --output file.de --window 3 --batch-tokens 40
cmp some.de file.de || fail "windows, batches or gzip change translations"
"$HEDDLE" translate --checkpoint run/checkpoints/step-00000030 --which last < some.en > last.de
"$HEDDLE" translate --checkpoint run --average 2 < some.en > average.de
cmp -s last.de average.de && fail "the average of two checkpoints is the last one"

# An ensemble: of one model it is the model; its perplexity is the weighted geometric mean of its models'.
"$HEDDLE" translate --checkpoint run --checkpoint run < some.en | cmp - some.de || fail "a model twice translates otherwise"
perplexity() { "$HEDDLE" evaluate --source text/valid.en --reference text/valid.de --beam 1 "$@" | sed -n 's/^perplexity = \([^ ]*\).*/\1/p'; }
one=run/checkpoints/step-00000010 other=run/checkpoints/step-00000030
awk -v one="$(perplexity --checkpoint $one)" -v other="$(perplexity --checkpoint $other)" \
  -v both="$(perplexity --checkpoint $one --checkpoint $other --weight 1 --weight 3)" 'BEGIN {
  mean = exp((log(one) + 3 * log(other)) / 4); exit !(one > 1.01 * other && both > 0.999 * mean && both < 1.001 * mean)}' ||
  fail "the perplexity of an ensemble"
awk -v float="$(perplexity --checkpoint run)" -v int8="$(perplexity --checkpoint run --quantize int8)" 'BEGIN {
  exit !(int8 != float && int8 > 0.98 * float && int8 < 1.02 * float)}' || fail "the perplexity in int8"
expect 64 '--quantize int4: expected int8' "$HEDDLE" translate --checkpoint run --quantize int4
expect 64 'expected a number above 0 for each --checkpoint' "$HEDDLE" translate --checkpoint $one --checkpoint $other --weight 1
expect 64 'has no tokens for the languages' "$HEDDLE" translate --checkpoint run --target-language de
"$HEDDLE" translate --checkpoint run --set kernels.gemm=reference --beam 1 < some.en > reference.de
"$HEDDLE" translate --checkpoint run --beam 1 < some.en > greedy.de
cmp reference.de greedy.de || fail "the reference multiplication translates otherwise"
: | "$HEDDLE" translate --checkpoint run > none.de
[ ! -s none.de ] || fail "no input, but output"

# Features: without a length penalty the score is their weighted sum, and each is what the model alone gives.
"$HEDDLE" translate --checkpoint $one --checkpoint $other --weight 1 --weight 3 --n-best 2 --features --pieces --length-penalty 0 < some.en > features
awk -F ' [|][|][|] ' '$2 != "" { split($3, f, " "); sum = (f[2] + 3 * f[4]) / 4; ++lines
  if (f[1] != "F0=" || f[3] != "F1=" || sum - $4 > 1e-3 || $4 - sum > 1e-3) exit 1 } END { exit lines == 0 }' features ||
  fail "the features are not the parts of the score"
"$HEDDLE" score --checkpoint $one --source some.en --target features --n-best --pieces --length-penalty 0 | awk -F ' [|][|][|] ' '$2 != "" {
  split($3, f, " "); if (f[2] - $NF > 1e-3 || $NF - f[2] > 1e-3) exit 1 }' || fail "a feature is not the score by its model"
expect 64 'give --n-best, and neither --json nor a prefix' "$HEDDLE" translate --checkpoint run --features

# n-best lists: index, text, descending scores; the first is the translation.
"$HEDDLE" translate --checkpoint run --n-best 3 < some.en > best3
checked=$(awk -F' [|][|][|] ' 'NF != 3 {bad = 1} $1 == last && $3 > score {bad = 1} {last = $1; score = $3}
  END {print bad + 0, NR}' best3)
[ "$checked" = "0 $((20 * 3 + 2))" ] || { cat best3; fail "n-best lines: $checked"; }
awk -F' [|][|][|] ' '$1 != last {print $2; last = $1}' last=-1 best3 | cmp - some.de || fail "the best is not the translation"

# JSON lines, alignments, prefixes and the options of the search.
"$HEDDLE" translate --checkpoint run --n-best 3 --json --align soft < some.en > best3.jsonl
python3 - best3 best3.jsonl << 'END' || fail "JSON lines are not the n-best list"
import json, sys
for line, text in zip(*map(open, sys.argv[1:]), strict=True):
    index, translation, score = line.rstrip('\n').split(' ||| ')
    found = json.loads(text)
    assert found['line'] == int(index) and found['text'] == translation and abs(found['score'] - float(score)) < 1e-6, text
    assert len(found['alignment']) == len(found['tokens']), text
    assert all(abs(sum(row) - 1) < 0.01 and len(row) == len(found['source_tokens']) for row in found['alignment']), text
END
"$HEDDLE" translate --checkpoint run --align hard < some.en > aligned
sed 's/ |||.*//' aligned | cmp - some.de || fail "alignments change translations"
[ "$(sed -n '8p;9p' aligned | sort -u)" = ' ||| ' ] && [ "$(grep -Ec ' \|\|\| [0-9]+-0( [0-9]+-[0-9]+)*$' aligned)" = 20 ] || { cat aligned; fail "alignments"; }
"$HEDDLE" score --checkpoint run --source some.en --target some.de --tokens --align hard > scored.jsonl
"$HEDDLE" score --checkpoint run --source some.en --target some.de --align hard > scored
python3 - scored scored.jsonl << 'END' || fail "alignments of score"
import json, sys
for line, text in zip(*map(open, sys.argv[1:]), strict=True):
    found = json.loads(text)
    assert line.split('|||')[1].strip() == found['alignment'] and len(found['alignment'].split()) == len(found['tokens']) - 1, text
END
expect 64 'give --json, and not --align-words' "$HEDDLE" translate --checkpoint run --align soft
sed 's/ .*//;s/^/vier/' some.en > prefixes
"$HEDDLE" translate --checkpoint run --prefix prefixes < some.en > prefixed.de
paste -d'|' prefixes prefixed.de | awk -F'|' '$2 != "" && index($2, substr($1, 1, 4)) != 1 {bad = 1} END {exit bad || NR != 22}' || fail "prefixes"
paste some.en prefixes | "$HEDDLE" translate --checkpoint run --prefix-column | cmp - prefixed.de || fail "a column of prefixes"
printf 'one\tＶier № 漢字 vier\n' | "$HEDDLE" translate --checkpoint run --prefix-column > prefixed.de
grep -q '^Ｖier № 漢字 vier' prefixed.de || { cat prefixed.de; fail "a prefix is not written as it was given"; }
# NFKC makes U+00B4 a space and an accent: words are those of the given line.
printf 'one\u00b4s two\n' > odd.en
"$HEDDLE" translate --checkpoint run --align hard --align-words < odd.en > aligned
grep -Eq ' \|\|\| [01]-0( [01]-[0-9]+)*$' aligned || { cat aligned; fail "words of a line"; }
"$HEDDLE" score --checkpoint run --source odd.en --target odd.en --align hard --align-words > aligned
grep -Eq ' \|\|\| [01]-[01]( [01]-[01])*$' aligned || { cat aligned; fail "words of a given translation"; }
# Pieces are what was generated, and so is their score; nothing that stands for no text is drawn.
"$HEDDLE" translate --checkpoint run --n-best 3 --pieces < some.en > best3.pieces
cut -d' ' -f1 best3 | cmp - <(cut -d' ' -f1 best3.pieces) && ! cmp -s best3 best3.pieces || fail "pieces"
"$HEDDLE" score --checkpoint run --n-best --pieces --source some.en --target best3.pieces |
  awk -F' [|][|][|] ' '$2 != "" && ($3 - $4) ^ 2 > 1e-9 {bad = 1} END {exit bad || NR < 60}' || fail "the scores of pieces"
expect 65 'target, line 1: the vocabulary has no piece' "$HEDDLE" score --checkpoint run --pieces --source odd.en --target odd.en
"$HEDDLE" translate --checkpoint run --temperature 100 --max-length 30 --json < some.en > drawn
grep -Eq '"<(pad|unk|s)>"' drawn && fail "a special token was drawn"
"$HEDDLE" translate --checkpoint run --temperature 100 --max-length 30 --json --allow-unknown < some.en > drawn
grep -q '"<unk>"' drawn || fail "an unknown token was not drawn"
echo hundert > forbidden
"$HEDDLE" translate --checkpoint run --beam 1 --forbid forbidden < some.en > other.de
grep '^hundert' greedy.de > /dev/null && ! grep '^hundert' other.de || fail "a forbidden word"
"$HEDDLE" translate --checkpoint run --temperature 1 --min-p 1 < some.en | cmp - greedy.de || fail "only the likeliest token may be drawn"

# A shortlist of all pieces changes nothing; of few, a line's translation does not depend on the lines beside it.
"$HEDDLE" lexicon --dataset data --output lex.s2t > log
[ "$(wc -l < lex.s2t)" -gt 500 ] && ! grep -vE '^[^ ]+ [^ ]+ [0-9.e-]+$' lex.s2t || fail "the lexicon's lines"
"$HEDDLE" translate --checkpoint run --shortlist lex.s2t:120:100 < some.en | cmp - some.de || fail "a shortlist of everything"
"$HEDDLE" translate --checkpoint run --threads 1 --shortlist lex.s2t:2:1 < some.en > short.de
cmp -s short.de some.de && fail "a short shortlist changes nothing"
for how in "--window 1" "--threads 2 --window 5" "--batch-tokens 1"; do
  "$HEDDLE" translate --checkpoint run $how --shortlist lex.s2t:2:1 < some.en | cmp - short.de || fail "a shortlist with $how"
done
expect 64 'expected FILE or FILE:FIRST:BEST' "$HEDDLE" translate --checkpoint run --shortlist lex.s2t:5
expect 65 'run.toml, line 1: expected "TARGET SOURCE PROBABILITY"' "$HEDDLE" translate --checkpoint run --shortlist run.toml
expect 78 'a shortlist is for a model that translates' "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" translate --checkpoint run --set parallel.tensor=2 --shortlist lex.s2t

# evaluate translates as translate does, with each option.
for options in "--shortlist lex.s2t:2:1" "--coverage-penalty 2 --length-penalty 2" "--temperature 1 --seed 4"; do
  "$HEDDLE" evaluate --checkpoint run $options --source some.en --reference some.en --output evaluated.de > log
  "$HEDDLE" translate --checkpoint run $options < some.en | cmp - evaluated.de || fail "evaluate $options"
done
# Only the first of many messages about lines are shown, and a swapped test set is noticed.
for line in {1..12}; do printf 'one two three %.0s' {1..30}; echo; done > longs.en
"$HEDDLE" score --checkpoint run --source longs.en --target longs.en > log 2> stderr
[ "$(grep -c 'no score' stderr)" = 10 ] && grep -q 'heddle: 2 more lines like these' stderr || { cat stderr; fail "a message for each line"; }
"$HEDDLE" evaluate --checkpoint run --beam 1 --source text/valid.de --reference text/valid.en > log 2> stderr
grep -q 'are --source and --reference swapped' stderr || { cat log stderr; fail "swapped texts"; }
"$HEDDLE" evaluate --checkpoint run --beam 1 --source text/valid.en --reference text/valid.de --tokenize char > log 2> stderr
! grep -q swapped stderr && grep -q 'tok:char' log || { cat log stderr; fail "texts in order"; }
for command in translate evaluate generate; do
  expect 64 'between groups of the beam' "$HEDDLE" $command --checkpoint run --diversity 0.5
  expect 64 'with --temperature 0 nothing is drawn' "$HEDDLE" $command --checkpoint run --seed 3
done
expect 64 'alignments of layer 2: expected one of the 1 layers' "$HEDDLE" translate --checkpoint run --align hard --align-layer 2 --input some.en
expect 64 'alignments of head 3: expected one of the 2 heads' "$HEDDLE" translate --checkpoint run --align hard --align-head 3 --input some.en
! "$HEDDLE" serve --help | grep -E 'adapter-column|mpirun' || fail "serve --help has options of other commands"

# Output that would destroy the input is refused, and output that is lost is an error.
cp some.en same.en
expect 64 'is the text that is read' "$HEDDLE" translate --checkpoint run --input same.en --output ./same.en
input=same.en expect 64 'is the text that is read' "$HEDDLE" translate --checkpoint run --output same.en
expect 64 'is the text that is read' "$HEDDLE" evaluate --checkpoint run --source same.en --reference same.en --output same.en
cmp some.en same.en || fail "the input was overwritten"
expect 1 '--output nowhere/x: there is no directory' "$HEDDLE" evaluate --checkpoint run --source same.en --reference same.en --output nowhere/x
[ ! -s stdout ] || fail "evaluate translated for an output that cannot be written"
expect 1 '/dev/full: cannot write' "$HEDDLE" evaluate --checkpoint run --source same.en --reference same.en --output /dev/full
grep -q '^perplexity' stdout || fail "the scores are lost with the translations"
code=0
"$HEDDLE" inspect run > /dev/full 2> stderr || code=$?
[ "$code" = 1 ] && grep -q '^heddle: the standard output could not be written' stderr || fail "inspect into a full disk: $code"

# Closed standard descriptors: no message comes into the files that are opened next.
"$HEDDLE" translate --checkpoint run --beam 1 --threads 2 --input some.en --output closed.de <&- >&- 2>&- ||
  fail "translate without standard descriptors"
cmp closed.de greedy.de || fail "other text is in the output where the standard descriptors are closed"
! "$HEDDLE" --version >&- 2> stderr || fail "the version is printed into a closed output"

# A line in, a line out, while the input continues: through a pipe with --stream, and typed at a terminal.
coproc translator { "$HEDDLE" translate --checkpoint run --beam 1 --stream 2> stderr; }
into=${translator[1]} from=${translator[0]} pid=$translator_PID
for number in 1 2; do
  sed -n ${number}p some.en >&"$into"
  read -r -t 120 -u "$from" answer || fail "no answer to line $number while the pipe is open"
  [ "$answer" = "$(sed -n ${number}p greedy.de)" ] || fail "line $number through a pipe: '$answer'"
done
exec {into}>&-
wait "$pid" || { cat stderr; fail "translate at the end of a pipe"; }

# Several processes of a command that cannot share its work under a launcher: refused, and said once.
expect 64 '^heddle: inspect does not share its work, and a launcher started 3 processes of it' "$HEDDLE_MPIRUN" -np 3 "$HEDDLE" inspect run
[ ! -s stdout ] && [ "$(grep -c 'started 3 processes' stderr)" = 1 ] || { cat stdout stderr; fail "three ranks are not refused once"; }
code=0
OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=2 "$HEDDLE" inspect run > stdout 2> stderr || code=$?
[ "$code" = 64 ] && [ ! -s stderr ] || fail "another rank than 0: code $code"
expect 64 'expected 1 <= n-best' "$HEDDLE_MPIRUN" -np 3 "$HEDDLE" translate --checkpoint run --beam 2 --n-best 3
[ "$(grep -c 'expected 1 <= n-best' stderr)" = 1 ] || { cat stderr; fail "each rank prints an error of the command line"; }
expect 65 '^heddle: nowhere: ' "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" translate --checkpoint nowhere
[ "$(grep -c 'nowhere' stderr)" = 1 ] && ! grep MPI_ABORT stderr || { cat stderr; fail "ranks that fail alike say so once"; }
"$HEDDLE_MPIRUN" -np 1 "$HEDDLE" translate --checkpoint run --beam 1 < some.en 2> stderr | cmp - greedy.de || fail "one process under a launcher"

# A line that is too long loses its end; what is not UTF-8 is replaced and counted, or refused by number.
{ sed -n 1p text/test.en; printf 'seven thousand %.0s' {1..40}; echo; } > long.en
input=long.en expect 0 '^heddle: line 2: .* tokens; only the first 39 are translated' "$HEDDLE" translate --checkpoint run
[ "$(wc -l < stdout)" = 2 ] || fail "a long line was lost"
printf 'one\ntwo \xff\n' > bad.en
input=bad.en expect 65 'line 2: byte 5 (0xFF) is not valid UTF-8' "$HEDDLE" translate --checkpoint run --invalid-utf8 fail
input=bad.en expect 0 'warning: .*: 1 of 2 lines are not valid UTF-8, the first is line 2' "$HEDDLE" translate --checkpoint run
[ "$(wc -l < stdout)" = 2 ] || fail "a line that is not UTF-8 was lost"
expect 0 'bad.en: 1 of 2 lines' "$HEDDLE" evaluate --hypotheses bad.en --reference bad.en
grep -q '^chrF2|.* = 100.00$' stdout || fail "what is replaced on both sides is not equal"
expect 64 '"skip"; expected replace[|]fail' "$HEDDLE" translate --checkpoint run --invalid-utf8 skip
expect 65 'no.en' "$HEDDLE" translate --checkpoint run --input no.en
expect 64 'checkpoint is missing' "$HEDDLE" translate
expect 64 'expected 1 <= n-best <= beam size' "$HEDDLE" translate --checkpoint run --beam 2 --n-best 3
expect 64 'expected best[|]last[|]auto' "$HEDDLE" translate --checkpoint run --which newest
expect 64 'did you mean --length-penalty' "$HEDDLE" translate --checkpoint run --length-penalti 1
expect 65 'holds no checkpoints; expected' "$HEDDLE" translate --checkpoint data
expect 65 'nowhere' "$HEDDLE" translate --checkpoint nowhere
expect 65 '3 of the checkpoints there verify, 9 wanted' "$HEDDLE" translate --checkpoint run --average 9
expect 78 'model.positions = "learned": .* was trained with "sinusoidal"' "$HEDDLE" translate --checkpoint run \
  --set model.positions=learned
expect 78 'kernels.gemm=nothing: kernels.gemm = .nothing.: no such implementation' "$HEDDLE" translate --checkpoint run --set kernels.gemm=nothing
expect 78 'nothing.so' "$HEDDLE" translate --checkpoint run --plugin nothing.so

# A damaged checkpoint is skipped if another verifies, and refused if it was named.
cp -r run damaged
last=damaged/checkpoints/step-00000030
shard=$(find "$last" -name '*.h5' -print -quit)
printf 'x' | dd of="$shard" bs=1 seek=5000 conv=notrunc status=none
input=some.en expect 0 'skipped a checkpoint that does not verify.*step-00000030' \
  "$HEDDLE" translate --checkpoint damaged --which last
expect 65 "$last" "$HEDDLE" translate --checkpoint "$last"
[ "$(grep -o "$last" stderr | wc -l)" = 1 ] || fail "a checkpoint's path is printed twice"
expect 65 "$last" "$HEDDLE" inspect "$last"

# evaluate
"$HEDDLE" translate --checkpoint run --input text/test.en --output test.de
"$HEDDLE" evaluate --checkpoint run --source text/test.en --reference text/test.de --output evaluated.de > scores
cmp test.de evaluated.de || fail "evaluate translates otherwise than translate"
grep -q '^BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:heddle-.* = .*(BP = ' scores || { cat scores; fail BLEU; }
grep -q '^perplexity = [0-9.]* ([0-9.]* nats for each of [0-9,]* target tokens)$' scores || { cat scores; fail perplexity; }
"$HEDDLE" evaluate --hypotheses test.de --reference text/test.de | diff - <(head -2 scores) || fail "two ways, two scores"
# The same for programs: an object with the digits that the lines round.
"$HEDDLE" evaluate --checkpoint run --test "a b=text/test.en,text/test.de" --json > scores.json
for name in BLEU chrF2; do
  line=$(grep "^$name|" scores)
  signature=${line#*|} signature=${signature%% *}
  score=$(sed -n "s/.*\"name\":\"$name\",\"score\":\([0-9.]*\),\"signature\":\"$signature\".*/\1/p" scores.json)
  [[ $line == "$name|$signature = $(printf %.2f "$score")"* ]] || { cat scores scores.json; fail "$name of evaluate --json"; }
done
perplexity=$(sed -n 's/^{"test":"a b",.*,"perplexity":\([0-9.]*\),"nats_per_token":[0-9.]*,"tokens":[0-9]*}$/\1/p' scores.json)
grep -q "^perplexity = $(printf %.6g "$perplexity") " scores || { cat scores scores.json; fail "perplexity of evaluate --json"; }
"$HEDDLE" evaluate --hypotheses text/test.de --reference text/test.de | grep '^chrF2|.* = 100.00$' > /dev/null || fail "chrF of equals"
# The perplexity of the validation text is the one that training reported for the checkpoint.
reported=$(grep -o '"valid_perplexity": *[0-9.eE+-]*' run/metrics.jsonl | tail -1 | sed "s/.*://")
"$HEDDLE" evaluate --checkpoint run --which last --source text/valid.en --reference text/valid.de --beam 1 > scores
awk -v reported="$reported" '/^perplexity/ {found = $3} END {exit !(found > 0.999 * reported && found < 1.001 * reported)}' \
  scores || { cat scores; fail "training reported a perplexity of $reported"; }
# Windows change no score, except by rounding; texts that do not fit are refused before anything is translated.
"$HEDDLE" evaluate --checkpoint run --which last --source text/valid.en --reference text/valid.de --beam 1 --window 7 > windows
diff <(sed 's/\(perplexity = [0-9]*\.[0-9][0-9]\).*nats/\1 nats/' scores) <(sed 's/\(perplexity = [0-9]*\.[0-9][0-9]\).*nats/\1 nats/' windows) ||
  fail "windows change scores"
expect 65 'has 60 lines, .* has 40' "$HEDDLE" evaluate --checkpoint run --source text/test.en --reference text/valid.de --output never
[ ! -e never ] || fail "texts of different lengths were translated"
expect 65 'has 60 lines, .* has 40' "$HEDDLE" evaluate --hypotheses text/test.de --reference text/valid.de
expect 64 'expected either --checkpoint with --source or --test, or --hypotheses' "$HEDDLE" evaluate --reference text/test.de
expect 64 'expected 13a|zh|char|intl|none' "$HEDDLE" evaluate --hypotheses test.de --reference text/test.de --tokenize ja-mecab

# inspect
"$HEDDLE" inspect data > shown
grep -q '2,000 sentence pairs' shown && grep -q 'vocabulary: joint, 120 pieces' shown || { cat shown; fail "inspect data"; }
first=$(sed -n 1p text/train.de)
grep -qx "  target: $first" shown || { cat shown; fail "the first pair is not shown"; }
"$HEDDLE" inspect run --parameters > shown
grep -q '3 checkpoints: .*(best)' shown && grep -q '^step: 30$' shown && grep -q '^d_model = 32$' shown &&
  grep -q '^embedding.weight  *\[120, 32\]' shown || { cat shown; fail "inspect run"; }
expect 65 'nowhere: does not exist' "$HEDDLE" inspect nowhere
expect 65 'run.toml' "$HEDDLE" inspect run.toml
expect 65 'neither datasets nor checkpoints' "$HEDDLE" inspect text

# A missing argument is named as in the usage line.
expect 64 '^heddle: train: RUN.toml is missing' "$HEDDLE" train
expect 64 '^heddle: checkpoint: list|verify|prune|diff is missing' "$HEDDLE" checkpoint
expect 64 '^heddle: prepare: --source is missing' "$HEDDLE" prepare --target text/train.de --out x
expect 78 "no implementation of operation 'activation' supports .*foo" "$HEDDLE" kernels --set 'model.activation="foo"'

# A checkpoint stays the model that was trained.
for command in "translate --checkpoint run" "evaluate --checkpoint run --source same.en --reference same.en"; do
  expect 78 '^heddle: model.stacks = \["decoder"\]: .* was trained with \["encoder", "decoder"\]' \
    "$HEDDLE" $command --set 'model.stacks=["decoder"]' < /dev/null
done
expect 78 '^heddle: --set model.encoder.layer.1.activation=foo: model.encoder.layer.1.activation: no implementation' \
  "$HEDDLE" kernels --set model.encoder.layer.1.activation=foo
