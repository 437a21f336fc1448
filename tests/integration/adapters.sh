#!/usr/bin/env bash
# Low-rank adapters: trained under several layouts, saved alone beside a base, used, merged, and exchanged with PEFT.
source "$HEDDLE_SOURCE/tests/integration/small_run"
export OMP_NUM_THREADS=1
golden=$HEDDLE_SOURCE/tests/golden/exchange

train=("$HEDDLE" train run.toml --set train.validate_every=0)
ends 0 "${train[@]}" --set run.directory=first --set train.steps=10
adapted=(--set adapter.rank=4 --set 'adapter.targets=["*attention.q", "*attention.v", "*.up", "*.down"]'
  --set adapter.dropout=0.1 --set train.initialize_from=first --set optimizer.warmup_steps=0 --set train.steps=10)
alone=("${adapted[@]}" --set adapter.save_base=false)

# The base is frozen, and a checkpoint has the adapters only.
ends 0 "${train[@]}" --set run.directory=tuned "${alone[@]}"
grep -q "of them frozen)" log || fail "the base is not frozen"
h5ls "$(state tuned 10)/tensors-00000.h5/parameters" > names
[ "$(grep -c lora_ names)" = "$(wc -l < names)" ] || fail "the checkpoint has other parameters than adapters"
ends 0 "${train[@]}" --set run.directory=whole "${adapted[@]}"
tensors() { echo "$(state "$1" 10)/tensors-00000.h5"; }
base=$(h5ls "$(tensors first)/parameters" | wc -l)
adapters=$(wc -l < names)
[ "$(common "$(tensors first)" "$(tensors whole)" '/value>$')" -eq "$base" ] || fail "the base was not frozen"
[ "$(common "$(tensors tuned)" "$(tensors whole)" .)" -eq $((3 * adapters)) ] || fail "adapters depend on what is saved"

# Stopped and resumed, also from another layout and from memory, it is the same run.
ends 0 "${train[@]}" --set run.directory=again "${alone[@]}" --set train.steps=5
ends 0 "${train[@]}" --set run.directory=again "${alone[@]}"
grep -q "resuming after step 5" log || fail "it did not resume"
same tuned again 10
for layout in parallel.tensor=2 parallel.pipeline=2 parallel.shard_optimizer=true; do
  ends 0 "$HEDDLE_MPIRUN" -n 2 "${train[@]}" --set run.directory="on-$layout" --set "$layout" "${alone[@]}" --set train.steps=5
  ends 0 "${train[@]}" --set run.directory="on-$layout" "${alone[@]}"
  grep -q "resuming after step 5" log || fail "it did not resume from $layout"
done

# Frozen weights that are kept in bfloat16 are stored as such, or read rounded from the base: the same run, which
# resumes from any layout with the same bits, and the same model.
rounded=(--set train.frozen_precision=bfloat16 --set run.directory)
named_base() { h5dump -d /base "$(state "$1" 10)/state.h5" | tail -n +2; }
ends 0 "${train[@]}" "${adapted[@]}" "${rounded[@]}=rounded"
ends 0 "${train[@]}" "${alone[@]}" "${rounded[@]}=rounded-alone"
h5diff "$(state first 10)/tensors-00000.h5" "$(state rounded 10)/tensors-00000.h5" > difference && fail "nothing was rounded"
[ "$(stat -c %s "$(state rounded 10)/tensors-00000.h5")" -lt "$(stat -c %s "$(state whole 10)/tensors-00000.h5")" ] ||
  fail "the checkpoint with rounded weights is not smaller"
