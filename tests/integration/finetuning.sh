#!/usr/bin/env bash
# A model comes in, its vocabulary grows, it is fine-tuned layer by layer under layouts of two ranks, and goes out again.
source "$HEDDLE_SOURCE/tests/integration/small_run"
export OMP_NUM_THREADS=1
golden=$HEDDLE_SOURCE/tests/golden/exchange

ends 0 "$HEDDLE" import "$golden/marian" --out marian
digest=$(sha256sum "$golden/marian/model.safetensors" | cut -d ' ' -f 1)
ends 0 "$HEDDLE" inspect marian
grep -q "^origin: a model of the family marian in marian, imported on 20" log || fail "the origin is not shown"
grep -q "^origin: .*model.safetensors (sha256 $digest)" log || fail "the digest of the weights is not shown"

# New pieces, of the command line and of a file.
printf '%s\n' '<2de>' '' ' zehnqq' > pieces
ends 0 "$HEDDLE" extend-vocabulary marian --pieces pieces --piece qqq --out grown
grep -q "^3 new pieces, from .* on; new rows in embedding.weight, output.bias" log || fail "the new rows are not named"
grep -q " <2de>: the mean of " log || fail "the parts are not named"
ends 64 "$HEDDLE" extend-vocabulary marian --piece qqq --out grown
ends 78 "$HEDDLE" extend-vocabulary marian --piece qqq --side target --out other
ends 65 "$HEDDLE" extend-vocabulary grown --piece qqq --out other
ends 65 "$HEDDLE" extend-vocabulary grown --language deu_Latn --out other
ends 64 "$HEDDLE" extend-vocabulary marian --out other
ends 64 "$HEDDLE" extend-vocabulary marian --piece qqq --side left --out other
[ ! -e other ] || fail "a refused growth left files"

# Data of the new vocabulary; data of the old one are refused.
for vocabulary in grown marian; do
  ends 0 "$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source text/valid.en \
    --valid-target text/valid.de --vocab-model "$vocabulary/source.model" \
    --target-vocab-model "$vocabulary/target.model" --max-length 30 --out "$vocabulary.data"
done
train=(train grown/config.toml --set train.initialize_from=grown --set data.valid=grown.data/valid.h5
  --set train.batch_tokens=256 --set train.micro_batch_tokens=128 --set train.validate_bleu=false)
ends 65 "$HEDDLE" "${train[@]}" --set data.train=marian.data/train.h5 --set run.directory=other
ends 78 "$HEDDLE" "${train[@]}" --set data.train=grown.data/train.h5
grep -q "training in its directory would delete it" log || fail "an import is trained in its place"
train+=(--set data.train=grown.data/train.h5 --set optimizer.warmup_steps=2 --set train.log_every=1)

# Layer-wise decay and groups that are unfrozen one after the other: the same bits in a run that stops and resumes.
tuning=("${train[@]}" --set train.validate_every=1 --set optimizer.layer_decay=0.8
  --set 'optimizer.group.top={parameters=["decoder.layers.*"],unfreeze_at=2}'
  --set 'optimizer.group.low={parameters=["encoder.layers.*"],unfreeze_at=5,learning_rate_factor=0.5}')
ranks=("$HEDDLE_MPIRUN" -n 2 "$HEDDLE")
sharded=("${tuning[@]}" --set parallel.shard_optimizer=true --set checkpoint.every_steps=2)
ends 0 "${ranks[@]}" "${sharded[@]}" --set run.directory=whole --set train.steps=8
grep -q "^from step 3 on, .* parameters are trained that were frozen before" log || fail "what is unfrozen is not said"
for step in 1 2 4 5 8; do
  ends 0 "${ranks[@]}" "${sharded[@]}" --set run.directory=stopped --set train.steps=$step
done
same whole stopped 8
for layout in parallel.tensor=2 parallel.pipeline=2 train.deterministic=true; do
  ends 0 "${ranks[@]}" "${tuning[@]}" --set "$layout" --set run.directory="$layout" --set train.steps=6
done
ends 0 "$HEDDLE" "${tuning[@]}" --dry-run --set run.directory=other
ends 78 "$HEDDLE" "${train[@]}" --set run.directory=other \
  --set 'optimizer.group.all={parameters=["*"],unfreeze_at=3}'

# A new run's best checkpoint is the best of its own, though the model that it starts with was better.
ends 0 "$HEDDLE" inspect whole
grep -q "^best validation loss: .* at step [1-8];" log || fail "there is no best checkpoint"
grep -q "^origin: vocabulary of marian extended by 3 pieces" log || fail "the origin is lost in training"
worse=("${train[@]}" --set train.initialize_from=whole --set train.validate_every=2 --set train.early_stopping=1)
ends 0 "$HEDDLE" "${worse[@]}" --set run.directory=worse --set train.steps=2 --set optimizer.learning_rate=0.5
grep -q "early stopping" log && fail "early stopping counted another run's validations"
ends 0 "$HEDDLE" inspect worse
grep -q "^best validation loss: .* at step 2; 0 validations since" log || fail "the best is not the new run's"
grep -q "^origin: .*model.safetensors (sha256 $digest)" log || fail "the origin is lost"
best() { "$HEDDLE" inspect "$1" 2> /dev/null | sed -n 's/^best validation loss: \([0-9.]*\) .*/\1/p'; }
awk "BEGIN { exit !($(best worse) > $(best whole)) }" || fail "the new run was not worse"

# Out again, with the new pieces.
ends 0 "$HEDDLE" export whole --out whole.out
ends 0 "$HEDDLE" export whole --which best --out whole.best
grep -q '<2de>' whole.out/tokenizer_config.json || fail "transformers does not know the new pieces"
[ ! -e whole.out/heddle_import.json ] || fail "the record of the import went out"
ends 0 "$HEDDLE" import whole.out --out again
ends 0 "$HEDDLE" export again --out again.out
cmp whole.out/model.safetensors again.out/model.safetensors || fail "other tensors came back"
ends 0 "$HEDDLE" export whole --out whole.fast --format ctranslate2
echo "fine-tuned: all as promised"
