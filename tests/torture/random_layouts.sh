#!/usr/bin/env bash
# Random models on random layouts, in float32 and bfloat16: each run on several ranks has the losses and gradient norms of
# the same run on one rank; every fourth one is stopped half way and resumed on another layout.
# HEDDLE_LAYOUTS: cases (4; 200 with HEDDLE_TORTURE=big); HEDDLE_SEED chooses them; HEDDLE_FIRST is the first one to be run.
source "$(dirname "${BASH_SOURCE[0]}")/../integration/small_run"
cases=${HEDDLE_LAYOUTS:-4}
[ "${HEDDLE_TORTURE:-small}" = small ] || cases=${HEDDLE_LAYOUTS:-200}
seed=${HEDDLE_SEED:-1}
steps=6
"$HEDDLE" prepare --text text/train.en --valid-text text/valid.en --vocab-size 90 --out lines > log 2>&1 || fail "prepare --text"
sed -i -e '/^\[model\]/,/^\[train\]/ { /^\[/! d }' -e '/^\[train\]/,/^\[optimizer\]/ { /^\[/! d }' run.toml

# one_of WORD...: one of them, the next that the number in the file `draws` chooses: in a subshell RANDOM obeys no seed.
one_of() {
  local number
  number=$(((1103515245 * $(< draws) + 12345) % 2147483648))
  echo "$number" > draws
  echo "${@:$((number / 65536 % $# + 1)):1}"
}

# draw_model: keys of a random model and its training, in model[], and what its layouts depend on.
draw_model() {
  heads=$(one_of 2 4 4 6)
  local width=$((heads * $(one_of 8 10 16)))
  kind=$(one_of both both both decoder encoder)
  precision=$(one_of float32 bfloat16)
  model=(train.steps=$steps train.log_every=1 train.validate_every=3 train.validate_bleu=false train.precision="$precision"
    train.seed=$RANDOM train.label_smoothing="$(one_of 0.0 0.1)" train.z_loss="$(one_of 0.0 1e-4)"
    model.d_model=$width model.d_ff=$((width * $(one_of 1 2 3))) model.heads="$heads"
    model.encoder_layers="$(one_of 1 2 3)" model.decoder_layers="$(one_of 1 2 3)" model.max_length="$(one_of 32 48 64)"
    model.norm="$(one_of post pre both)" model.norm_kind="$(one_of layer layer rms)" model.biases="$(one_of true true false)"
    model.activation="$(one_of relu gelu silu swiglu geglu)" model.recompute="$(one_of none none attention layer)"
    model.positions="$(one_of sinusoidal learned none rotary relative relative_buckets alibi)"
    model.dropout="$(one_of 0.0 0.1)" model.attention_dropout="$(one_of 0.0 0.1)" model.activation_dropout="$(one_of 0.0 0.1)"
    model.tie_embeddings="$(one_of true false)" model.output_bias="$(one_of true false)" model.embedding_norm="$(one_of true false)"
    model.output_transform="$(one_of true false)" model.token_types="$(one_of 0 0 2)"
    optimizer.learning_rate=0.002 optimizer.warmup_steps=4 optimizer.clip_norm="$(one_of 0.0 1.0)" checkpoint.every_steps=3)
  local batch
  batch=$(one_of 64 200 500 1000)
  model+=(train.batch_tokens="$batch" train.micro_batch_tokens="$((batch < 128 ? batch : $(one_of 64 128 128)))")
  case $kind in
    decoder) model+=('model.stacks=["decoder"]' "model.decoder.self_attention.mask=$(one_of causal causal prefix)") ;;
    encoder) model+=('model.stacks=["encoder"]') ;;
  esac
  [ "$kind" != both ] && model+=(data.train=lines/train.h5 data.valid=lines/valid.h5)
  [ "$kind $(one_of equal equal wide)" = "both wide" ] &&
    model+=(model.separate_embeddings=true model.encoder.d_model="$((heads * 12))")
  case $(one_of none none none kv window score) in
    kv) model+=(model.decoder.self_attention.kv_heads=$((heads / 2))) ;;
    window) model+=(model.decoder.self_attention.window=3) ;;
    score) model+=(model.decoder.self_attention.score=additive) ;;
  esac
  # A balance is of micro-batches, which one rank cuts in another way; in bfloat16 rounding chooses other experts.
  experts=1
  [ "$precision $(one_of none mixture)" = "float32 mixture" ] || return 0
  experts=$(one_of 4 6 8)
  for stack in encoder decoder; do
    [ "$kind" != both ] && [ "$kind" != $stack ] ||
      model+=("model.$stack.mixture_of_experts={ experts = $experts, load_balance_loss = 0.0 }"
        "model.$stack.layer.1.sublayers=$([ "$kind $stack" = "both decoder" ] &&
          echo '["self_attention", "cross_attention", "mixture_of_experts"]' || echo '["self_attention", "mixture_of_experts"]')")
  done
}
# draw_layout: ranks, and keys of a random layout for them, in layout[].
draw_layout() {
  local tensor pipeline context data
  while
    tensor=$(one_of 1 1 2 2 3 4) pipeline=$(one_of 1 1 2 2 3 4) context=$(one_of 1 1 2 2 3 4) data=$(one_of 1 1 2 2 3 4)
    ranks=$((tensor * pipeline * context * data))
    ((ranks == 1 || ranks > 8 || heads % tensor))
  do :; done
  layout=(parallel.tensor="$tensor" parallel.pipeline="$pipeline" parallel.context="$context" parallel.data="$data")
  ((tensor * context == 1)) || layout+=(parallel.sequence_parallel="$(one_of true false)")
  ((pipeline == 1)) || layout+=(parallel.pipeline_schedule="$(one_of 1f1b 1f1b interleaved)" parallel.zero_bubble="$(one_of true false)")
  local grid=$((tensor * context)) encoder
  encoder=$(one_of 0 1 2 3 4 6)
  if [ "$kind" = both ] && ((experts == 1 && encoder > 0 && grid % encoder == 0)); then
    layout+=(parallel.encoder_tensor="$encoder")
  fi
  ((grid == 1)) || layout+=(parallel.context_mode="$(one_of ring ulysses)")
  ((data == 1)) || layout+=(parallel.shard_optimizer="$(one_of true false)" train.deterministic="$(one_of true false)")
  local runs
  runs=$(one_of 1 2 3 4 8)
  ((experts == 1 || (data * context) % runs || experts % runs)) || layout+=(parallel.expert="$runs")
  # Zero bubble is refused beside sharded parameters.
  ((data * context == 1)) || [[ ${layout[*]} == *zero_bubble=true* ]] ||
    layout+=(parallel.shard_parameters="$(one_of true false)" parallel.shard_min_parameters="$(one_of 1 3000 100000)"
      parallel.shard_ranks="$( ((data * context > 2 && data * context % 2 == 0)) && one_of 0 2 || echo 0)")
}
# train RANKS DIRECTORY KEY=VALUE...: the exit code, in code; the output, in log.
train() {
  local arguments=(--set "run.directory=$2") ranks=$1
  shift 2
  for setting in "$@"; do arguments+=(--set "$setting"); done
  code=0
  timeout 120 "$HEDDLE_MPIRUN" -np "$ranks" "$HEDDLE" train run.toml "${arguments[@]}" > log 2>&1 || code=$?
}
# compare: the largest relative differences of losses and gradient norms of one/ and many/; fails beyond rounding. The
# order of sums may put an input of ReLU on the other side of 0, hence the wider limit of gradient norms; and it may give
# a token to another expert.
compare() {
  paste -d '\n' one/metrics.jsonl many/metrics.jsonl | awk -v precision="$precision" -v experts="$experts" -v steps=$steps '
    function value(name) {
      if (!match($0, "\"" name "\":[^,}]*")) return "none"
      return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
    }
    function compare(name, limit,   now, gap) {
      if (NR % 2) { before[name] = value(name); return }
      now = value(name)
      if ((now == "none") != (before[name] == "none")) { wrong = 1; return }
      if (now == "none") return
      gap = (now - before[name]) / (now == 0 ? 1 : now); if (gap < 0) gap = -gap
      if (gap > worst[name]) worst[name] = gap
      if (!(gap <= limit)) wrong = 1
    }
    BEGIN { low = precision == "bfloat16" || experts > 1 }
    { compare("step", 0); compare("tokens", 0); compare("train_loss", low ? 5e-3 : 1e-5); compare("valid_loss", low ? 5e-3 : 1e-5)
      compare("gradient_norm", low ? 0.2 : 2e-4) }
    END { printf "%s %.1e %.1e %.1e\n", precision, worst["train_loss"], worst["valid_loss"], worst["gradient_norm"]
          exit wrong || NR != 2 * steps }'
}

