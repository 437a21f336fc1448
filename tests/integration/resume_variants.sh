#!/usr/bin/env bash
# Models of every kind of attention and positions: killed by SIGKILL and resumed, they end as an undisturbed run, bitwise.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1
prepare_data 600 20 10 120

# configuration NAME KEYS TABLES : NAME.toml, a small model with these keys of [model] and tables of stacks.
configuration() {
  printf '%s\n' '[data]' 'train = "data/train.h5"' 'valid = "data/valid.h5"' '[train]' 'steps = 24' 'batch_tokens = 512' \
    'micro_batch_tokens = 256' 'validate_every = 0' 'log_every = 1' '[optimizer]' 'warmup_steps = 5' '[checkpoint]' \
    'every_steps = 8' '[model]' 'encoder_layers = 2' 'decoder_layers = 2' 'd_model = 32' 'd_ff = 48' 'heads = 4' \
    'max_length = 64' "$2" "$3" > "$1.toml"
}
train_variant() { "$HEDDLE" train "$1.toml" --set run.directory="$2" "${@:3}" > log 2>&1 || fail "train $1"; }
parameters() { echo "$1/checkpoints/step-00000024/"tensors-*.h5; }

variants=0
# variant NAME KEYS TABLES [OPTIONS] : killed after its first checkpoint and resumed.
variant() {
  configuration "$@"
  train_variant "$1" "$1.undisturbed" "${@:4}"
  setsid "$HEDDLE" train "$1.toml" --set run.directory="$1.killed" "${@:4}" > log 2>&1 &
  local victim=$!
  wait_for_step "$1.killed" 10
  kill -KILL "$victim" || fail "$1 ended before it was killed"
  wait "$victim" 2> /dev/null || true
  [ ! -e "$1.killed/checkpoints/step-00000024" ] || fail "$1 was killed too late"
  train_variant "$1" "$1.killed" "${@:4}"
  grep -q 'resuming after step' log || fail "$1 did not resume"
  h5diff $(parameters "$1.undisturbed") $(parameters "$1.killed") /parameters > difference ||
    { head -n 5 difference; fail "the resumed parameters of $1 differ"; }
  variants=$((variants + 1))
}

decoder() { printf '[model.decoder]\n%s' "$1"; }
variant window $'positions = "rotary"\nattention_dropout = 0.1' \
  "$(decoder 'self_attention = { window = 4, global_tokens = 1, kv_heads = 2 }')"
variant blocks $'positions = "alibi"\nrecompute = "attention"\nattention_dropout = 0.1' \
  "$(decoder 'self_attention = { window = 1, block = 4, soft_cap = 20.0 }')"
variant additive $'positions = "relative_buckets"\nattention_dropout = 0.1' \
  "$(decoder $'self_attention = { score = "additive" }\ncross_attention = { score = "additive", kv_heads = 1 }')"
variant linear $'positions = "learned"\nrecompute = "layer"' \
  "$(decoder $'self_attention = { score = "linear" }\ncross_attention = { score = "linear" }')"
variant prefix $'stacks = ["decoder"]\npositions = "rotary"\nattention_dropout = 0.1' \
  "$(decoder 'self_attention = { mask = "prefix" }')"
variant norms $'positions = "relative"\nnorm = "both"\nnorm_kind = "rms"\nactivation = "swiglu"\nembedding_norm = true' \
  "$(decoder 'self_attention = { query_key_norm = true, score = "dot_product" }')"
variant student 'activation_dropout = 0.1' "$(decoder $'tied_layers = [1, 1]
sublayers = ["ssru", "cross_attention", "feed_forward"]')"
variant experts $'activation_dropout = 0.1\nrecompute = "layer"' $'[model.encoder.layer.2]
sublayers = ["self_attention", "mixture_of_experts"]
mixture_of_experts = { experts = 4, capacity_factor = 1.0, router_z_loss = 0.01, balance_bias_rate = 0.001 }
[model.decoder.layer.1]
sublayers = ["self_attention", "cross_attention", "mixture_of_experts"]
mixture_of_experts = { experts = 3, experts_per_token = 1, shared_d_ff = 16 }'
# One group is unfrozen between two checkpoints, one by the step of a checkpoint.
variant unfreezing 'positions = "learned"' $'[optimizer.group.top]
parameters = ["decoder.layers.0.*", "decoder.*.norm.*"]\nunfreeze_at = 9
[optimizer.group.low]\nparameters = ["encoder.layers.*.weight"]\nunfreeze_at = 16\nlearning_rate_factor = 0.5'
variant rules $'positions = "learned"' $'[optimizer.group.lion]\nparameters = ["encoder.layers.*"]\nname = "lion"\nweight_decay = 0.1
learning_rate_factor = 0.2\n[optimizer.group.sgd]\nparameters = ["decoder.layers.*"]\nname = "sgd"\nnesterov = true'

