#!/usr/bin/env bash
# The example plug-in, built out of tree against the installed package: found, computes correctly, trains, resumes,
# translates. Then every kind of library that must not be loaded.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*"; [ ! -e log ] || tail -n 20 log; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$HEDDLE_BUILD/CMakeCache.txt"; }
compiler=$(cached CMAKE_CXX_COMPILER)
sanitizers=$(cached HEDDLE_SANITIZE)

cp -r "$HEDDLE_SOURCE/apps/examples/plugin" source
cmake -S source -B build -G Ninja -DCMAKE_PREFIX_PATH="$HEDDLE_INSTALL" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="${sanitizers:+-fsanitize=$sanitizers}" > log 2>&1 || fail "configuring the plug-in"
cmake --build build > log 2>&1 || fail "building the plug-in"
plugin=build/swish.so

"$HEDDLE" kernels --plugin $plugin --set 'model.activation="swish"' > listing 2> log || fail "heddle kernels --plugin"
grep -Eq '^ *\* swish +speed +[0-9]+ +build/swish\.so$' listing || fail "swish is not what would run: $(cat listing)"
grep -Eq '^ *gated_feed_forward +build/swish\.so$' listing || fail "the layer is not listed: $(cat listing)"
grep -Eq '^ *\* kokkos +speed +10 +built-in$' listing || fail "the built-in kernels are not listed: $(cat listing)"

# Its operation, which Heddle does not know, is listed, marked where the model calls it, and can be chosen by
# [kernels].
grep -Fq '  product (not called by this model)' listing || fail "the plug-in's operation is not listed: $(cat listing)"
gated='model.encoder_sublayers=["self_attention","gated_feed_forward"]'
"$HEDDLE" kernels --plugin $plugin --set model.activation=swish --set "$gated" --set kernels.product=portable \
  > listing 2> log || fail "heddle kernels with a choice for the plug-in's operation"
grep -Eq '^ *\* portable +speed +10 +build/swish\.so$' listing || fail "the plug-in's operation is not marked: $(cat listing)"
# unknown WORDS ARGUMENTS...: exit 78, and the message contains WORDS.
unknown() {
  local words=$1 code=0
  shift
  "$HEDDLE" kernels "$@" > listing 2> log || code=$?
  [ "$code" -eq 78 ] || fail "kernels with '$*': exit code $code instead of 78"
  grep -qF -- "$words" log || fail "kernels with '$*': the message does not say '$words'"
}
unknown "kernels.product = 'other': no such implementation" --plugin $plugin --set model.activation=swish --set "$gated" \
  --set kernels.product=other
unknown "--set kernels.produkt=portable: there is no key kernels.produkt; did you mean product?" --plugin $plugin \
  --set model.activation=swish --set kernels.produkt=portable
unknown "--set kernels.product=portable: there is no key kernels.product" --set kernels.product=portable

HEDDLE_EXAMPLE_PLUGIN=$work/$plugin "$HEDDLE_BUILD/tests/core_tests" --gtest_filter='ExamplePlugin.*' > log 2>&1 ||
  fail "the plug-in's kernel or layer computes something else"
! grep -q SKIPPED log || fail "the checks of the plug-in's kernel and layer were skipped"

"$HEDDLE" demo-data --out text --train 1000 --valid 50 --test 20 > log 2>&1 || fail "demo-data"
"$HEDDLE" prepare --source text/train.en --target text/train.de --valid-source text/valid.en \
  --valid-target text/valid.de --vocab-size 150 --out data > log 2>&1 || fail "prepare"
cat > run.toml << 'TOML'
[data]
train = "data/train.h5"
valid = "data/valid.h5"
[model]
encoder_layers = 1
decoder_layers = 1
d_model = 32
d_ff = 48
heads = 2
max_length = 128
activation = "swish"
activation_dropout = 0.1
encoder_sublayers = ["self_attention", "gated_feed_forward"]
[train]
steps = 60
batch_tokens = 1024
validate_every = 30
validate_bleu = false
log_every = 1
[optimizer]
learning_rate = 0.003
warmup_steps = 20
[checkpoint]
every_steps = 20
TOML
# train DIRECTORY EXIT-CODE ARGUMENTS...
train() {
  local directory=$1 expected=$2 code=0
  shift 2
  "$HEDDLE" train run.toml --set run.directory="$directory" "$@" > log 2>&1 || code=$?
  [ "$code" -eq "$expected" ] || fail "train with '$*': exit code $code instead of $expected"
}

# The plug-in's layer and its kernel are timed in the calls of a step.
"$HEDDLE" kernels --benchmark --plugin $plugin --config run.toml --set 'kernels.cache="times.json"' > listing 2> log ||
  fail "heddle kernels --benchmark --plugin"
grep -q '^activation: swish of float32' listing || fail "the plug-in's kernel was not timed: $(cat listing)"
grep -q '^product: products of float32' listing || fail "the plug-in's operation was not timed: $(cat listing)"
grep -Fq '48 columns of 32"' times.json || fail "the plug-in's layer was not timed: $(cat times.json)"

