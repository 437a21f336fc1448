#!/usr/bin/env bash
# One run over two hosts that share only a network link and the files: tensor 2 x data 2, once with the tensor group
# inside a host and once across, against the run of one rank. The hosts' interface counters show the traffic over the
# link.
source "$(dirname "${BASH_SOURCE[0]}")/common"
needs_end_over_hosts "training over two hosts"
reason=$("$hosts" why_not)
[ -z "$reason" ] || { echo "NOT RUN: training over two hosts, because $reason"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

fail() { { echo "FAILED: $*"; [ ! -e log ] || tail -n 20 log; } >&2; exit 1; }

prepare_data 1000 50 20 150
steps=12
d_model=32
# The large epsilon keeps Adam from amplifying rounding where the gradient is zero except for it, as for the keys'
# bias. The activation is smooth, because rounding decides the sign of a ReLU's input near 0 and thereby a whole gradient:
# in this run a unit's input was -1.6e-8 or 3.2e-8 by the order of its sum, and norms then differed by 3.5e-5.
configure model.d_model=$d_model 'model.activation="gelu"' model.dropout=0.1 model.max_length=64 train.steps=$steps \
  train.batch_tokens=1024 train.micro_batch_tokens=128 train.deterministic=true train.validate_every=4 train.validate_bleu=false \
  train.log_every=1 optimizer.learning_rate=0.003 optimizer.warmup_steps=4 optimizer.epsilon=1e-5
"$HEDDLE" train run.toml --set run.directory=one > log 2>&1 || fail "the run of one rank"
parameters=$(sed -n 's/^\([0-9,]*\) parameters.*/\1/p' log | tr -d ,)

start_hosts hosts host1 host2

# sent HOST: bytes that its interface has sent so far.
sent() { "$hosts" on hosts "$1" sed -n 's/^ *eth0: *//p' /proc/net/dev | awk '{print $9}'; }
# train DIRECTORY PLACES...: four ranks at these places, started from host1; sets first_sent and second_sent.
train() {
  local directory=$1 before1 before2 code=0
  shift
  before1=$(sent host1) before2=$(sent host2)
  "$hosts" on hosts host1 timeout -k 2 120 "$HEDDLE_MPIRUN" "${over_hosts[@]}" -np 4 "$@" \
    "$HEDDLE" train run.toml --set run.directory="$directory" \
    --set parallel.tensor=2 --set parallel.data=2 > log 2>&1 < /dev/null || code=$?
  [ "$code" -eq 0 ] || fail "$directory: exit code $code"
  first_sent=$(($(sent host1) - before1)) second_sent=$(($(sent host2) - before2))
}
# equal DIRECTORY: losses, gradient norms and final parameters are those of the one rank, within these tolerances.
loss_tolerance=1e-6 # relative
norm_tolerance=1e-5 # relative
parameter_tolerance=3e-6 # absolute: the gradient of keys' biases is only rounding
equal() {
  local field tolerance
  rm -f log # of a run that succeeded: `fail` would print it after the table
  for field in train_loss gradient_norm valid_loss; do
    tolerance=$loss_tolerance
    [ $field != gradient_norm ] || tolerance=$norm_tolerance
    # A line with a field gives "step value"; the two runs' lines are joined by step.
    for run in one "$1"; do
      sed -n "s/.*\"step\":\([0-9]*\).*\"$field\":\([-+.0-9e]*\).*/\1 \2/p" "$run/metrics.jsonl" > "$run.$field"
    done
    paste -d ' ' "one.$field" "$1.$field" | awk -v field=$field -v tolerance=$tolerance -v steps=$steps '
      { difference = $4 / $2 - 1; if (difference < 0) difference = -difference; if (difference > largest) largest = difference }
      NF != 4 || $1 != $3 { unlike = 1 }
      END { printf "  %-13s %2d values, largest relative difference %.1e (allowed %s)\n", field, NR, largest, tolerance
            exit unlike || NR != (field == "valid_loss" ? steps / 4 : steps) || !(largest <= tolerance) }' ||
      fail "$1: $field differs"
  done
  # Each host writes a file of tensors.
  local file parameter
  for file in "$1/checkpoints/step-000000$steps"/tensors-*.h5; do
    for parameter in $(h5ls "$file/parameters" | awk '{print $1}'); do
      h5diff -d $parameter_tolerance one/checkpoints/step-000000$steps/tensors-00000.h5 "$file" "/parameters/$parameter" > difference ||
        { head -n 5 difference; fail "$1: the final parameters differ by more than $parameter_tolerance"; }
    done
  done
}

# doctor --cluster sees both hosts, and from one another.
"$hosts" on hosts host1 timeout -k 2 120 "$HEDDLE_MPIRUN" "${over_hosts[@]}" -np 4 --host host1:2,host2:2 --bind-to none \
  "$HEDDLE" doctor --cluster . > log 2>&1 < /dev/null || fail "doctor --cluster"
grep -q '^rank 2 *host2 ' log && grep -q '^ok *network *host1 - host2: ' log && grep -q '^ok *files .* is seen by all hosts' log &&
  grep -q '^ok *locks ' log && grep -q '^ok *hosts *2 with the same processor' log || fail "doctor --cluster misses something"
[ -z "$(find . -maxdepth 1 -name '.heddle-doctor*')" ] || fail "doctor --cluster left files"

# If the comparison could not detect different runs, or the link were never idle, the test would prove nothing.
"$HEDDLE" train run.toml --set run.directory=other --set train.seed=2 > log 2>&1 || fail "the run with another seed"
! (equal other) > table 2>&1 || fail "a run with another seed passes for the same"
train inside --host host1:4
# A subshell: `fail` ends it and not the script, which then prints the table.
(equal inside) > table 2>&1 || { cat table >&2; exit 1; }
[ $((first_sent + second_sent)) -lt 100000 ] || fail "$first_sent and $second_sent bytes over the link with all ranks on one host"

# Ranks 0 and 1 are a tensor group, and so are 2 and 3. By slot each group is inside a host, and every step's gradients
# cross the link; by node each group is on both hosts, and each token's activations cross at least four times: the sums
# of two sublayers, forward and backward. Both directions count.
tokens=$(sed -n "s/.*\"step\":$steps,.*\"tokens\":\([0-9]*\).*/\1/p" one/metrics.jsonl)
for placement in slot node; do
  places=()
  [ $placement = slot ] || places=("${by_node[@]}")
  train "by_$placement" --host host1:2,host2:2 "${places[@]}"
  least=$((parameters * 4 * steps)) what="$parameters parameters x $steps steps x 4 bytes"
  [ $placement = slot ] || least=$((tokens * d_model * 4 * 4)) what="$tokens tokens x $d_model values x 4 times x 4 bytes"
  echo "tensor 2 x data 2, by $placement: host1 sent $first_sent bytes, host2 $second_sent; at least $what = $least"
  equal by_$placement
  ((first_sent >= least && second_sent >= least)) || fail "less than that went over the link"
done
echo "two_hosts: as one rank"
