#!/usr/bin/env bash
# The program of docs/guide/library.md, built against an installation: it prints what the commands print for the same model.
# shellcheck source=small_run
. "$HEDDLE_SOURCE/tests/integration/small_run"
export OMP_NUM_THREADS=1
page=$HEDDLE_SOURCE/docs/guide/library.md

# block FIRST LAST: the lines of the page's code from one to the next, both by their beginnings.
block() { sed -n "/^    $1/,/^    $2/s/^    //p" "$page"; }
mkdir program
block cmake_minimum_required target_link_libraries > program/CMakeLists.txt
block '#include <heddle.dataset' '}' > program/summary.cpp
cmake -S program -B program/build -G Ninja -DCMAKE_PREFIX_PATH="$HEDDLE_INSTALL" > log 2>&1 || fail "the program is not configured"
cmake --build program/build > log 2>&1 || fail "the program is not built"

ends 0 "$HEDDLE" train run.toml --set train.steps=20
head -n 8 text/test.en > lines.en
program/build/summary run data/valid.h5 < lines.en > found 2> log || fail "the program does not run"
ends 0 "$HEDDLE" translate --checkpoint run --beam 4 --input lines.en --output lines.de
diff <(head -n 8 found | cut -f 1) lines.de || fail "the program and heddle translate differ"
ends 0 "$HEDDLE" score --checkpoint run --source lines.en --target lines.de --length-penalty 0 --output scores
paste <(head -n 8 found | cut -f 2,3) scores | awk '$2 != 32 || $1 - $3 > 1e-3 || $3 - $1 > 1e-3 { print; wrong = 1 } END { exit wrong || NR != 8 }' ||
  fail "the program's scores and embeddings are not those of the model"
samples=$("$HEDDLE" inspect data/valid.h5 | sed -n '1s/.*[^0-9,]\([0-9,]*\) sentence pairs.*/\1/p' | tr -d ,)
loss=$(sed -n 's/.*"train_loss":\([^,]*\),.*/\1/p' run/metrics.jsonl | tail -n 1)
tensors=$(h5ls "$(state run 20)/tensors-00000.h5/parameters" | wc -l)
awk -v samples="$samples" -v tensors="$tensors" -v loss="$loss" 'END { gsub(",", ""); print; exit !($1 == samples && $3 == tensors && $6 - loss < 1e-4 && loss - $6 < 1e-4) }' found ||
  fail "expected $samples samples, $tensors tensors, loss $loss"
