#!/usr/bin/env bash
# Decoder-only and encoder-only models, from text to what they are for: a decoder continues prompts, an encoder predicts masked tokens.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1

# prepare --text: lines are kept whole, and the vocabulary has a mask token.
"$HEDDLE" demo-data --out demo --train 1500 --valid 60 --test 20 > log
{ cat demo/train.en; echo; for _ in $(seq 40); do printf 'nine hundred and seven '; done; echo; } | gzip > train.gz
"$HEDDLE" prepare --text train.gz --valid-text demo/valid.en --vocab-size 90 --out text > log 2>&1 || fail "prepare --text"
grep -q '^train: 1,501 lines, .*; left out: 1 empty$' log || fail "prepare counts otherwise"
"$HEDDLE" prepare --source demo/train.en --target demo/train.de --valid-source demo/valid.en --valid-target demo/valid.de \
  --vocab-size 120 --out pairs > log 2>&1 || fail "prepare"
"$HEDDLE" inspect text > shown
grep -q 'train.h5: 1,501 lines of text, ' shown && grep -q '^vocabulary: 90 pieces (.*end 3, mask 4)$' shown && grep -q '^tokens in a line: ' shown &&
  grep -qx "  $(head -n 1 demo/train.en)" shown || { cat shown; fail "inspect text"; }
expect 64 'expected either --source and --target, or --tsv, for pairs, or --text' "$HEDDLE" prepare --text train.gz --source x --out y
expect 64 'lines of --text are never left out' "$HEDDLE" prepare --text train.gz --max-length 9 --out y

configure 'data.train="text/train.h5"' 'data.valid="text/valid.h5"' model.encoder_layers=2 model.decoder_layers=2 model.heads=4 \
  model.dropout=0.1 model.attention_dropout=0.1 model.max_length=48 train.steps=16 train.batch_tokens=512 \
  train.micro_batch_tokens=128 train.validate_every=8 train.log_every=1 train.label_smoothing=0.0 optimizer.learning_rate=0.01 \
  optimizer.warmup_steps=8 optimizer.clip_norm=1.0 checkpoint.every_steps=4
last_step=16

# train_kind KIND RANKS EXIT-CODE DIRECTORY KEY=VALUE...: train_layout with this one stack.
train_kind() { train_layout "${@:2:3}" "model.stacks=[\"$1\"]" "${@:5}"; }
last() { sed -n "s/.*\"step\":16,.*\"$2\":\([0-9.E+-]*\).*/\1/p" "$1/metrics.jsonl"; }
without_times() { sed 's/"tokens_per_second":[^,]*,"seconds":[^,}]*//' "$1/metrics.jsonl"; }

for kind in decoder encoder; do
  train_kind $kind 0 0 $kind
  grep -q "1,501 lines of text, joined into sequences of at most 48 tokens; 1 of them are split" log || fail "$kind: no counts"
  grep -q '^validate_bleu = false$' $kind/config.toml || fail "$kind: BLEU is not off by default"
  train_kind $kind 0 78 refused train.validate_bleu=true
  grep -q 'train.validate_bleu = true needs a model that translates: .*; or set train.validate_bleu = false' log ||
    fail "$kind: BLEU that was asked for is not refused"
  [ ! -e refused ] || fail "a refused run left its directory behind"

  # Any data-parallel size in deterministic mode: bitwise the same run.
  for ranks in 1 3; do
    train_kind $kind "$ranks" 0 "$kind-data$ranks" train.deterministic=true
    same_parameters "$kind-data1" "$kind-data$ranks"
  done
  # Other layouts: the trajectory of one rank.
  train_kind $kind 2 0 $kind-ring context=2
  train_kind $kind 4 0 $kind-ulysses context=2 context_mode=ulysses data=2 shard_optimizer=true
  train_kind $kind 4 0 $kind-grid tensor=2 pipeline=2 sequence_parallel=true
  for layout in ring ulysses grid; do near $kind $kind-$layout 16 valid_accuracy:0.05; done

  # Killed and resumed: bitwise the undisturbed run.
  setsid "$HEDDLE" train run.toml --set "model.stacks=[\"$kind\"]" --set run.directory=$kind-killed > log 2>&1 &
  victim=$!
  wait_for_step $kind-killed 6
  kill -KILL "$victim"
  wait "$victim" 2> /dev/null || true
  train_kind $kind 0 0 $kind-killed
  grep -q "resuming after step" log || fail "$kind: the killed run did not resume"
  same_parameters $kind $kind-killed
  diff <(without_times $kind) <(without_times $kind-killed) > log || fail "$kind: metrics.jsonl of the killed run differs"

  # evaluate --text gives the numbers of the validation.
  "$HEDDLE" evaluate --checkpoint $kind --which last --text demo/valid.en > scores 2> log || fail "$kind: evaluate"
  awk -v reported="$(last $kind valid_perplexity)" \
    '/^perplexity/ {found = $3} END {exit !(found > 0.999 * reported && found < 1.001 * reported)}' scores ||
    { cat scores; fail "$kind: training reported a perplexity of $(last $kind valid_perplexity)"; }
