#!/usr/bin/env bash
# A corpus, shared by processes and by ranks: the same bytes from any number of them, also after kills; scores.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1
prepare_data 2000 40 300 120
configure train.steps=40 model.d_ff=32 model.max_length=40 train.batch_tokens=512 train.validate_bleu=false optimizer.learning_rate=0.01 \
  optimizer.warmup_steps=10
train 0 0
for copy in 1 2 3 4; do cat text/test.en; echo; printf 'one hundred %.0s' {1..40}; echo; done > corpus.en
gzip -k corpus.en
lines=$(wc -l < corpus.en)
translate() { "$HEDDLE" translate --checkpoint run --input corpus.en.gz --window 16 "$@"; }
ranks() { local count=$1; shift; "$HEDDLE_MPIRUN" -np "$count" "$HEDDLE" translate --checkpoint run --input corpus.en.gz --window 16 "$@"; }

# The same bytes, and the same messages in the order of the lines.
translate --threads 1 > one.de 2> one.messages
[ "$(wc -l < one.de)" = "$lines" ] && [ "$(wc -l < one.messages)" = 4 ] || fail "one process: $(wc -l < one.de) lines, $(wc -l < one.messages) messages"
for threads in 2 3; do
  translate --threads $threads > several.de 2> messages
  cmp one.de several.de && cmp one.messages messages || fail "$threads processes translate otherwise"
done
for count in 2 3; do
  ranks $count --output ranks.de 2> messages
  cmp one.de ranks.de && cmp one.messages messages || { cat messages; fail "$count ranks translate otherwise"; }
done
translate --threads 1 --output one.de.gz 2> log
ranks 2 --output ranks.de.gz 2> log
cmp one.de.gz ranks.de.gz && gzip -dc one.de.gz | cmp - one.de || fail "compressed output"
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" translate --checkpoint run --window 16 < corpus.en 2> log | cmp - one.de || fail "two ranks and the standard input"

# Also with the options of the search, prefixes and alignments.
head -100 corpus.en > part.en
sed 's/ .*//' part.en > prefixes
echo hundert > forbidden
options=(translate --checkpoint run --input part.en --window 16)
search=(--json --n-best 2 --align soft --beam 4 --beam-groups 2 --no-repeat-ngram 3 --min-length 2 --forbid forbidden --prefix prefixes)
"$HEDDLE" "${options[@]}" "${search[@]}" --threads 1 > one.jsonl
[ "$(wc -l < one.jsonl)" -gt 100 ] || fail "JSON lines"
"$HEDDLE" "${options[@]}" "${search[@]}" --threads 2 | cmp - one.jsonl || fail "two processes translate otherwise with options"
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" "${options[@]}" "${search[@]}" | cmp - one.jsonl || fail "two ranks translate otherwise with options"
"$HEDDLE" "${options[@]}" --temperature 1.2 --min-p 0.1 --threads 1 > drawn.de
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" "${options[@]}" --temperature 1.2 --min-p 0.1 | cmp - drawn.de || fail "two ranks draw otherwise"

# Groups of ranks that share a model: the same sentences, except for rounding; the same bytes from one group and from two.
ranks 2 --set parallel.tensor=2 --output group.de 2> log || { cat log; fail "a tensor group"; }
ranks 4 --set parallel.tensor=2 --output groups.de 2> log || { cat log; fail "two tensor groups"; }
cmp group.de groups.de || fail "two groups translate otherwise than one"
different=$(diff one.de group.de | grep -c '^<' || true)
[ "$different" -le $((lines / 100)) ] || fail "$different of $lines lines differ in a tensor group"
code=0
ranks 3 --set parallel.tensor=2 > stdout 2> stderr || code=$?
[ "$code" = 78 ] && grep -q 'parallel.tensor = 2: 3 ranks' stderr || { cat stderr; fail "three ranks in groups of two: $code"; }

# Killed at any time, the command continues where it was. Its processes end with it.
kills=0
while true; do
  setsid "$HEDDLE" translate --checkpoint run --input corpus.en.gz --window 16 --threads 2 --beam 8 --output killed.de 2> log &
  pid=$!
  before=$(wc -l 2> /dev/null < killed.de.journal || echo 0)
  for _ in $(seq 500); do
    [ "$(wc -l 2> /dev/null < killed.de.journal || echo 0)" -gt $((before + 6)) ] && break
    kill -0 $pid 2> /dev/null || break
    sleep 0.02
  done
  if kill -9 $pid 2> /dev/null; then
    wait $pid 2> /dev/null || true
    for _ in $(seq 100); do
      pgrep -s $pid > /dev/null || break
      sleep 0.05
    done
    pgrep -s $pid > /dev/null && fail "processes stay after their parent was killed"
    [ -e killed.de ] || kills=$((kills + 1))
  else
    wait $pid || { cat log; fail "a translation that continues"; }
  fi
  [ -e killed.de ] && break
