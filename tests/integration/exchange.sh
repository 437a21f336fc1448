#!/usr/bin/env bash
# A model of transformers comes in, is trained under a layout of several ranks, and goes out again.
source "$HEDDLE_SOURCE/tests/integration/small_run"
export OMP_NUM_THREADS=1
golden=$HEDDLE_SOURCE/tests/golden/exchange

# There and back: the same bytes of tensors.
for family in marian t5-v1.1 nllb mistral gpt2 gemma2 bert roberta xlm-roberta; do
  ends 0 "$HEDDLE" import "$golden/$family" --out "$family"
  grep -q "tensors, .* parameters" log || fail "$family: what was imported is not printed"
  ends 0 "$HEDDLE" export "$family" --out "$family.back"
  cmp "$golden/$family/model.safetensors" "$family.back/model.safetensors" || fail "$family: other tensors came back"
done
# Sentinels in the older form of T5's files, as their number.
cp -r "$golden/t5-v1.1" t5.files
echo '{"tokenizer_class": "T5Tokenizer", "extra_ids": 10}' > t5.files/tokenizer_config.json
ends 0 "$HEDDLE" import t5.files --out t5.older
grep -aq '<extra_id_9>' t5.older/source.model || fail "the sentinels are not found"
head -n 3 text/valid.en > three
ends 0 "$HEDDLE" translate --checkpoint marian --input three --output translated --max-length 8
[ "$(wc -l < translated)" = 3 ] || fail "an imported model does not translate"
ends 0 "$HEDDLE" generate --checkpoint mistral --input three --output continued --max-length 8

# An encoder predicts masked tokens, and learns to, on two ranks; the rows of types that no token has stay.
ends 0 "$HEDDLE" evaluate --checkpoint bert --text three
grep -q "masked tokens" log || fail "an imported encoder is not measured"
ends 0 "$HEDDLE" prepare --text text/train.en --vocab-model bert/source.model --out lines
ends 0 "$HEDDLE_MPIRUN" -n 2 "$HEDDLE" train bert/config.toml --set parallel.tensor=2 --set run.directory=bert.tuned \
  --set train.initialize_from=bert --set data.train=lines/train.h5 --set train.validate_every=0 --set train.steps=2 \
  --set train.batch_tokens=256 --set train.micro_batch_tokens=128 --set train.precision=bfloat16
ends 0 "$HEDDLE" export bert.tuned --out bert.tuned.out # its verification computes in float32
cmp "$golden/bert/vocab.txt" bert.tuned.out/vocab.txt || fail "the encoder's vocabulary is another one"
cmp -s bert.back/model.safetensors bert.tuned.out/model.safetensors && fail "training changed nothing in the encoder"

# Two texts are one sequence, over ranks that share its tokens, too; evaluate gives the numbers of the validation.
for set in train valid; do
  for side in en de; do cut -d ' ' -f 1,2 "text/$set.$side" > "$set.short.$side"; done
done
ends 0 "$HEDDLE" prepare --source train.short.en --target train.short.de --valid-source valid.short.en \
  --valid-target valid.short.de --vocab-model bert/source.model --out joined
ends 0 "$HEDDLE_MPIRUN" -n 2 "$HEDDLE" train bert/config.toml --set parallel.context=2 --set run.directory=bert.pairs \
  --set train.initialize_from=bert --set data.train=joined/train.h5 --set data.valid=joined/valid.h5 \
  --set train.validate_every=2 --set train.steps=2 --set train.batch_tokens=256 --set train.micro_batch_tokens=128
grep -q "pairs of texts, each joined into a sequence" log || fail "the encoder does not read pairs"
ends 0 "$HEDDLE" evaluate --checkpoint bert.pairs --text valid.short.en --pair valid.short.de
loss=$(sed -n 's/.*"valid_loss": *\([0-9.]*\).*/\1/p' bert.pairs/metrics.jsonl | tail -n 1)
grep "masked tokens" log | awk -v loss="$loss" -F '[( ]' '/^perplexity/ {for (i = 1; i < NF; ++i) if ($(i + 1) == "nats") nats = $i}
  END {exit !(nats > loss - 0.001 && nats < loss + 0.001)}' || fail "training reported a loss of $loss on pairs"
ends 64 "$HEDDLE" evaluate --checkpoint bert.pairs --source three --pair three --reference three
ends 78 "$HEDDLE" evaluate --checkpoint mistral --text three --pair three

# Marian's own files, and CTranslate2's, which only go out.
ends 0 "$HEDDLE" import "$golden/marian_npz/model.npz" --out npz
ends 0 "$HEDDLE" import "$golden/marian_npz" --out npz.directory
ends 0 "$HEDDLE" export npz --out npz.back --format marian
ends 0 "$HEDDLE" import npz.back --out npz.again
ends 0 "$HEDDLE" export npz.again --out npz.twice --format marian
for file in model.npz decoder.yml vocab.spm; do
  cmp npz.back/$file npz.twice/$file || fail "$file is another one after a second time"
