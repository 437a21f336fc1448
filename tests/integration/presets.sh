#!/usr/bin/env bash
# Every preset of apps/examples/models trains: ten steps with narrow layers, but as many as published.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1

prepare_data 400 20 10 120
ends 0 "$HEDDLE" prepare --text text/train.en --valid-text text/valid.en --vocab-size 90 --out lines

# preset NAME DATA KEY=VALUE... : ten steps, with further keys of the shrunken model.
presets=0
preset() {
  local name=$1 data=$2 arguments=()
  shift 2
  for setting in "run.directory=$name" "data.train=$data/train.h5" "data.valid=$data/valid.h5" model.d_model=32 \
    model.d_ff=48 model.heads=4 model.max_length=64 train.steps=10 train.batch_tokens=256 train.micro_batch_tokens=128 \
    train.validate_every=10 train.validate_bleu=false train.log_every=1 checkpoint.every_steps=0 "$@"; do
    arguments+=(--set "$setting")
  done
  "$HEDDLE" train "$HEDDLE_SOURCE/apps/examples/models/$name.toml" "${arguments[@]}" > log 2>&1 || fail "$name"
  [ "$(grep -c '"train_loss": *[0-9]' "$name/metrics.jsonl")" = 10 ] || fail "$name: not ten losses"
  grep '"step": *10,' "$name/metrics.jsonl" | grep -q '"valid_loss": *[0-9]' || fail "$name: no validation"
  presets=$((presets + 1))
}

preset vaswani-base data
preset vaswani-big data
preset marian-base data
preset nllb-600m data
preset t5-v1.1-small data model.encoder.self_attention.head_dim=8 model.decoder.self_attention.head_dim=8 \
  model.decoder.cross_attention.head_dim=8
preset t5gemma-like data model.encoder.self_attention.head_dim=8 model.decoder.self_attention.head_dim=8 \
  model.decoder.cross_attention.head_dim=8
preset gpt2-small lines
preset bert-base lines
preset llama-like lines model.heads=8
[ "$presets" = "$(ls "$HEDDLE_SOURCE"/apps/examples/models/*.toml | wc -l)" ] || fail "a preset has no test"
echo "$presets presets trained for ten steps"
