#!/usr/bin/env bash
# Runs that start from another run's parameters, on any layout, and what is refused.
source "$HEDDLE_SOURCE/tests/integration/small_run"
export OMP_NUM_THREADS=1

train=("$HEDDLE" train run.toml --set train.validate_every=0)
ends 0 "${train[@]}" --set run.directory=first --set train.steps=10

# Without a step of its own learning rate the new run has the first one's parameters, also where both layouts are others.
start=(--set train.initialize_from=first --set train.steps=1 --set optimizer.learning_rate=0)
ends 0 "${train[@]}" --set run.directory=second "${start[@]}"
grep -q "parameters from first/checkpoints/step-00000010 (step 10): [0-9]* taken, 0 of them under another name; 0 start new; 0 left there" log ||
  fail "what was taken is not named"
grep -q "^starting in second" log || fail "it did not start"
for layout in parallel.tensor=2 parallel.pipeline=2 parallel.shard_optimizer=true; do
  ends 0 "$HEDDLE_MPIRUN" -n 2 "${train[@]}" --set run.directory="second-$layout" --set "$layout" "${start[@]}"
done
for second in second second-*; do
  for file in "$(state "$second" 1)"/tensors-*.h5; do
    [ "$(common "$(state first 10)/tensors-00000.h5" "$file" '/value>$')" -eq "$(h5ls "$file/parameters" | wc -l)" ] ||
      fail "the parameters of $second are not the first run's"
  done
done

# It resumes from its own checkpoint, even if the first run is gone.
mv first gone
ends 0 "${train[@]}" --set run.directory=second "${start[@]}" --set train.steps=2
grep -q "resuming after step 1" log && ! grep -q "parameters from" log || fail "it started again"
ends 65 "${train[@]}" --set run.directory=third "${start[@]}"
[ ! -e third ] || fail "a refused run left its directory"
mv gone first

# Another model: what is there under other names, what starts new, and what is not wanted.
deeper=("${start[@]}" --set model.encoder_layers=2 --set model.d_ff=64)
ends 78 "${train[@]}" --set run.directory=third "${deeper[@]}"
grep -q "has no values for .* of this run's .* parameters: .*\[32, 48\] there, \[32, 64\] here" log || fail "shapes are not named"
[ ! -e third ] || fail "a refused run left its directory"
mv log refusal
ends 78 "${train[@]}" --dry-run --set run.directory=third "${deeper[@]}"
[ "$(grep "has no values for" log)" = "$(grep "has no values for" refusal)" ] || fail "a dry run does not refuse what a run refuses"
deeper+=(--set 'train.initialize_missing=["*.feed_forward.*", "encoder.layers.0.*"]'
  --set 'train.initialize_rename=["encoder.layers.0.* -> encoder.layers.1.*"]')
ends 0 "${train[@]}" --dry-run --set run.directory=third "${deeper[@]}"
grep "^parameters from\|^start new\|^left there" log > promised
ends 0 "${train[@]}" --set run.directory=third "${deeper[@]}"
grep "^parameters from\|^start new\|^left there" log | diff promised - || fail "the dry run printed something else"
[ -s promised ] || fail "the dry run does not print what would be taken"
grep -q "under another name; .* start new" log && grep -q "^start new: .*encoder.layers.0.self_attention" log ||
  fail "what starts new is not named"
h5diff "$(state first 10)/tensors-00000.h5" "$(state third 1)/tensors-00000.h5" \
  /parameters/encoder.layers.0.self_attention.out.weight/value /parameters/encoder.layers.1.self_attention.out.weight/value ||
  fail "the renamed parameter is another one"

# Another vocabulary.
ends 0 "$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source text/valid.en \
  --valid-target text/valid.de --vocab-size 100 --out other
ends 65 "${train[@]}" --dry-run --set run.directory=fourth "${start[@]}" --set data.train=other/train.h5
grep -q "was trained with another vocabulary" log || fail "a dry run does not refuse the vocabulary"
ends 65 "${train[@]}" --set run.directory=fourth "${start[@]}" --set data.train=other/train.h5
grep -q "was trained with another vocabulary than this run's data have.*--vocab-model" log || fail "the vocabulary is not refused"
echo "initialize: all as promised"