done
cmp "$golden/marian_npz/vocab.spm" npz.back/vocab.spm || fail "the vocabulary is another one"
ends 0 "$HEDDLE" translate --checkpoint npz --input three --output translated --max-length 8
for quantization in int8 int16 float16 bfloat16; do
  ends 0 "$HEDDLE" export npz --out "npz.$quantization" --format ctranslate2 --quantization "$quantization"
  [ -s "npz.$quantization/model.bin" ] && [ -s "npz.$quantization/shared_vocabulary.json" ] || fail "files are missing"
done
[ "$(stat -c %s npz.int8/model.bin)" -lt "$(stat -c %s npz.int16/model.bin)" ] || fail "int8 is not shorter than int16"
ends 64 "$HEDDLE" export npz --out npz.other --quantization int8
ends 64 "$HEDDLE" export npz --out npz.other --format marian --dtype float16
ends 78 "$HEDDLE" export marian --out npz.other --format marian
ends 78 "$HEDDLE" export mistral --out npz.other --format ctranslate2
[ ! -e npz.other ] && [ ! -e npz.other.part ] || fail "a refused export left files"
cp -r "$golden/marian_npz" npz.cut
head -c 30000 "$golden/marian_npz/model.npz" > npz.cut/model.npz
ends 65 "$HEDDLE" import npz.cut --out npz.cut.run

# A model of Marian's files that was trained further goes back: the vector that its decoder starts from stayed zero.
ends 0 "$HEDDLE" prepare --source text/train.en --target text/train.de --vocab-model npz/source.model \
  --target-vocab-model npz/target.model --max-length 30 --out npz.data
ends 0 "$HEDDLE_MPIRUN" -n 2 "$HEDDLE" train npz/config.toml --set parallel.tensor=2 --set run.directory=npz.tuned \
  --set train.initialize_from=npz --set data.train=npz.data/train.h5 --set train.validate_every=0 --set train.steps=2 \
  --set train.label_smoothing=0.1 --set train.batch_tokens=1024 --set train.micro_batch_tokens=1024
ends 0 "$HEDDLE" export npz.tuned --out npz.tuned.back --format marian
cmp -s npz.back/model.npz npz.tuned.back/model.npz && fail "training changed nothing"

# Only the model, for inference; the mean of several.
ends 0 "$HEDDLE" export npz.tuned --out stripped --format heddle
[ "$(du -s --apparent-size stripped | cut -f1)" -lt "$(du -s --apparent-size npz.tuned/checkpoints | cut -f1)" ] ||
  fail "the model alone is not smaller than the checkpoint"
ends 0 "$HEDDLE" translate --checkpoint npz.tuned --input three --output tuned.translated --max-length 8
ends 0 "$HEDDLE" translate --checkpoint stripped --input three --output stripped.translated --max-length 8
cmp tuned.translated stripped.translated || fail "the model alone translates otherwise"
ends 0 "$HEDDLE" inspect stripped
ends 0 "$HEDDLE" export stripped --out stripped.back --format marian
cmp npz.tuned.back/model.npz stripped.back/model.npz || fail "the model alone has other parameters"
ends 0 "$HEDDLE" export stripped --out halved --format heddle --dtype bfloat16
ends 0 "$HEDDLE" translate --checkpoint halved --input three --output translated --max-length 8
ends 0 "$HEDDLE" average stripped npz.tuned --out averaged
ends 0 "$HEDDLE" export averaged --out averaged.back --format marian
cmp npz.tuned.back/model.npz averaged.back/model.npz || fail "the mean of a model and itself is another one"
ends 0 "$HEDDLE" average npz npz.tuned --weights 1,3 --out weighted
ends 64 "$HEDDLE" average npz npz.tuned --out weighted
ends 64 "$HEDDLE" average npz npz.tuned --weights 1,0 --out other
ends 64 "$HEDDLE" average npz npz.tuned --weights 1 --out other
ends 64 "$HEDDLE" average npz --by bleu --out other
ends 65 "$HEDDLE" average npz --last 2 --out other
ends 78 "$HEDDLE" average npz marian --out other
[ ! -e other ] || fail "a refused average left files"
printf x | dd of=stripped/tensors-00000.h5 bs=1 seek=20000 conv=notrunc status=none
ends 65 "$HEDDLE" translate --checkpoint stripped --input three --output translated

# Training continues from it on two ranks, and ends with a model that has the tokenizer that came in.
ends 0 "$HEDDLE" prepare --source text/train.en --target text/train.de --vocab-model marian/source.model \
  --target-vocab-model marian/target.model --max-length 30 --out own
ends 0 "$HEDDLE_MPIRUN" -n 2 "$HEDDLE" train marian/config.toml --set parallel.tensor=2 --set run.directory=tuned \
  --set train.initialize_from=marian --set data.train=own/train.h5 --set train.validate_every=0 --set train.steps=2 \
  --set train.batch_tokens=256 --set train.micro_batch_tokens=128