done
! grep -q valid_accuracy decoder/metrics.jsonl || fail "a decoder reports the accuracy of masked tokens"
grep -q '^perplexity = [0-9.]* ([0-9.]* nats for each of [0-9,]* masked tokens)$' scores || { cat scores; fail "no masked tokens"; }
awk -v reported="$(last encoder valid_accuracy)" \
  '/^masked accuracy/ {found = $4 / 100} END {exit !(found > reported - 0.005 && found < reported + 0.005)}' scores ||
  { cat scores; fail "training reported an accuracy of $(last encoder valid_accuracy)"; }

# generate: greedy by default, in any window and batch; drawn text follows the seed and the line.
{ sed -n 1,6p demo/test.en | cut -d ' ' -f 1,2; echo; } > prompts
"$HEDDLE" generate --checkpoint decoder --max-length 12 < prompts > greedy
[ "$(wc -l < greedy)" = 7 ] || fail "$(wc -l < greedy) continuations of 7 prompts"
"$HEDDLE" generate --checkpoint decoder --max-length 12 --window 2 --batch-tokens 1 --input prompts --output windows
cmp greedy windows || fail "windows or batches change continuations"
"$HEDDLE" generate --checkpoint decoder --max-length 12 --with-prompt < prompts > whole
paste -d '' prompts greedy | cmp - whole || fail "--with-prompt is not the prompt and its continuation"
draw() { "$HEDDLE" generate --checkpoint decoder --max-length 12 --temperature 1.5 --top-k 20 --top-p 0.95 "$@"; }
draw --seed 7 < prompts > drawn
draw --seed 7 --window 3 --batch-tokens 1 < prompts | cmp - drawn || fail "windows or batches change what is drawn"
! draw --seed 8 < prompts | cmp -s - drawn || fail "another seed draws the same"
! cmp -s greedy drawn || fail "nothing was drawn"
"$HEDDLE" generate --checkpoint decoder --max-length 12 --beam 3 < prompts > beams
[ "$(wc -l < beams)" = 7 ] || fail "beam search lost a line"
for _ in $(seq 30); do printf 'seven thousand '; done > long
input=long expect 0 '^heddle: line 1: .* tokens; only the last 24 are continued' "$HEDDLE" generate --checkpoint decoder
expect 64 'set a temperature above 0' "$HEDDLE" generate --checkpoint decoder --top-k 5
expect 64 'the beam size is 1' "$HEDDLE" generate --checkpoint decoder --temperature 1 --beam 2

# A decoder with a prefix mask: of text, and of pairs, which it translates.
prefix=('model.decoder.self_attention={mask="prefix"}')
train_kind decoder 0 0 prefix "${prefix[@]}"
for layout in tensor=2 context=2 "context=2 parallel.context_mode=ulysses"; do
  train_kind decoder 2 0 "prefix-${layout// /-}" "${prefix[@]}" $layout
  near prefix "prefix-${layout// /-}" 16 valid_accuracy:0.05
done
"$HEDDLE" evaluate --checkpoint prefix --which last --text demo/valid.en > scores 2> log || fail "prefix: evaluate"
awk -v reported="$(last prefix valid_perplexity)" \
  '/^perplexity/ {found = $3} END {exit !(found > 0.999 * reported && found < 1.001 * reported)}' scores ||
  { cat scores; fail "prefix: training reported a perplexity of $(last prefix valid_perplexity)"; }
! cmp -s <(cut -d , -f 2 prefix/metrics.jsonl) <(cut -d , -f 2 decoder/metrics.jsonl) || fail "a prefix changes no loss"
train_kind decoder 0 0 prefix-pairs "${prefix[@]}" data.train=pairs/train.h5 data.valid=pairs/valid.h5
grep -q '1,500 sentence pairs, the sources as prefixes of the targets' log || fail "prefix: pairs are not announced"
head -n 5 demo/test.en > sentences
"$HEDDLE" generate --checkpoint prefix-pairs --end-prompt --input sentences > translated
[ "$(wc -l < translated)" = 5 ] || fail "prefix: $(wc -l < translated) translations of 5 sentences"
"$HEDDLE" generate --checkpoint prefix-pairs --end-prompt --with-prompt --batch-tokens 1 --window 2 --input sentences |
  cmp - <(paste sentences translated) || fail "prefix: windows or batches change translations"