[ "$(common "$(tensors rounded-alone)" "$(tensors rounded)" .)" -eq $((3 * adapters)) ] || fail "adapters depend on what is saved"
ends 0 "${train[@]}" "${alone[@]}" "${rounded[@]}=rounded-again" --set train.steps=5
ends 0 "${train[@]}" "${alone[@]}" "${rounded[@]}=rounded-again"
same rounded-alone rounded-again 10
for layout in parallel.tensor=2 parallel.pipeline=2 parallel.shard_optimizer=true; do
  ends 0 "$HEDDLE_MPIRUN" -n 2 "${train[@]}" "${adapted[@]}" "${rounded[@]}=rounded-$layout" --set "$layout" --set train.steps=5
  ends 0 "${train[@]}" "${adapted[@]}" "${rounded[@]}=rounded-$layout"
  grep -q "resuming after step 5" log || fail "it did not resume from $layout"
  [ "$(common "$(tensors rounded)" "$(tensors "rounded-$layout")" '\\.(weight|bias)/value>$')" -eq "$base" ] || fail "$layout changed the base"
  cmp <(named_base rounded) <(named_base "rounded-$layout") || fail "$layout: a resumed run names its base differently"
done
ends 78 "${train[@]}" "${alone[@]}" --set run.directory=rounded-alone --set train.steps=11
grep -q "train.frozen_precision" log || fail "the precision that a run keeps is not named"
head -n 5 text/test.en > five
ends 0 "$HEDDLE" translate --checkpoint rounded --input five --output expected
ends 0 "$HEDDLE" translate --checkpoint rounded-alone --input five --output found
cmp expected found || fail "the model with rounded weights depends on what is saved"

# Only its own base will do, wherever that is.
head -n 5 text/test.en > five
ends 0 "$HEDDLE" translate --checkpoint tuned --input five --output expected
ends 0 "$HEDDLE" translate --checkpoint first --adapter tuned --input five --output found
cmp expected found || fail "the adapters of a run on its base are another model"
ends 0 "${train[@]}" --set run.directory=other --set train.steps=10 --set train.seed=2
ends 65 "$HEDDLE" translate --checkpoint other --adapter tuned --input five --output found
mv first moved
mv other first
ends 65 "$HEDDLE" translate --checkpoint tuned --input five --output found
grep -q "is another checkpoint" log || fail "another base is not named"
ends 65 "${train[@]}" --set run.directory=tuned "${alone[@]}" --set train.steps=11
ends 0 "$HEDDLE" translate --checkpoint moved --adapter tuned --input five --output found
cmp expected found || fail "it is another model on the base that was moved"
ends 0 "${train[@]}" --set run.directory=tuned "${alone[@]}" --set train.initialize_from=moved --set train.steps=11
ends 0 "$HEDDLE" translate --checkpoint whole --input five --output found
cmp expected found || fail "the model that was saved whole is another one"
ends 78 "${train[@]}" --set run.directory=bad "${adapted[@]}" --set 'adapter.targets=["*.gate"]'
grep -q 'the pattern "\*.gate", which matches no projection' log || fail "a target without projections is not named"
ends 78 "${train[@]}" --set run.directory=whole "${adapted[@]}" --set train.initialize_from=moved --set adapter.rank=3

# Lines choose between several runs of adapters on one base: each gets what its adapters alone give.
ends 0 "${train[@]}" --set run.directory=second "${alone[@]}" --set adapter.rank=2 --set train.initialize_from=moved --set train.seed=7
head -n 12 text/test.en > twelve
names=(tuned "" second)
for name in "${names[@]}"; do
  ends 0 "$HEDDLE" translate --checkpoint moved ${name:+--adapter "$name"} --n-best 2 --input twelve --output "alone.$name"
done
cmp -s alone.tuned alone.second && fail "both adapters are one model"
paste <(for ((line = 0; line < 12; ++line)); do echo "${names[$((line / 2 % 3))]}"; done) twelve > chosen
several=(--checkpoint moved --adapter tuned=tuned --adapter second=./second)
ends 0 "$HEDDLE" translate "${several[@]}" --adapter-column --n-best 2 --input chosen --output found
for ((line = 0; line < 12; ++line)); do
  grep "^$line |||" "alone.${names[$((line / 2 % 3))]}"
done > expected
# A product's last bits may depend on how many rows it has, so scores may differ in their last digits.
awk -F ' [|][|][|] ' 'NR == FNR { text[FNR] = $1 FS $2; score[FNR] = $3; lines = FNR; next }
  $1 FS $2 != text[FNR] || $3 - score[FNR] > 1e-5 || score[FNR] - $3 > 1e-5 { differ = 1 }
  END { exit differ || FNR != lines }' expected found || fail "a line has not what its adapters alone give"
