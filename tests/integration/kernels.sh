#!/usr/bin/env bash
# Measured kernels for users: --benchmark, the cache, and a run that keeps its first choice.
source "$(dirname "${BASH_SOURCE[0]}")/common"
export XDG_CACHE_HOME=$work/cache
export OMP_NUM_THREADS=1  # part of a machine's name; mpirun may set it for its ranks

prepare_data 1000 50 20 150
configure model.encoder_layers=2 model.decoder_layers=2 model.max_length=128 train.steps=10 train.batch_tokens=512 \
  train.micro_batch_tokens=256 train.validate_every=0 optimizer.warmup_steps=20 checkpoint.every_steps=5
default=$XDG_CACHE_HOME/heddle/kernels.json

"$HEDDLE" kernels > listing 2> log || fail "heddle kernels without a cache"
grep -q 'Nothing is measured on this machine' listing || fail "without a cache it is not said that nothing is measured"

# Every operation of the model's step, every implementation, one winner per problem, all of it in the cache.
"$HEDDLE" kernels --benchmark --config run.toml --all > listing 2> log || fail "--benchmark"
peaks='^Peak of multiplications: [1-9][0-9.]* GFLOP/s \([a-z0-9]+\); of y \+= x( in (L2|L3|memory): [1-9][0-9.]* GB/s){3}$'
grep -Eq "$peaks" listing || fail "no peaks"
for operation in gemm attention residual_norm activation softmax_cross_entropy embedding update tensor_ops; do
  grep -q "^$operation: " listing || fail "no table of $operation"
  grep -q "\"$operation\": {" "$default" || fail "$operation is not in the cache"
done
grep -Eq '^  weight gradient, 48 x 32 x [0-9]+ +[a-z0-9]+ .* %( +[0-9.]+){2} %$' listing || fail "no line of a weight gradient"
[ "$(grep -Ec '^ .* \* [a-z0-9]+ ' listing)" -eq "$(grep -Ec '^[a-z_]+: ' listing)" ] || fail "not one winner a problem"
for name in reference kokkos onednn; do
  grep -q "\"$name\":" "$default" || fail "$name is not in the cache"
done
"$HEDDLE" kernels > listing 2> log || fail "heddle kernels with a cache"
grep -Fq "$default" listing || fail "the cache is not named"
grep -Fq '48 columns of 32' listing || fail "the measured problems are not listed"

# An implementation without a time, first by speed, stays first; without it the others are ordered by their times.
line=$(grep -A 1 'tensor_ops: ' listing | tail -n 1)
mkdir -p untimed/heddle
sed -E '/"tensors of float32"/s/"kokkos":[0-9.E-]+,//' "$default" > untimed/heddle/kernels.json
XDG_CACHE_HOME=$work/untimed "$HEDDLE" kernels > listing 2> log || fail "heddle kernels with a time less"
grep -A 1 'tensor_ops: ' listing | tail -n 1 | grep -Eq '^ +\+ kokkos not timed .*\* (reference|teams) ' ||
  fail "an implementation without a time is not reported, where it was: $line"

# The cache's file is configurable; a layout has its own problems; precision and plug-ins come from the configuration,
# too.
"$HEDDLE" kernels --benchmark --config run.toml --set kernels.cache=other.json --set parallel.tensor=2 \
  --set model.encoder.layer.2.activation=gelu > listing 2> log || fail "--benchmark of a tensor layout with two kinds of layers"
grep -Fq '24 columns of 32' other.json || fail "the layout's shapes are not its tensor ranks'"
# A layer that differs from the others of its stack is timed, too.
for function in relu gelu; do
  grep -q "^activation: .*$function" listing || fail "the layers with $function are not timed"
done
"$HEDDLE" kernels --benchmark --set 'kernels.cache=""' --set 'model.stacks=["decoder"]' --set model.d_model=32 --set model.d_ff=32 --set model.heads=2 \
  --set train.micro_batch_tokens=256 --set train.batch_tokens=256 --set model.max_length=64 --vocabulary 50 > listing 2> log ||
  fail "--benchmark without data"
grep -q '^The times are not kept: kernels.cache is ""' listing || fail "kernels.cache = \"\" keeps times"
ends 64 "$HEDDLE" kernels --benchmark --vocabulary 0

# A file that is not a cache is left unchanged, and where times cannot be kept nothing is measured first.
cp run.toml before.toml
for cache in run.toml /proc/no/kernels.json; do
  ! "$HEDDLE" kernels --benchmark --config run.toml --set kernels.cache="\"$cache\"" > listing 2> log || fail "times are kept in $cache"
  grep -q "^heddle: $cache: " log || fail "$cache is not named"
  ! grep -q '^Peak' listing || fail "it was measured before $cache was looked at"
done
cmp -s run.toml before.toml || fail "--benchmark has overwritten a file that is not a cache"