parameters() { echo "$1"/checkpoints/step-00000060/*.h5; }

train whole 0 --plugin $plugin
loss() { sed -n "$1s/.*\"train_loss\":\([0-9.]*\).*/\1/p" whole/metrics.jsonl; }
awk -v first="$(loss 1)" -v last="$(loss 60)" 'BEGIN {exit !(last < first - 0.5)}' ||
  fail "the loss went from $(loss 1) to $(loss 60)"
h5dump -n 1 "$(parameters whole)" > names 2> log || fail "h5dump"
grep -q 'encoder.layers.0.gated_feed_forward.gate.weight' names || fail "the layer's parameters are not in the checkpoint"

# Stopped and resumed, this time with the plug-in named in the configuration: bitwise the same.
"$HEDDLE" train run.toml --set run.directory=halves --set "plugins.paths=[\"$plugin\"]" > log 2>&1 &
run=$!
for _ in $(seq 1000); do
  [ ! -e halves/metrics.jsonl ] || [ "$(wc -l < halves/metrics.jsonl)" -lt 5 ] || break
  sleep 0.02
done
kill -USR1 "$run"
code=0
wait "$run" || code=$?
[ "$code" -eq 75 ] || fail "stopped by SIGUSR1: exit code $code instead of 75"
train halves 0 --set "plugins.paths=[\"$plugin\"]"
grep -q "resuming after step" log || fail "the stopped run did not resume"
h5diff "$(parameters whole)" "$(parameters halves)" /parameters > log || fail "the resumed run ended elsewhere"

# Spread over tensor ranks, which divide its columns and, the second time, the tokens: the same trajectory.
loss_of() { sed -n '60s/.*"train_loss":\([^,]*\).*/\1/p' "$1/metrics.jsonl"; }
for sequence_parallel in false true; do
  spread=spread_$sequence_parallel
  "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set run.directory=$spread --plugin $plugin --set parallel.tensor=2 \
    --set parallel.sequence_parallel=$sequence_parallel > log 2>&1 || fail "training on two tensor ranks"
  awk -v one="$(loss_of whole)" -v two="$(loss_of $spread)" \
    'BEGIN { gap = one - two; if (gap < 0) gap = -gap; exit !(one > 0 && gap < 0.002 * one) }' ||
    fail "a loss of $(loss_of whole) on one rank and $(loss_of $spread) on two"
done

# The checkpoint knows its plug-in.
head -n 3 text/test.en | "$HEDDLE" translate --checkpoint whole > translated 2> log || fail "translate"
[ "$(wc -l < translated)" -eq 3 ] || fail "not as many translations as lines"

# If its path does not exist, a file of the same name can be given.
mkdir elsewhere
cp $plugin elsewhere/swish.so
(cd elsewhere && head -n 3 ../text/test.en | "$HEDDLE" translate --checkpoint ../whole --plugin swish.so) \
  > moved 2> log || fail "translate with the plug-in in another place"
cmp translated moved || fail "the plug-in in another place translates otherwise"

# Without the plug-in its names are unknown.
train whole 78
grep -q "gated_feed_forward\|swish" log || fail "the missing layer or function is not named"

# refused LIBRARY WORDS ARGUMENTS...: exit 78, and the message names the library and contains WORDS.
refused() {
  local library=$1 words=$2 code=0
  shift 2
  "$HEDDLE" kernels "$@" --plugin "$library" > listing 2> log || code=$?
  [ "$code" -eq 78 ] || fail "$library: exit code $code instead of 78"
  grep -qF "$library" log || fail "$library is not named"
  grep -qF "$words" log || fail "$library: the message does not say '$words'"
  train refused 78 "$@" --plugin "$library"
}
# library NAME: compiles standard input.
library() { "$compiler" -x c++ - -shared -fPIC -o "$1" 2> log || fail "compiling $1"; }
tag=$("$HEDDLE" kernels | sed -n 's/^ABI tag of plug-ins: //p')
[ -n "$tag" ] || fail "heddle kernels shows no ABI tag"

library other_tag.so <<< 'extern "C" char const* heddle_plugin_abi_tag() { return "heddle 0.0.1, abi 0"; }
  extern "C" void heddle_plugin_register(void*) {}'
refused ./other_tag.so "heddle 0.0.1, abi 0"
refused ./other_tag.so "$tag"
library no_plugin.so <<< 'int nothing() { return 0; }'
refused ./no_plugin.so "no entry point heddle_plugin_abi_tag"
library half_plugin.so <<< "extern \"C\" char const* heddle_plugin_abi_tag() { return \"$tag\"; }"
refused ./half_plugin.so "no entry point heddle_plugin_register"
library unresolved.so <<< 'void missing_function(); void call() { missing_function(); }'
refused ./unresolved.so "missing_function"
cp $plugin again.so
refused ./again.so "'swish' of operation 'activation' is taken by $plugin" --plugin $plugin
echo "text" > text.so
refused ./text.so "expected a shared library"
refused ./absent.so "there is no such file"
[ ! -e refused ] || fail "a refused plug-in left a run directory behind"
echo "plug-ins: all as promised"