done
[ "$kills" -ge 2 ] || fail "killed only $kills times"
translate --threads 1 --beam 8 2> log | cmp - killed.de || fail "the translation after $kills kills"
[ ! -e killed.de.partial ] || fail "a part stays beside a complete output"
[ ! -e one.de.gz.journal ] && [ ! -e one.de.gz.partial ] || fail "files stay beside an output that was not killed"

# The output of another command, or of another text, is not continued.
"$HEDDLE" translate --checkpoint run --input corpus.en.gz --window 16 --output other.de --threads 2 2> log &
pid=$!
until [ -s other.de.journal ] && [ "$(wc -l < other.de.journal)" -gt 2 ]; do kill -0 $pid 2> /dev/null || break; sleep 0.01; done
kill -9 $pid 2> /dev/null || true
wait $pid 2> /dev/null || true
if [ -e other.de.journal ]; then
  code=0
  translate --output other.de --beam 3 2> stderr || code=$?
  [ "$code" = 64 ] && grep -q 'another model or other options' stderr || { cat stderr; fail "other options: $code"; }
fi

# Scores of translations are those that translate gives them.
head -40 text/test.en > some.en
"$HEDDLE" translate --checkpoint run --n-best 3 < some.en > best
"$HEDDLE" score --checkpoint run --source some.en --target best --n-best > again
awk -F' [|][|][|] ' '{d = $3 - $4; if (d < 0) d = -d; if (NF != 4 || d > 2e-4) {print; bad = 1}} END {exit bad || NR != 120}' again ||
  fail "scores differ from those of translate"
awk -F' [|][|][|] ' '$1 != last {print $2 > "best.de"; print $3 > "best.scores"; last = $1}' last=-1 best
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" score --checkpoint run --source some.en --target best.de --window 8 --output scores 2> log
paste best.scores scores | awk '{d = $1 - $2; if (d < 0) d = -d; bad = bad || d > 2e-4} END {exit bad || NR != 40}' || fail "scores of two ranks"
"$HEDDLE" score --checkpoint run --source some.en --target best.de --tokens > scores.jsonl
[ "$(grep -c '^{"score":-[0-9.E+-]*,"log_probability":' scores.jsonl)" = 40 ] || fail "JSON lines of scores"

# Test sets are evaluated together, by any number of processes.
evaluate() { "$@" "$HEDDLE" evaluate --checkpoint run --test a=text/test.en,text/test.de --test b=some.en,best.de,text/short.de \
  --metric bleu --metric chrf++ --metric ter --confidence --window 16 2> log; }
head -40 text/test.de > text/short.de
evaluate env > one.scores || { cat log; fail evaluate; }
[ "$(grep -c '^test set [ab]$' one.scores)" = 2 ] && [ "$(grep -c '^TER|nrefs:[12]|bs:1000|seed:12345|' one.scores)" = 2 ] || { cat one.scores; fail "test sets"; }
evaluate "$HEDDLE_MPIRUN" -np 2 | cmp - one.scores || fail "two ranks evaluate otherwise"

# An evaluation that was killed continues, with the scores of one that was not.
long=("$HEDDLE" evaluate --checkpoint run --source text/test.en --reference text/test.de --window 16)
"${long[@]}" > long.scores 2> log
"${long[@]}" --output evaluated.de --threads 1 > killed.scores 2> log &
pid=$!
until [ -s evaluated.de.journal ] && [ "$(wc -l < evaluated.de.journal)" -gt 3 ]; do kill -0 $pid 2> /dev/null || break; sleep 0.01; done
kill -9 $pid 2> /dev/null && [ -s evaluated.de.partial ] || fail "the evaluation was not killed in the middle"
wait $pid 2> /dev/null || true
"${long[@]}" --output evaluated.de 2> log | cmp - long.scores || { cat log; fail "the scores after a kill"; }
head -300 one.de | cmp - evaluated.de || fail "the translations of an evaluation that was killed"
echo "one text, $lines lines, $kills kills"