# Denoising trains an encoder-decoder model from text, whose masks are others in each epoch.
expect 78 'vocabulary of text/.*.h5 has no piece <extra_id_0>; `heddle prepare --text … --sentinels 100`' \
  "$HEDDLE" train run.toml --set train.task=denoising
"$HEDDLE" prepare --text train.gz --valid-text demo/valid.en --vocab-size 110 --sentinels 12 --out sentinels > log 2>&1 ||
  fail "prepare --sentinels"
for noise in spans infilling; do
  expect 0 '' "$HEDDLE" train run.toml --set run.directory=$noise --set train.task=denoising \
    --set train.noise=$noise --set train.steps=4 --set data.train=sentinels/train.h5 --set data.valid=sentinels/valid.h5
  ! grep -q "sentinels for them" stderr || fail "a warning about sentinels that are enough"
  grep -q '"valid_loss"' $noise/metrics.jsonl && ! grep -q valid_bleu $noise/metrics.jsonl || fail "denoising measures"
done
expect 0 'warning: sentinels/train.h5: the longest samples have [0-9]* spans to mask .* has 12 sentinels for them' \
  "$HEDDLE" train run.toml --dry-run --set run.directory=short --set train.task=denoising --set train.span_length=1 \
  --set train.mask_rate=0.5 --set data.train=sentinels/train.h5 --set data.valid=sentinels/valid.h5
expect 0 '' "$HEDDLE" evaluate --checkpoint infilling --text demo/valid.en
grep -q '^perplexity = ' stdout || fail "denoising is not evaluated"

# A kind of model, a dataset and a command that do not fit are named, with a fix.
train_kind encoder 0 78 refused data.train=pairs/train.h5 data.valid=pairs/valid.h5
grep -q 'model.stacks = \["encoder"\] predicts masked tokens, but the vocabulary of pairs/valid.h5 has no piece <mask>' log ||
  fail "an encoder and pairs"
expect 78 'is trained on sentence pairs, but text/.*.h5 has lines of text; make pairs with' "$HEDDLE" train run.toml
"$HEDDLE" train run.toml --set run.directory=both --set data.train=pairs/train.h5 --set data.valid=pairs/valid.h5 \
  --set train.steps=2 > log 2>&1 || fail "train with both stacks"
expect 78 'heddle generate needs a decoder-only model: .*model.stacks = \["encoder", "decoder"\] has an encoder' \
  "$HEDDLE" generate --checkpoint both
expect 78 'heddle generate needs a decoder-only model: .*model.stacks = \["encoder"\] has no decoder' \
  "$HEDDLE" generate --checkpoint encoder
expect 78 'is for models trained on monolingual text, but .*model.stacks = \["encoder", "decoder"\] is trained on pairs' \
  "$HEDDLE" evaluate --checkpoint both --text demo/valid.en
expect 78 'has no decoder, .*; `heddle evaluate --text` measures such a model' "$HEDDLE" generate --checkpoint encoder
expect 78 'heddle translate needs .* has no encoder, .*; `heddle generate` continues text with a decoder-only model' \
  "$HEDDLE" translate --checkpoint decoder
for command in translate "evaluate --source demo/test.en --reference demo/test.de"; do
  # shellcheck disable=SC2086 # words
  expect 78 'needs a model that translates: .*; `heddle evaluate --text` measures such a model' \
    "$HEDDLE" $command --checkpoint encoder
done
expect 78 '; if it was trained on pairs, `heddle generate --end-prompt` translates, and `heddle evaluate --hypotheses`' \
  "$HEDDLE" evaluate --checkpoint prefix-pairs --source demo/test.en --reference demo/test.de
expect 78 'measures translations: .*"denoising" is trained on text, .*; `heddle evaluate --text` measures such a model' \
  "$HEDDLE" evaluate --checkpoint infilling --source demo/test.en --reference demo/test.de
input=sentences expect 0 'warning: .*"denoising" is trained on text, not on translations' \
  "$HEDDLE" translate --checkpoint infilling
expect 64 'evaluate: --source belongs to translations' "$HEDDLE" evaluate --checkpoint encoder --text x --source y
echo > blank
expect 65 'blank: none of its 1 lines has a token' "$HEDDLE" evaluate --checkpoint encoder --text blank
echo "model kinds: all as promised"
