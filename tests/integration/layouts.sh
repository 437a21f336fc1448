#!/usr/bin/env bash
# A model spread over ranks in every way: the trajectory of one rank, a change of layout between two runs, a crash, and
# impossible layouts.
source "$(dirname "${BASH_SOURCE[0]}")/common"
prepare_data 2000 60 20 151
"$HEDDLE" prepare --source text/valid.en --target text/valid.de --valid-source text/test.en --valid-target text/test.de \
  --vocab-model data/vocab.model --out other > log 2>&1 || fail "prepare a second validation set"
configure 'data.valid_sets.other="other/valid.h5"' model.encoder_layers=2 model.decoder_layers=2 model.heads=4 model.dropout=0.1 \
  model.attention_dropout=0.1 model.activation_dropout=0.1 model.max_length=128 train.steps=20 train.batch_tokens=512 \
  train.micro_batch_tokens=128 train.validate_every=10 train.log_every=1 optimizer.learning_rate=0.003 optimizer.warmup_steps=20 \
  optimizer.clip_norm=1.0 checkpoint.every_steps=10
last_step=20

train_layout 1 0 one
train_layout 2 0 tensor tensor=2
train_layout 2 0 context context=2 context_mode=ulysses
train_layout 4 0 tensor_pipeline tensor=2 pipeline=2 pipeline_schedule=interleaved sequence_parallel=true
train_layout 4 0 context_data context=2 data=2 shard_parameters=true shard_min_parameters=1
train_layout 8 0 all tensor=2 pipeline=2 context=2 encoder_tensor=4 shard_optimizer=true
for run in tensor context tensor_pipeline context_data all; do near one $run 20 valid_loss/other:0.002; done
# The entropy of attention is that of one rank where heads are divided, and is left out where layers or sequences are.
entropies() { grep -o '"decoder.layers.[0-9]*.cross_attention":[^,}]*' "$1/metrics.jsonl" | cut -d : -f 2; }
paste <(entropies one) <(entropies tensor) |
  awk '{ gap = $1 - $2; if (NF != 2 || gap > 0.001 || gap < -0.001) exit 1 } END { exit NR == 0 }' ||
  fail "attention has another entropy with tensor = 2"
[ -z "$(entropies tensor_pipeline)$(entropies context)" ] || fail "an entropy of a part of the model"
grep -q '"valid_bleu"' tensor_pipeline/metrics.jsonl || fail "no translations of a model in stages"

# Another layout between two runs: the parameters are bitwise those that were written (a learning rate of 0 keeps
# them), and the trajectory continues.
train_layout 4 0 moved tensor=2 data=2 train.steps=10
values() { h5ls -r "$(echo "$(state "$1" "$2")"/tensors-*.h5)" | awk '/\/value / {print $1}'; }
cp -r moved still
train_layout 4 0 still pipeline=2 context=2 train.steps=11 optimizer.learning_rate=0.0
[ "$(values still 11 | wc -l)" -gt 20 ] || fail "no parameters were compared"
for value in $(values still 11); do
  h5diff "$(echo "$(state still 10)"/tensors-*.h5)" "$(echo "$(state still 11)"/tensors-*.h5)" "$value" > difference ||
    { cat difference; fail "$value is not what another layout wrote"; }
done
cp -r moved shared
train_layout 2 0 moved tensor=2 encoder_tensor=1 sequence_parallel=true
grep -q "resuming after step 10" log || fail "the run did not resume under another layout"
near one moved 20 valid_loss/other:0.002
train_layout 4 0 shared pipeline=2 data=2 shard_parameters=true shard_min_parameters=4000
near one shared 20 valid_loss/other:0.002

# The same layout is the same run, bit for bit, also where backward passes are split, and one rank of four was killed
# in between.
setsid "$HEDDLE_MPIRUN" -np 4 "$HEDDLE" train run.toml --set run.directory=killed --set parallel.tensor=2 \
  --set parallel.pipeline=2 --set parallel.pipeline_schedule=interleaved --set parallel.zero_bubble=true \
  --set parallel.sequence_parallel=true > log 2>&1 &
launcher=$!
wait_for_step killed 13
victim=$(training_in killed | tail -n 1)
kill -KILL "$victim"
code=0
wait "$launcher" || code=$?
[ "$code" -ne 0 ] || fail "a run one of whose ranks was killed ended with 0"
train_layout 4 0 killed tensor=2 pipeline=2 pipeline_schedule=interleaved zero_bubble=true sequence_parallel=true
grep -q "resuming after step 10" log || fail "the killed run did not resume"
same_parameters tensor_pipeline killed

# A login node translates with the checkpoint of many ranks.
head -n 3 text/test.en | "$HEDDLE" translate --checkpoint all > translations 2> log || fail "translate"
[ "$(wc -l < translations)" -eq 3 ] || fail "not every line was translated"

# Impossible layouts are refused before any training, with the reason and layouts that would work.
refuse() {
  local ranks=$1 reason=$2
  shift 2
  train_layout "$ranks" 78 refused "$@"
  grep -q "$reason" log || fail "'$*' on $ranks ranks is refused without '$reason'"
  grep -q "parallel\.[a-z_]* = \|no layout" log || fail "'$*' on $ranks ranks is refused without a layout that works"
  [ ! -e refused ] || fail "a refused run left its directory behind"
}
refuse 4 "needs 8 ranks, but 4 run" tensor=2 pipeline=2 data=2
refuse 3 "model.heads = 4" tensor=3
refuse 5 "layers" pipeline=5
refuse 3 "encoder" pipeline=3 pipeline_schedule=interleaved
refuse 6 "ulysses" context=3 context_mode=ulysses tensor=2
refuse 8 "tokens" context=8 model.max_length=6
refuse 2 "stage_layers" pipeline=2 stage_layers=[1,2]
echo "layouts: all as promised"
