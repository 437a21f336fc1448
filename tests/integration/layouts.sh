#!/usr/bin/env bash
# A model spread over ranks in every way: the trajectory of one rank, a change of layout between two runs, a crash, and
# impossible layouts.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*"; [ ! -e log ] || tail -n 20 log; exit 1; }

"$HEDDLE" demo-data --out text --train 2000 --valid 60 --test 20 > log 2>&1 || fail "demo-data"
"$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source text/valid.en \
  --valid-target text/valid.de --vocab-size 151 --out data > log 2>&1 || fail "prepare"
"$HEDDLE" prepare --source text/valid.en --target text/valid.de --valid-source text/test.en --valid-target text/test.de \
  --vocab-model data/vocab.model --out other > log 2>&1 || fail "prepare a second validation set"
cat > run.toml << 'TOML'
[run]
directory = "run"
[data]
train = "data/train.h5"
valid = "data/valid.h5"
[data.valid_sets]
other = "other/valid.h5"
[model]
encoder_layers = 2
decoder_layers = 2
d_model = 32
d_ff = 48
heads = 4
dropout = 0.1
attention_dropout = 0.1
activation_dropout = 0.1
max_length = 128
[train]
steps = 20
batch_tokens = 512
micro_batch_tokens = 128
validate_every = 10
log_every = 1
[optimizer]
learning_rate = 0.003
warmup_steps = 20
clip_norm = 1.0
[checkpoint]
every_steps = 10
TOML

# train RANKS EXIT-CODE DIRECTORY KEY=VALUE... : one run, which must end with this code; keys are those of [parallel]
# unless they name their section.
train() {
  local ranks=$1 expected=$2 code=0 arguments=(--set "run.directory=$3")
  shift 3
  for setting in "$@"; do
    [[ ${setting%%=*} == *.* ]] || setting=parallel.$setting
    arguments+=(--set "$setting")
  done
  "$HEDDLE_MPIRUN" -np "$ranks" "$HEDDLE" train run.toml "${arguments[@]}" > log 2>&1 || code=$?
  [ "$code" -eq "$expected" ] || fail "train on $ranks ranks with '$*': exit code $code instead of $expected"
}
state() { echo "$1/checkpoints/step-$(printf %08d "${2:-20}")"; }
# near A B: the losses, gradient norms and validations of two runs agree except for the rounding of float32 sums.
near() {
  paste -d '\n' "$1/metrics.jsonl" "$2/metrics.jsonl" | awk '
    function value(name) {
      if (!match($0, "\"" name "\":[^,}]*")) return "none"
      return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
    }
    function compare(name) {
      if (NR % 2) { before[name] = value(name); return }
      now = value(name); gap = now - before[name]; if (gap < 0) gap = -gap
      if (((now == "none") != (before[name] == "none")) || gap > 0.002 * (now < 0 ? -now : now)) {
        print "line " NR / 2 ": " name " " before[name] " and " now; wrong = 1
      }
    }
    { compare("step"); compare("train_loss"); compare("gradient_norm"); compare("tokens"); compare("valid_loss"); compare("valid_loss/other") }
    END { exit wrong || NR != 40 }' > difference || { cat difference; fail "the trajectories of $1 and $2 differ"; }
}

train 1 0 one
train 2 0 tensor tensor=2
train 2 0 context context=2 context_mode=ulysses
train 4 0 tensor_pipeline tensor=2 pipeline=2 pipeline_schedule=interleaved sequence_parallel=true
train 4 0 context_data context=2 data=2 shard_optimizer=true
train 8 0 all tensor=2 pipeline=2 context=2 shard_optimizer=true
for run in tensor context tensor_pipeline context_data all; do near one $run; done
# The entropy of attention is that of one rank where heads are divided, and is left out where layers or sequences are.
entropies() { grep -o '"decoder.layers.[0-9]*.cross_attention":[^,}]*' "$1/metrics.jsonl" | cut -d : -f 2; }
paste <(entropies one) <(entropies tensor) |
  awk '{ gap = $1 - $2; if (NF != 2 || gap > 0.001 || gap < -0.001) exit 1 } END { exit NR == 0 }' ||
  fail "attention has another entropy with tensor = 2"
[ -z "$(entropies tensor_pipeline)$(entropies context)" ] || fail "an entropy of a part of the model"
grep -q '"valid_bleu"' tensor_pipeline/metrics.jsonl || fail "no translations of a model in stages"

# Another layout between two runs: the parameters are bitwise those that were written (a learning rate of 0 keeps
# them), and the trajectory continues.
train 4 0 moved tensor=2 data=2 train.steps=10
values() { h5ls -r "$(echo "$(state "$1" "$2")"/tensors-*.h5)" | awk '/\/value / {print $1}'; }
cp -r moved still
train 4 0 still pipeline=2 context=2 train.steps=11 optimizer.learning_rate=0.0
[ "$(values still 11 | wc -l)" -gt 20 ] || fail "no parameters were compared"
for value in $(values still 11); do
  h5diff "$(echo "$(state still 10)"/tensors-*.h5)" "$(echo "$(state still 11)"/tensors-*.h5)" "$value" > difference ||
    { cat difference; fail "$value is not what another layout wrote"; }
done
cp -r moved shared
train 2 0 moved tensor=2 sequence_parallel=true
grep -q "resuming after step 10" log || fail "the run did not resume under another layout"
near one moved
train 4 0 shared pipeline=2 data=2 shard_optimizer=true
near one shared

# The same layout is the same run, bit for bit, also where one rank of four was killed in between.
setsid "$HEDDLE_MPIRUN" -np 4 "$HEDDLE" train run.toml --set run.directory=killed --set parallel.tensor=2 \
  --set parallel.pipeline=2 --set parallel.pipeline_schedule=interleaved --set parallel.sequence_parallel=true > log 2>&1 &
launcher=$!
for _ in $(seq 3000); do
  [ "$(cat killed/metrics.jsonl 2> /dev/null | wc -l)" -lt 13 ] || break
  sleep 0.02
done
victim=$(pgrep -P "$launcher" | tail -n 1) || fail "the run to be killed never began"
kill -KILL "$victim"
code=0
wait "$launcher" || code=$?
[ "$code" -ne 0 ] || fail "a run one of whose ranks was killed ended with 0"
train 4 0 killed tensor=2 pipeline=2 pipeline_schedule=interleaved sequence_parallel=true
grep -q "resuming after step 10" log || fail "the killed run did not resume"
h5diff "$(echo "$(state tensor_pipeline)"/tensors-*.h5)" "$(echo "$(state killed)"/tensors-*.h5)" /parameters > difference ||
  { head -n 5 difference; fail "the killed run's parameters differ"; }

# A login node translates with the checkpoint of many ranks.
head -n 3 text/test.en | "$HEDDLE" translate --checkpoint all > translations 2> log || fail "translate"
[ "$(wc -l < translations)" -eq 3 ] || fail "not every line was translated"

# Impossible layouts are refused before any training, with the reason and layouts that would work.
refuse() {
  local ranks=$1 reason=$2
  shift 2
  train "$ranks" 78 refused "$@"
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
