#!/usr/bin/env bash
# The example plug-in, built out of tree against the installed package: found, computes correctly, trains, resumes,
# translates. Then every kind of library that must not be loaded.
source "$(dirname "${BASH_SOURCE[0]}")/common"
cached() { sed -n "s/^$1:[A-Z]*=//p" "$HEDDLE_BUILD/CMakeCache.txt"; }
compiler=$(cached CMAKE_CXX_COMPILER)
sanitizers=$(cached HEDDLE_SANITIZE)

# The examples are what `heddle new-plugin` writes under their names, with a README and a run.toml; under other names
# only the names differ.
examples=(activation:swish attention:rowwise score:sigmoid_score norm:mean_abs layer:adapter operation:hadamard rule:rmsprop
  schedule:stable_decay metric:exact_match task:reversal)
mkdir source
for example in "${examples[@]}"; do
  kind=${example%:*} name=${example#*:}
  "$HEDDLE" new-plugin "source/$name" --kind "$kind" > log 2>&1 || fail "heddle new-plugin --kind $kind"
  grep -q "^# $name$" "source/$name/README.md" || fail "the new plug-in $name has no README"
  diff -r -x README.md -x run.toml -x use.toml "source/$name" "$HEDDLE_SOURCE/apps/examples/plugins/$kind" > log || fail "new-plugin changes the example $name"
  [ -e "source/$name/run.toml" ] && [ ! -e "source/$name/use.toml" ] || fail "the new plug-in $name has no run.toml"
  long=$(cat "source/$name"/*.?pp | wc -l)
  [ "$long" -le 240 ] || fail "the code of the example $name has $long lines"
done
"$HEDDLE" new-plugin source/erf --kind activation > log 2>&1 || fail "heddle new-plugin erf"
! grep -riE 'swish' source/erf > log || fail "the example's name is left in a new plug-in"
grep -q 'struct Erf' source/erf/erf.cpp || fail "the new plug-in's kernel has another name"
# Names that C++ or Heddle has are refused.
for taken in "double:has a meaning in C++" "gelu:an activation function" "rms:a kind of norm" "feed_forward:a layer" \
  "kokkos:an implementation of operation" "attention:an operation" "swiglu:a gated activation" \
  "linear:in a plug-in's code" "lion:an update rule" "denoising:a task" "cosine:a schedule" "additive:a score"; do
  ends 64 "$HEDDLE" new-plugin "source/${taken%%:*}" --kind activation
  grep -qF "${taken#*:}" log || fail "new-plugin does not say '${taken#*:}'"
  [ ! -e "source/${taken%%:*}" ] || fail "new-plugin left a directory behind"
done
# A wrong one: its gradient. With CRASH in the environment it crashes, in its backward pass.
"$HEDDLE" new-plugin source/wrong --kind activation > log 2>&1 || fail "heddle new-plugin wrong"
sed -i 's/value \* (1 - sigmoid)/value * (2 - (std::getenv("CRASH") ? *static_cast<volatile Real*>(nullptr) : sigmoid))/
  s/#include <cmath>/&\n#include <cstdlib>/' source/wrong/wrong.cpp
grep -q 'value \* (2 - (std::getenv' source/wrong/wrong.cpp || fail "the wrong plug-in is not wrong"
# One whose layer forgets that with sequence parallelism each tensor rank has only some rows.
mkdir source/forgetful
echo 'find_package(heddle REQUIRED)
heddle_add_plugin(forgetful forgetful.cpp)' > source/forgetful/CMakeLists.txt
cat > source/forgetful/forgetful.cpp << 'CPP'
#include <heddle/core/layers/layer.hpp>
#include <heddle/core/plugins/entry.hpp>

namespace {

using namespace heddle;

class Shift final : public Layer {
 public:
  explicit Shift(LayerSpec const& spec)
      : shift_(spec.parameters.declare({spec.name + ".shift", {{spec.model.d_model}}, Initializer::zeros()})) {}

  HiddenStates forward(LayerContext& context, HiddenStates const& input, Saved&) const override {
    Tensor const output = context.arena.allocate(input.hidden.dtype(), input.hidden.shape());
    for (std::int64_t row = 0; row < output.dim(0); ++row) {
      auto const* const from = input.hidden.rows(row, 1).data<float>();
      for (std::int64_t column = 0; column < output.dim(1); ++column) {
        output.rows(row, 1).data<float>()[column] = from[column] + shift_.value.data<float>()[column];
      }
    }
    return {output, input.encoder_output};
  }

  HiddenStates backward(LayerContext&, HiddenStates const& grad_output, Saved const&) const override {
    for (std::int64_t row = 0; row < grad_output.hidden.dim(0); ++row) {
      auto const* const from = grad_output.hidden.rows(row, 1).data<float>();
      for (std::int64_t column = 0; column < grad_output.hidden.dim(1); ++column) {
        shift_.gradient.data<float>()[column] += from[column];
      }
    }
    return grad_output;
  }

 private:
  Parameter const& shift_;
};

void register_all(Registries& registries) {
  registries.layers.add<Shift>("shift");
}

}  // namespace

HEDDLE_PLUGIN(register_all)
CPP
# One build for all of them. Without optimisation the check of an attention kernel takes ten times as long.
cat > source/CMakeLists.txt << 'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(plugins LANGUAGES CXX)
enable_testing()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
foreach(name IN ITEMS swish rowwise sigmoid_score mean_abs adapter hadamard rmsprop stable_decay exact_match reversal wrong forgetful)
  add_subdirectory(${name})
endforeach()
CMAKE
cmake -S source -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" \
  -DCMAKE_PREFIX_PATH="$HEDDLE_INSTALL" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="${sanitizers:+-fsanitize=$sanitizers}" > log 2>&1 || fail "configuring the plug-ins"
cmake --build build > log 2>&1 || fail "building the plug-ins"

# Each passes its own check except the wrong one, which is named with its problem, error and tolerance.
ctest --test-dir build -E '^(wrong|forgetful)' --parallel 2 --output-on-failure > log 2>&1 || fail "a plug-in's own check"
[ "$(grep -c 'Passed' log)" -eq 11 ] || fail "not every plug-in has a check, and the score two"
grep -q 'sigmoid_score, causal, biases, dropout, float32 .* passed' build/Testing/Temporary/LastTest.log ||
  fail "attention is not checked with the score: $(cat build/Testing/Temporary/LastTest.log)"
! ctest --test-dir build -R '^wrong' --output-on-failure > log 2>&1 || fail "a wrong plug-in passes its own check"
grep -qE 'central differences .*WRONG: gradient of input' log || fail "the wrong gradient is not in the table"

plugin=build/swish.so
operation=build/hadamard.so
"$HEDDLE" kernels --plugin $plugin --plugin $operation --set 'model.activation="swish"' > listing 2> log ||
  fail "heddle kernels --plugin"
grep -Eq '^ *\* swish +speed +[0-9]+ +build/swish\.so$' listing || fail "swish is not what would run: $(cat listing)"
grep -Eq '^ *hadamard_layer +build/hadamard\.so$' listing || fail "the layer is not listed: $(cat listing)"
grep -Eq '^ *\* kokkos +speed +10 +built-in$' listing || fail "the built-in kernels are not listed: $(cat listing)"

# Its operation, which Heddle does not know, is listed, marked where the model calls it, and can be chosen by
# [kernels].
grep -Fq '  hadamard (not called by this model)' listing || fail "the plug-in's operation is not listed: $(cat listing)"
gated='model.encoder_sublayers=["self_attention","hadamard_layer"]'
"$HEDDLE" kernels --plugin $operation --set "$gated" --set kernels.hadamard=portable \
  > listing 2> log || fail "heddle kernels with a choice for the plug-in's operation"
grep -Eq '^ *\* portable +speed +10 +build/hadamard\.so$' listing || fail "the plug-in's operation is not marked: $(cat listing)"
# unknown WORDS ARGUMENTS...: exit 78, and the message contains WORDS.
unknown() {
  local words=$1 code=0
  shift
  "$HEDDLE" kernels "$@" > listing 2> log || code=$?
  [ "$code" -eq 78 ] || fail "kernels with '$*': exit code $code instead of 78"
  grep -qF -- "$words" log || fail "kernels with '$*': the message does not say '$words'"
}
unknown "kernels.hadamard = 'other': no such implementation" --plugin $operation --set "$gated" --set kernels.hadamard=other
unknown "--set kernels.hadamart=portable: there is no key kernels.hadamart; did you mean hadamard?" --plugin $operation \
  --set kernels.hadamart=portable
unknown "--set kernels.hadamard=portable: there is no key kernels.hadamard" --set kernels.hadamard=portable

HEDDLE_EXAMPLE_PLUGIN=$work/$operation "$HEDDLE_BUILD/tests/core_tests" --gtest_filter='ExamplePlugin.*' > log 2>&1 ||
  fail "the plug-in is registered in part"
! grep -q SKIPPED log || fail "the check of the registration was skipped"

prepare_data 1000 50 20 150
configure model.max_length=128 'model.activation="swish"' model.activation_dropout=0.1 \
  'model.encoder_sublayers=["self_attention", "hadamard_layer"]' 'plugins.paths=["build/hadamard.so"]' train.steps=60 \
  train.batch_tokens=1024 train.validate_every=30 train.validate_bleu=false train.log_every=1 optimizer.learning_rate=0.003 \
  optimizer.warmup_steps=20 checkpoint.every_steps=20
# train_in DIRECTORY EXIT-CODE ARGUMENTS...
train_in() { train 0 "$2" --set run.directory="$1" "${@:3}"; }

# The plug-in's layer and its kernel are timed in the calls of a step.
"$HEDDLE" kernels --benchmark --plugin $plugin --config run.toml --set 'kernels.cache="times.json"' \
  --set train.batch_tokens=256 --set train.micro_batch_tokens=256 > listing 2> log ||
  fail "heddle kernels --benchmark --plugin"
grep -q '^activation: swish of float32' listing || fail "the plug-in's kernel was not timed: $(cat listing)"
grep -q '^hadamard: products of float32' listing || fail "the plug-in's operation was not timed: $(cat listing)"
grep -Fq '48 columns of 32"' times.json || fail "the plug-in's layer was not timed: $(cat times.json)"

parameters() { echo "$1"/checkpoints/step-00000060/tensors-*.h5; }

train_in whole 0 --plugin $plugin
loss() { sed -n "$1s/.*\"train_loss\":\([0-9.]*\).*/\1/p" whole/metrics.jsonl; }
awk -v first="$(loss 1)" -v last="$(loss 60)" 'BEGIN {exit !(last < first - 0.5)}' ||
  fail "the loss went from $(loss 1) to $(loss 60)"
h5dump -n 1 "$(parameters whole)" > names 2> log || fail "h5dump"
grep -q 'encoder.layers.0.hadamard_layer.gate.weight' names || fail "the layer's parameters are not in the checkpoint"

# Stopped and resumed, this time with the plug-in named in the configuration: bitwise the same.
"$HEDDLE" train run.toml --set run.directory=halves --set "plugins.paths=[\"$operation\",\"$plugin\"]" > log 2>&1 &
run=$!
for _ in $(seq 1000); do
  [ ! -e halves/metrics.jsonl ] || [ "$(wc -l < halves/metrics.jsonl)" -lt 5 ] || break
  sleep 0.02
done
kill -USR1 "$run"
waited 75 "$run"
train_in halves 0 --set "plugins.paths=[\"$operation\",\"$plugin\"]"
grep -q "resuming after step" log || fail "the stopped run did not resume"
h5diff "$(parameters whole)" "$(parameters halves)" /parameters > log || fail "the resumed run ended elsewhere"

# Spread over tensor ranks, which divide its columns and, the second time, the tokens: the same trajectory.
loss_of() { sed -n '20s/.*"train_loss":\([^,]*\).*/\1/p' "$1/metrics.jsonl"; }
for sequence_parallel in false true; do
  spread=spread_$sequence_parallel
  "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set run.directory=$spread --plugin $plugin --set parallel.tensor=2 \
    --set parallel.sequence_parallel=$sequence_parallel --set train.steps=20 --set train.validate_every=0 > log 2>&1 || fail "training on two tensor ranks"
  awk -v one="$(loss_of whole)" -v two="$(loss_of $spread)" \
    'BEGIN { gap = one - two; if (gap < 0) gap = -gap; exit !(one > 0 && gap < 0.002 * one) }' ||
    fail "a loss of $(loss_of whole) on one rank and $(loss_of $spread) on two"
done

# A score in place of softmax: heads, tokens (in a ring, too) and layers over two ranks give what one rank gives, and
# attention with it is right where Heddle's kernels compute it.
scored() {
  local name=${1//=/_} ranks=$2
  shift 2
  "$HEDDLE_MPIRUN" -np "$ranks" "$HEDDLE" train source/sigmoid_score/run.toml --set run.directory="scored_$name" --set train.steps=20 \
    --set data.train=data/train.h5 --set data.valid=data/valid.h5 --set train.log_every=20 --set train.validate_every=0 "$@" > log 2>&1 ||
    fail "training with a score: $name"
  sed -n 's/.*"train_loss":\([^,]*\).*/\1/p' "scored_$name/metrics.jsonl"
}
one=$(scored one 1)
for layout in tensor=2 context=2 "context=2 --set parallel.context_mode=ulysses" pipeline=2; do
  two=$(scored "${layout##*[. ]}" 2 --set parallel.$layout)
  awk -v one="$one" -v two="$two" 'BEGIN { gap = one - two; if (gap < 0) gap = -gap; exit !(one > 0 && gap < 0.0001 * one) }' ||
    fail "with a score, a loss of $one on one rank and $two with $layout"
done
head -n 3 text/test.en | "$HEDDLE" translate --checkpoint scored_one --plugin build/sigmoid_score.so > translated 2> log || fail "translate with a score"
[ "$(wc -l < translated)" -eq 3 ] || fail "not as many translations with a score as lines"
unknown 'there is no score "sigmoid_scor", built in or of a plug-in; did you mean sigmoid_score?' --plugin build/sigmoid_score.so \
  --set 'model.decoder.self_attention.score="sigmoid_scor"'

# The layer that forgets to declare what its gradient is: the copies of its parameter part, and the message says why.
code=0
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set run.directory=forgetful --plugin $plugin --plugin build/forgetful.so --trust-plugins \
  --set 'model.encoder_sublayers=["self_attention","shift"]' --set parallel.tensor=2 \
  --set parallel.sequence_parallel=true > log 2>&1 || code=$?
[ "$code" -eq 70 ] && grep -q 'replicas diverged: parameter encoder.layers.0.shift.shift differs' log &&
  grep -q 'gradient_partial_over = {MeshAxis::tensor}, or spec.stream_axes()' log || fail "a forgotten declaration: exit code $code"

# The checkpoint knows its plug-ins, but does not load them: they are named again, or the directory is trusted.
cat > mark.cpp << 'CPP'
#include <cstdlib>
__attribute__((constructor)) static void mark() { std::system("touch loaded"); }
CPP
"$compiler" -shared -fPIC -o mark.so mark.cpp
sum() { sha256sum "$1" | cut -d ' ' -f 1; }
cp $plugin swish.kept
cp mark.so $plugin
for command in translate "evaluate --source text/test.en --reference text/test.de" "inspect --html page.html"; do
  model="--checkpoint whole"
  [ "${command%% *}" != inspect ] || model=whole
  code=0
  "$HEDDLE" $command $model < text/test.en > translated 2> log || code=$?
  [ "$code" -eq 78 ] || fail "$command with plug-ins that nobody named: exit code $code instead of 78"
  for file in $plugin $operation; do
    grep -qF "$file (sha256 $(sum $file))" log || fail "$command: $file is not named with its digest"
  done
  [ ! -e loaded ] || fail "$command runs code that a checkpoint names"
done
"$HEDDLE" translate --checkpoint whole --trust-plugins < text/test.en > translated 2> log || true
[ -e loaded ] || fail "a library that is loaded leaves no mark: the test shows nothing"
cp swish.kept $plugin
head -n 3 text/test.en | "$HEDDLE" translate --checkpoint whole --plugin $plugin --plugin $operation > translated 2> log || fail "translate"
[ "$(wc -l < translated)" -eq 3 ] || fail "not as many translations as lines"
for trust in --trust-plugins "--set plugins.paths=[\"$operation\",\"$plugin\"]"; do
  head -n 3 text/test.en | "$HEDDLE" translate --checkpoint whole $trust > trusted.out 2> log || fail "translate $trust"
  cmp translated trusted.out || fail "translate $trust translates otherwise"
done
"$HEDDLE" inspect whole --html page.html --plugin $plugin --plugin $operation > listing 2> log || fail "inspect --html with plug-ins"
"$HEDDLE" inspect whole > listing 2> log || fail "inspect needs plug-ins to show a configuration"

# A file of the same name in another place can be given.
mkdir elsewhere
cp $plugin $operation elsewhere
(cd elsewhere && head -n 3 ../text/test.en | "$HEDDLE" translate --checkpoint ../whole --plugin swish.so --plugin hadamard.so) \
  > moved 2> log || fail "translate with the plug-in in another place"
cmp translated moved || fail "the plug-in in another place translates otherwise"

# Without the plug-in: the message says how to name it. Beside the configuration it is found.
mv build/swish.so hidden.so
for trust in "" --trust-plugins; do
  code=0
  head -n 3 text/test.en | "$HEDDLE" translate --checkpoint whole $trust > moved 2> log || code=$?
  [ "$code" -eq 78 ] && grep -q -- '--plugin PATH/swish.so' log || fail "translate without the plug-in: $code"
done
mv hidden.so build/swish.so
(mkdir -p away && cd away && "$HEDDLE" kernels --config ../run.toml --set "plugins.paths=[\"$operation\",\"$plugin\"]" > ../listing 2> ../log) ||
  fail "a plug-in beside the configuration is not found"
grep -q swish listing || fail "the plug-in beside the configuration is not loaded"

# Without the plug-in its names are unknown.
train_in whole 78 --set 'plugins.paths=[]'
grep -q "hadamard_layer\|swish" log || fail "the missing layer or function is not named"

# refused LIBRARY WORDS ARGUMENTS...: exit 78, and the message names the library and contains WORDS.
refused() {
  local library=$1 words=$2 code=0
  shift 2
  "$HEDDLE" kernels "$@" --plugin "$library" > listing 2> log || code=$?
  [ "$code" -eq 78 ] || fail "$library: exit code $code instead of 78"
  grep -qF "$library" log || fail "$library is not named"
  grep -qF "$words" log || fail "$library: the message does not say '$words'"
  train_in refused 78 "$@" --plugin "$library"
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
refused ./absent.so "absent.so: does not exist"
[ ! -e refused ] || fail "a refused plug-in left a run directory behind"

# A new plug-in trains with its own configuration, a task on text.
"$HEDDLE" prepare --text text/train.en --valid-text text/valid.en --vocab-size 100 --out lines > log 2>&1 || fail "prepare --text"
grep -q '^    heddle prepare --text' source/reversal/README.md || fail "the README of a task does not make its data"
for example in "${examples[@]}"; do
  name=${example#*:}
  data=data
  [ "${example%:*}" != task ] || data=lines
  "$HEDDLE" train "source/$name/run.toml" --set train.steps=3 --set train.batch_tokens=512 --set optimizer.warmup_steps=1 \
    --set data.train=$data/train.h5 --set data.valid=$data/valid.h5 > log 2>&1 || fail "training with the new plug-in $name"
  [ "$(grep -c train_loss "runs/$name/metrics.jsonl")" -ge 1 ] || fail "the new plug-in $name did not train"
done
h5dump -n 1 runs/rmsprop/checkpoints/step-00000003/tensors-*.h5 > names 2> log || fail "h5dump"
grep -q rmsprop.mean_square names || fail "the plug-in's rule has not trained"
rate=$(sed -n 's/.*"learning_rate":\([^,]*\),.*/\1/p' runs/stable_decay/metrics.jsonl | tail -n 1)
awk -v rate="$rate" 'BEGIN { exit !(rate != "" && rate == 0) }' || fail "the plug-in's schedule ends with $rate instead of 0"
grep -Eq '"valid_exact_match":[0-9]' runs/exact_match/metrics.jsonl || fail "the plug-in's metric is not measured"
[ "$(readlink runs/exact_match/checkpoints/best)" = step-00000003 ] || fail "the plug-in's metric does not decide"
tr -d ' \n' < runs/exact_match/report.json > log
grep -q '"best":{"step":3,"valid_exact_match":' log || fail "the report does not name the plug-in's metric"
"$HEDDLE" average runs/exact_match --best 1 --out runs/mean > log 2>&1 || fail "average by a plug-in's metric"
for judged in "--hypotheses text/test.de" "--checkpoint runs/exact_match --source text/test.en"; do
  "$HEDDLE" evaluate $judged --reference text/test.de --metric exact_match --metric ter --plugin build/exact_match.so > log 2>&1 ||
    fail "evaluate $judged with a plug-in's metric"
  grep -Eq '^exact_match.nrefs:1.version:heddle-[0-9.]* = [0-9.]*$' log && grep -q '^TER' log || fail "evaluate $judged: no plug-in's metric"
  [[ $judged == --checkpoint* ]] || grep -q '^exact_match.* = 100.00$' log || fail "a text is not what it is"
done
grep -q '^task = "reversal"' runs/reversal/config.toml || fail "the plug-in's task was not trained"
"$HEDDLE" kernels --config source/mean_abs/run.toml > listing 2> log || fail "heddle kernels with a kind of norm"
grep -Eq '^ *\* mean_abs +speed +10' listing || fail "the plug-in's norm does not run: $(cat listing)"
"$HEDDLE" kernels --config source/rowwise/run.toml > listing 2> log || fail "heddle kernels with an attention kernel"
grep -Eq '^ *\* rowwise +speed' listing || fail "the plug-in's attention does not run: $(cat listing)"

# A wrong plug-in is refused with file, operation, implementation, problem, error and tolerance, unless it is trusted.
refused build/wrong.so "the implementation 'wrong' of operation 'activation' is wrong: wrong, 11 x 301, strided, central"
grep -qE 'gradient of input.*an error of .*, more than the tolerance 1e-07' log || fail "the error found is not named"
"$HEDDLE" kernels --plugin build/wrong.so --trust-plugins > listing 2> log || fail "a trusted plug-in was refused"
train_in trusted 0 --plugin $plugin --plugin build/wrong.so --trust-plugins --set train.steps=2 --set train.validate_every=0 \
  --set optimizer.warmup_steps=1
code=0
"$HEDDLE" kernels --check update.kokkos > listing 2> log || code=$?
[ "$code" -eq 0 ] || fail "heddle kernels --check update.kokkos: exit code $code"
grep -q ' problems passed' listing || fail "the checks are not counted: $(cat listing)"
unknown "there is no implementation or layer 'update.kokos' to check; did you mean update.kokkos?" --check update.kokos

# One that crashes is named; the process ends as it would.
code=0
CRASH=1 "$HEDDLE" kernels --plugin build/wrong.so > listing 2> log || code=$?
[ "$code" -gt 128 ] || fail "a plug-in that crashes: exit code $code"
grep -qF "heddle: the implementation 'wrong' of operation 'activation' (build/wrong.so) crashes when it is checked: wrong, " \
  log || fail "the plug-in that crashes is not named"

# Digests: one that differs is refused before the library is opened; ranks compare theirs.
cp text.so named.so
refused ./named.so "but plugins.sha256 gives $(sum $plugin)" --set 'plugins.paths=["./named.so"]' \
  --set "plugins.sha256=[\"$(sum $plugin)\"]"
"$HEDDLE" kernels --set "plugins.paths=[\"$plugin\"]" --set "plugins.sha256=[\"$(sum $plugin)\"]" > listing 2> log ||
  fail "a plug-in with the right digest was refused"
mkdir -p other/build
cp $operation other/build/
cp $plugin other/build/ && echo >> other/build/swish.so
cat > on_rank << 'RANK'
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || cd other
exec "$@"
RANK
code=0
"$HEDDLE_MPIRUN" -np 2 bash on_rank "$HEDDLE" train "$work/run.toml" --set run.directory="$work/differ" --plugin $plugin \
  --set data.train="$work/data/train.h5" --set data.valid="$work/data/valid.h5" > log 2>&1 || code=$?
[ "$code" -eq 78 ] || fail "ranks with different plug-ins: exit code $code instead of 78"
grep -q "^rank 1 on $(hostname):" log || fail "the rank with another plug-in is not named with its host"
grep -q "build/swish.so (sha256 $(sum other/build/swish.so))" log || fail "the other plug-in is not named with its path"
cat > on_rank << 'RANK'
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] || exec "$@" --plugin build/swish.so
exec "$@"
RANK
ends 78 "$HEDDLE_MPIRUN" -np 2 bash on_rank "$HEDDLE" train run.toml --set run.directory=differ
grep -q "the ranks have different plug-ins" log || fail "different --plugin options are not named"
[ "$(grep -c "build/swish.so (sha256 $(sum $plugin))" log)" -eq 1 ] || fail "rank 0's plug-in is not named, or rank 1's is"
echo "plug-ins: all as promised"