grep -q "taken, 0 of them under another name; 0 start new; 0 left there" log || fail "not all parameters were taken"
ends 0 "$HEDDLE" export tuned --out tuned.out
cmp -s marian.back/model.safetensors tuned.out/model.safetensors && fail "training changed nothing"
for file in source.spm target.spm vocab.json tokenizer_config.json; do
  cmp "$golden/marian/$file" "tuned.out/$file" || fail "the tokenizer is another one"
done
ends 0 "$HEDDLE" import tuned.out --out again
ends 0 "$HEDDLE" export again --out again.out --dtype bfloat16
[ "$(stat -c %s again.out/model.safetensors)" -lt "$(stat -c %s tuned.out/model.safetensors)" ] || fail "bfloat16 is not shorter"

# A model of several languages: they are options of translation, and of the data on which it is trained further.
languages=(--source-language eng_Latn --target-language deu_Latn)
ends 64 "$HEDDLE" translate --checkpoint nllb --input three
grep -q "source-language is missing; the vocabulary's languages are: deu_Latn, eng_Latn" log || fail "the languages are not listed"
ends 0 "$HEDDLE" translate --checkpoint nllb "${languages[@]}" --input three --output translated --max-length 8
[ "$(wc -l < translated)" = 3 ] || fail "a model of several languages does not translate"
ends 65 "$HEDDLE" translate --checkpoint nllb --checkpoint marian "${languages[@]}" --input three
grep -q "different vocabularies; an ensemble needs one" log || fail "models of two vocabularies are an ensemble"
head -n 3 text/valid.de > three.de
ends 0 "$HEDDLE" evaluate --checkpoint nllb "${languages[@]}" --source three --reference three.de --max-length 8
ends 0 "$HEDDLE" inspect nllb --html page.html --source six "${languages[@]}"
grep -q '"source":\["eng_Latn",' page.html && grep -q ',"deu_Latn",' page.html || fail "the page has no languages"
prepared=(--source text/valid.en --target text/valid.de --valid-source text/valid.en --valid-target text/valid.de --max-length 30)
ends 64 "$HEDDLE" prepare "${prepared[@]}" --vocab-model nllb/source.model --out many
ends 0 "$HEDDLE" prepare "${prepared[@]}" --vocab-model nllb/source.model "${languages[@]}" --out many
ends 0 "$HEDDLE" train nllb/config.toml --set run.directory=many.run --set train.initialize_from=nllb \
  --set data.train=many/train.h5 --set data.valid=many/valid.h5 --set train.steps=2 --set train.validate_every=2 \
  --set train.validate_bleu=true --set train.batch_tokens=256 --set train.micro_batch_tokens=256
ends 0 "$HEDDLE" export many.run --out many.out
cmp "$golden/nllb/tokenizer_config.json" many.out/tokenizer_config.json || fail "the tokenizer of many languages is another one"

# A model that was trained here, with the defaults of [model] except its sizes, goes to all three; otherwise the key that
# stands in the way is named.
ends 0 "$HEDDLE" train run.toml --set train.steps=1 --set train.validate_every=0 --set run.directory=ours
ends 0 "$HEDDLE" export ours --out ours.out
grep -q '"architectures":\["MarianMTModel"\]' ours.out/config.json || fail "it is not a Marian model"
ends 0 "$HEDDLE" import ours.out --out ours.again
ends 0 "$HEDDLE" export ours --out ours.npz --format marian
grep -q "Its logits of a probe are at most" log || fail "it is not said what Marian computes otherwise"
ends 0 "$HEDDLE" import ours.npz --out ours.marian
ends 0 "$HEDDLE" export ours.marian --out ours.npz.again --format marian
cmp ours.npz/model.npz ours.npz.again/model.npz || fail "other bytes came back from Marian's files"
ends 0 "$HEDDLE" export ours --out ours.fast --format ctranslate2
ends 78 "$HEDDLE" export ours --out ours.t5 --family t5
grep -q "model.biases = true: a model of the family t5 has false" log || fail "the key is not named"
[ -z "$(find . -name 'ours.t5*')" ] || fail "a refused export left files"

# Files that cannot be used: nothing is left, and the reason is named.
ends 64 "$HEDDLE" export marian --out marian.back
ends 64 "$HEDDLE" import "$golden/marian" --out marian
mkdir taken
echo mine > taken/config.toml
ends 64 "$HEDDLE" import "$golden/marian" --out taken
ends 64 "$HEDDLE" average marian --out taken
[ "$(cat taken/config.toml)" = mine ] || fail "a file in the way was replaced"
ends 64 "$HEDDLE" export marian --format ctranslate2 --dtype float16 --quantization int8 --out other
ends 65 "$HEDDLE" import three --out bad
cp -r "$golden/marian" bad
head -c 20000 "$golden/marian/model.safetensors" > bad/model.safetensors
ends 65 "$HEDDLE" import bad --out bad.run
rm bad/model.safetensors
touch bad/pytorch_model.bin
ends 65 "$HEDDLE" import bad --out bad.run
grep -q "safe_serialization" log || fail "it is not said how to convert a pickle"
[ ! -e bad.run/checkpoints ] || fail "a refused import left a run"
echo "models came in and went out"