impossible=0 compared=0 resumed=0 wrong=0 number=0
: > worst
while [ $((compared + resumed)) -lt "$cases" ]; do
  number=$((number + 1))
  RANDOM=$((seed * 1000 + number))
  echo "$RANDOM$RANDOM" > draws
  draw_model
  draw_layout
  rm -rf one many
  [ "$number" -ge "${HEDDLE_FIRST:-1}" ] || continue
  # complain TEXT: what went wrong in this case, and how to see it again.
  complain() {
    wrong=$((wrong + 1))
    echo "case $number (HEDDLE_SEED=$seed): $1: -np $ranks ${model[*]} ${layout[*]}"
    tail -n 3 log
  }
  train "$ranks" many "${model[@]}" "${layout[@]}" $([ $((number % 4)) -ne 0 ] || echo train.steps=3)
  if [ "$code" -eq 78 ]; then
    impossible=$((impossible + 1))
    continue
  fi
  [ "$code" -eq 0 ] || { complain "exit code $code"; compared=$((compared + 1)); continue; }
  if [ $((number % 4)) -eq 0 ]; then
    while draw_layout; train "$ranks" many "${model[@]}" "${layout[@]}"; [ "$code" -eq 78 ]; do impossible=$((impossible + 1)); done
    resumed=$((resumed + 1))
    [ "$code" -eq 0 ] && grep -q "resuming after step 3" log || { complain "resumed: exit code $code"; continue; }
  else
    compared=$((compared + 1))
  fi
  train 1 one "${model[@]}"
  [ "$code" -eq 0 ] || { complain "one rank: exit code $code"; continue; }
  compare >> worst || complain "other losses than on one rank: $(tail -n 1 worst)"
done
summary=$(awk '{ for (i = 2; i <= 4; ++i) if ($i > most[$1, i]) most[$1, i] = $i; ++runs[$1] }
  END { for (p in runs) printf "; %s: %d runs, worst train_loss %.1e, valid_loss %.1e, gradient_norm %.1e", p, runs[p], most[p, 2], most[p, 3], most[p, 4] }' worst)
echo "figures: $compared layouts and $resumed resumes on another layout, $wrong wrong ($impossible impossible layouts refused)$summary"
[ "$wrong" -eq 0 ]