variant soap 'dropout = 0.1' '' --set optimizer.name=soap --set optimizer.precondition_frequency=5
variant adafactor 'dropout = 0.1' '' --set optimizer.name=adafactor
variant lamb 'dropout = 0.1' '' --set optimizer.name=lamb
variant two-passes 'dropout = 0.1' '' --set train.r_drop=1
variant taught 'dropout = 0.1' '' --set 'train.teacher=["two-passes.undisturbed", "rules.undisturbed/checkpoints"]'
grep -q 'teacher: .*/rules.undisturbed/checkpoints/step-00000024 (step 24)' log || fail "a teacher is not named"
# Validations exchange the values and their averages, and bring the values back.
variant averages 'dropout = 0.1' '' --set optimizer.average=ema --set train.validate_every=4 --set train.validate_bleu=false
variant latest 'dropout = 0.1' '' --set optimizer.average=lawa --set optimizer.average_every=3 --set train.validate_every=4 \
  --set train.validate_bleu=false
variant schedule-free 'dropout = 0.1' '' --set optimizer.name=schedule_free_adamw --set optimizer.schedule=constant \
  --set train.validate_every=4 --set train.validate_bleu=false
for model in averages latest schedule-free; do
  h5ls -r $(parameters $model.killed) | grep '/average ' > /dev/null || fail "$model: its checkpoint has no averages"
  grep -q '"valid_averages_loss"' $model.killed/metrics.jsonl || fail "$model: the averages were not measured"
done
# An average that is wanted later begins with the values and changes nothing else; the loss of the better ones is what evaluate gives.
train_variant averages late --set train.steps=16
cp -r late plain
train_variant averages plain
train_variant averages late --set optimizer.average=ema --set train.validate_every=4 --set train.validate_bleu=false
grep -q 'note: average starts at the values' log || fail "the start of an average is not reported"
! h5diff $(parameters plain) $(parameters late) /parameters > difference || fail "the late run has no averages"
[ "$(grep -c '^[1-9][0-9]* differences found' difference)" -eq 0 ] || fail "an average changed the training"
"$HEDDLE" evaluate --checkpoint late --which last --source text/valid.en --reference text/valid.de > log 2>&1 || fail evaluate
better=$(tail -n 1 late/metrics.jsonl | sed 's/.*"valid_loss":\([0-9.]*\).*/\1/')
grep -q "($(printf %.4f "$better") nats" log || fail "evaluate measured other values than the better ones, $better"

# With train.precision = "auto" a run keeps the precision that it has.
for precision in float32 bfloat16; do
  train_variant averages auto.$precision --set train.steps=2 --set train.precision=$precision
  train_variant averages auto.$precision --set train.steps=4 --set train.precision=auto
  grep -qx "precision = \"$precision\"" auto.$precision/config.toml || fail "auto changes the precision of a run that resumes"
done

# A group that is thawed after 8 steps: its state counts its own updates, in one go and when it is resumed once more.
configuration thawed 'positions = "learned"' ''
for run in once twice; do
  train_variant thawed thawed.$run --set train.steps=8 --set 'optimizer.group.still.parameters=["encoder.*"]' \
    --set optimizer.group.still.frozen=true
  [ $run = once ] || train_variant thawed thawed.$run --set train.steps=16
  train_variant thawed thawed.$run
  [ $run = twice ] || grep -q 'adam.first_moment .* starts at zero' log || fail "the state of thawed parameters is there"
  h5ls "thawed.$run/checkpoints/step-00000024/state.h5" | grep '^state_begins ' > /dev/null || fail "thawed.$run: no state_begins"
done
grep -q 'starts at zero' log && fail "the state of a resumed run starts at zero again"
h5diff $(parameters thawed.once) $(parameters thawed.twice) /parameters > difference ||
  { head -n 5 difference; fail "the parameters of a thawed run that was resumed differ"; }
! h5ls norms.killed/checkpoints/step-00000024/state.h5 | grep state_begins || fail "a usual checkpoint has state_begins"

! h5diff -q $(parameters window.killed) $(parameters norms.killed) /parameters > /dev/null ||
  fail "h5diff finds two models equal: this test proves nothing"
echo "$variants models killed and resumed"
