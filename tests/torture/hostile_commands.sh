#!/usr/bin/env bash
# Command lines, crafted and at random: each ends soon, in little memory, with a code of docs/reference/exit-codes.md and a message.
source "$HEDDLE_SOURCE/tests/integration/small_run"
random_count=60
[ "$HEDDLE_TORTURE" = small ] || random_count=1000

run=0 refused=0
limit=4000000 memory=", each in less than 4 GB of address space" # KiB
if grep -q '^HEDDLE_SANITIZE:[A-Z]*=.' "$HEDDLE_BUILD/CMakeCache.txt"; then
  limit=unlimited memory="" # AddressSanitizer reserves 16 TiB
fi
# attack CODES ARGUMENT...: these codes, a regular expression, and a message if it is not 0.
attack() {
  local codes=$1 code=0
  shift
  (ulimit -v $limit && timeout 20 "$HEDDLE" "$@") > log 2>&1 < /dev/null || code=$?
  run=$((run + 1))
  [[ $code =~ ^($codes)$ ]] || fail "'heddle $*' ended with $code instead of $codes"
  [ "$code" -eq 0 ] && return
  refused=$((refused + 1))
  [ -s log ] || fail "'heddle $*' ended with $code without a message"
  ! grep -qE 'bad_alloc|terminate called|what\(\)|basic_string|vector::' log || fail "'heddle $*' printed no message for a user"
}

mkfifo fifo
head -c 3000 /dev/urandom > noise
mkdir empty nest
ln -s loop loop
for place in /dev/zero /dev/null fifo noise empty loop no-such-file '' "$(printf 'x%.0s' {1..5000})"; do
  attack '64|78' train "$place"
  attack '64|65' inspect "$place"
  attack '64|65' checkpoint verify "$place"
  attack '64|65|78' translate --checkpoint "$place"
  attack '64|65|78' prepare --source text/train.en --target text/train.de --vocab-model "$place" --out made
  [ "$place" = fifo ] || # a text may come from a pipe
    attack '64|65|78' prepare --source "$place" --target "$place" --vocab-size 100 --out made
  attack '65|78' train run.toml --set data.train="$place" --set run.directory=made
done
for place in /dev/zero fifo noise empty; do
  attack '0|65|78' train run.toml --set kernels.cache="$place" --set run.directory=made
done
for value in 99999999999999999999 -1 1e400 nan '[' '{' "'" '""' $'\x01' "$(printf '[%.0s' {1..3000})"; do
  attack '78' train run.toml --set train.steps="$value"
  attack '78' train run.toml --set model.d_model="$value"
  attack '64|78' train run.toml --set "$value"
done
attack '64|78|65' train run.toml --resume-from 99999999999999999999
attack 64 train
attack 64 ''
attack 64 train run.toml extra
attack 64 "$(printf 'x%.0s' {1..5000})"

words=(train inspect checkpoint verify list translate evaluate kernels prepare plan --help --set train.steps=1 run.toml data/train.h5
  data/valid.h5 --checkpoint --source --target text/train.en --out made --vocab-size 0 -1 noise fifo --verify --samples 3 = -- '' --set=
  run.directory=made model.heads=0 parallel.tensor=3 --new-data --fresh --beam 1000000000 --html made.html)
RANDOM=7
for ((number = 0; number < random_count; ++number)); do
  line=()
  for ((word = RANDOM % 6; word >= 0; --word)); do
    line+=("${words[RANDOM % ${#words[@]}]}")
  done
  [[ " ${line[*]} " == *" kernels "* ]] && line+=(--help) # would measure the kernels of this machine
  attack '0|1|64|65|78' "${line[@]}"
done
echo "figures: $run command lines, $refused refused: crashes 0, hangs 0$memory"