ends 0 "$HEDDLE" translate --checkpoint moved --adapter x=second --input twelve --output found
ends 64 "$HEDDLE" translate "${several[@]}" --input chosen --output found
ends 64 "$HEDDLE" translate --checkpoint moved --adapter second --adapter-column --input chosen --output found
ends 64 "$HEDDLE" translate --checkpoint moved --adapter second --adapter tuned --input chosen --output found
ends 65 "$HEDDLE" translate "${several[@]}" --adapter-column --input twelve --output found
grep -q "line 1 has no tab" log || fail "a line without a column is not named"
printf 'third\tA line.\n' > third
ends 65 "$HEDDLE" translate "${several[@]}" --adapter-column --input third --output found
grep -q 'line 1: there are no adapters "third"' log || fail "adapters that there are not are not named"
ends 0 "${train[@]}" --set run.directory=moved --set train.steps=11
ends 65 "$HEDDLE" translate "${several[@]}" --which last --adapter-column --input chosen --output found
grep -q "were trained with another checkpoint" log || fail "another checkpoint of the base is not named"

# A model of transformers gets adapters on two ranks: they go out alone and come back, and are merged.
ends 0 "$HEDDLE" import "$golden/marian" --out marian
ends 0 "$HEDDLE" prepare --source text/train.en --target text/train.de --vocab-model marian/source.model \
  --target-vocab-model marian/target.model --max-length 30 --out own
ends 0 "$HEDDLE_MPIRUN" -n 2 "$HEDDLE" train marian/config.toml --set parallel.tensor=2 --set run.directory=lora \
  --set train.initialize_from=marian --set data.train=own/train.h5 --set train.validate_every=0 --set train.steps=5 \
  --set train.batch_tokens=256 --set train.micro_batch_tokens=128 --set optimizer.warmup_steps=0 \
  --set optimizer.learning_rate=0.01 --set adapter.rank=2 --set adapter.save_base=false
ends 78 "$HEDDLE" export lora --out lora.out
grep -q "has adapters: --merge" log || fail "it is not said what adapters need"
ends 0 "$HEDDLE" export lora --merge --out merged
grep -q "logits of a probe" log || fail "what was merged was not compared"
cmp -s marian/model.safetensors merged/model.safetensors && fail "nothing was merged"
ends 0 "$HEDDLE" export lora --merge --out merged.ct2 --format ctranslate2 --quantization int8
ends 0 "$HEDDLE" export lora --format peft --out lora.peft
[ "$(cd lora.peft && echo *)" = "adapter_config.json adapter_model.safetensors" ] || fail "other files were written"
ends 0 "$HEDDLE" import lora.peft --base marian --out lora.again --set adapter.save_base=false
ends 0 "$HEDDLE" export lora.again --format peft --out lora.back
cmp lora.peft/adapter_model.safetensors lora.back/adapter_model.safetensors || fail "other adapters came back"
ends 0 "$HEDDLE" export lora.again --merge --out merged.again
cmp merged/model.safetensors merged.again/model.safetensors || fail "other weights were merged"
ends 64 "$HEDDLE" import lora.peft --out lora.bad
ends 64 "$HEDDLE" export lora --format peft --merge --out lora.bad
ends 78 "$HEDDLE" export marian --format peft --out lora.bad
ends 78 "$HEDDLE" average lora.again --out lora.bad
grep -q "has adapters without their base" log || fail "it is not said why adapters have no mean"
sed -i 's/"fan_in_fan_out":false/"fan_in_fan_out":true/' lora.peft/adapter_config.json
ends 78 "$HEDDLE" import lora.peft --base marian --out lora.bad
grep -q "fan_in_fan_out = true cannot be imported" log || fail "the key is not named"
[ ! -e lora.bad ] || fail "a refused command left files"
echo "adapters were trained, saved, merged and exchanged"