# The list is that of the configured run.
"$HEDDLE" kernels --config run.toml --set kernels.gemm=reference --set 'kernels.cache=""' > listing 2> log || fail "the list of a configuration"
sed -n '/^  gemm$/,/^  residual_norm$/p' listing | grep -q '\* reference ' || fail "the configured implementation is not marked"
grep -q 'float32, d_model 32, 2 heads' listing || fail "it is not said of which model the list is"

# A cache in which the portable kernels are always the fastest: one line per problem, "name":seconds.
sed -E 's/"([a-z0-9_]+)":[0-9][^,}]*/"\1":1/g; s/"kokkos":1/"kokkos":1e-6/g' "$default" > portable.json
train() {
  local directory=$1
  shift
  "$HEDDLE" train run.toml --set run.directory="$directory" "$@" > log 2>&1 || fail "train into $directory with $*"
}
state() { echo "$1/checkpoints/step-00000010"; }
equal() { h5diff -q "$(state "$1")"/tensors-*.h5 "$(state "$2")"/tensors-*.h5 /parameters > /dev/null; }

train by_speed --set 'kernels.cache=""'
! grep -q 'chosen by' log || fail "a run without a cache talks of one"
train named --set 'kernels.cache=""' --set kernels.gemm=kokkos --set kernels.attention=kokkos --set kernels.residual_norm=kokkos \
  --set kernels.activation=kokkos --set kernels.softmax_cross_entropy=kokkos --set kernels.embedding=kokkos \
  --set kernels.update=kokkos --set kernels.tensor_ops=kokkos
train measured --set kernels.cache=portable.json
grep -q 'kernels are chosen by the times in portable.json' log || fail "it is not said how kernels are chosen"
equal measured named || fail "auto does not take what was fastest"
! equal measured by_speed || fail "kokkos and the fastest by speed compute the same: this test proves nothing"

# A run continues with the kernels that it started with, even if the cache has changed since.
train kept --set kernels.cache=portable.json --set train.steps=5
train kept --set 'kernels.cache=""'
equal kept measured || fail "a resumed run has lost its kernels"
train late --set 'kernels.cache=""' --set train.steps=5
train late --set kernels.cache=portable.json
equal late by_speed || fail "a resumed run has taken times that came later"
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set kernels.cache=portable.json --set run.directory=ranks \
  --set train.deterministic=true > log 2>&1 || fail "train on two ranks"
! grep -q 'another kind of machine' log || fail "equal ranks are reported to differ"
train alone --set kernels.cache=portable.json --set train.deterministic=true
equal ranks alone || fail "two ranks have not chosen as one did"

# A run starts with its first checkpoint: files that it left before do not keep it from using later times.
mkdir early
echo '{"format": "heddle kernel times, version 1", "machines": {}}' > early/kernels.json
mkdir -p early/checkpoints/.step-00000010.half-written
train early --set kernels.cache=portable.json
grep -q 'kernels are chosen by the times in portable.json' log || fail "a run without checkpoints counts as started"
equal early measured || fail "a run without checkpoints has not taken the cache's times"

# A run that has lost its times reports it.
train lost --set kernels.cache=portable.json --set train.steps=5
rm lost/kernels.json
train lost --set kernels.cache=portable.json
grep -q 'note: .*lost/kernels.json is gone: kernels are chosen by speed' log || fail "lost times are not reported"
! equal lost measured || fail "a run without its times still has them: this test proves nothing"

# On another machine a run reports it and uses speeds; a damaged cache is named and not used.
train moved --set kernels.cache=portable.json --set train.steps=5
sed -i -E 's/\(kind [0-9a-f]+\)/(kind of another machine)/' moved/kernels.json
train moved --set kernels.cache=portable.json
grep -q 'was written in other circumstances (".* (kind of another machine)" there, ".* (kind [0-9a-f]*)" here): kernels are chosen by speed' log ||
  fail "another machine is not reported"
grep -q 'kind of another machine' moved/kernels.json || fail "the times of the start are lost"
train threads --set kernels.cache=portable.json --set train.steps=5
OMP_NUM_THREADS=2 train threads
grep -q 'other circumstances ("1 thread" there, "2 threads" here)' log || fail "the difference is not reported"
head -c 300 portable.json > damaged.json
train damaged --set kernels.cache=damaged.json
grep -q 'not used: damaged.json: is not a file of measured times' log || fail "a damaged cache is not named"
equal damaged by_speed || fail "a damaged cache was used"
sed -E 's/\(kind [0-9a-f]+\)/(kind of another machine)/' portable.json > foreign.json
train foreign --set kernels.cache=foreign.json
equal foreign by_speed || fail "another machine's times were used"

# Ranks on different machines are reported.
"$HEDDLE_MPIRUN" -np 1 "$HEDDLE" train run.toml --set run.directory=mixed : \
  -np 1 env OMP_NUM_THREADS=2 "$HEDDLE" train run.toml --set run.directory=mixed > log 2>&1 || fail "train on ranks that differ"
grep -q 'note: rank 1 runs on another kind of machine than rank 0 ("2 threads" there, "1 thread" here)' log ||
  fail "ranks that differ are not reported"
echo "kernels: measured, cached, kept"
