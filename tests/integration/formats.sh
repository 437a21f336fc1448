#!/usr/bin/env bash
# The same checkpoint in each format that is read: translated and resumed, bitwise the same.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export OMP_NUM_THREADS=1

golden=$HEDDLE_SOURCE/tests/golden/checkpoints
h5dump -d /vocabulary/source -b LE -o vocab.model "$golden/format-4/step-00000004/state.h5" > log || fail "the vocabulary"
"$HEDDLE" demo-data --out text --train 600 --valid 20 --test 20 > log 2>&1 || fail "demo-data"
"$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source text/valid.en \
  --valid-target text/valid.de --vocab-model vocab.model --out data > log 2>&1 || fail "prepare"

versions=0
for format in "$golden"/format-*; do
  run=$(basename "$format")
  mkdir -p "$run/checkpoints"
  cp -r "$format/step-00000004" "$run/checkpoints"
  "$HEDDLE" checkpoint verify "$run" > log 2>&1 || fail "$run does not verify"
  "$HEDDLE" translate --checkpoint "$run" --beam 3 < text/test.en > "$run.de" 2> log || fail "$run is not translated"
  "$HEDDLE" train "$golden/run.toml" --set run.directory="$run" > log 2>&1 || fail "$run is not resumed"
  grep -q "resuming after step 4" log || fail "$run started again"
  h5dump -a /version "$run/checkpoints/step-00000008/state.h5" | grep ": 4$" > /dev/null || fail "$run continues in an old format"
  "$HEDDLE" translate --checkpoint "$run" --average 2 < text/test.en >> "$run.de" 2> log || fail "formats are not averaged"
  [ -s "$run.de" ] || fail "$run has no translations"
  versions=$((versions + 1))
done
[ "$versions" -eq 2 ] || fail "$versions formats"
cmp format-3.de format-4.de || fail "the formats have other translations"
cmp format-{3,4}/checkpoints/step-00000008/tensors-00000.h5 || fail "the formats are resumed differently"
diff <(without_times format-3) <(without_times format-4) || fail "the formats have other losses"
echo "formats: $versions formats are read, resumed and translated bitwise"
