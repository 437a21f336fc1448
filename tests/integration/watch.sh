#!/usr/bin/env bash
# A rank that is stopped is named, and the run ends with 86; a rank that is merely slow ends nothing; checked mode trains
# bitwise the same.
source "$(dirname "${BASH_SOURCE[0]}")/small_run"

# mpirun continues a stopped rank before it ends it: within its usual second that rank could report a hang, too.
export OMPI_MCA_odls_base_sigkill_timeout=0

four=("$HEDDLE_MPIRUN" -np 4 "$HEDDLE" train run.toml --set parallel.tensor=2 --set train.steps=100000)
seconds=()
for victim in 0 3; do
  directory=stopped$victim
  began=
  "${four[@]}" --set train.hang_seconds=1.5 --set checkpoint.every_steps=0 --set run.directory="$directory" > log 2>&1 &
  job=$!
  wait_for_step "$directory" 5
  stopped=$(rank_of "$directory" "$victim")
  kill -STOP "$stopped"
  began=$(date +%s%N)
  code=0
  wait "$job" || code=$?
  # Hydra kills the stopped rank, and may end with that signal.
  [ "$code" -eq 86 ] || { by_hydra && [ "$code" -eq 9 ]; } || fail "it ended with $code instead of 86"
  seconds+=("$(awk -v t="$(($(date +%s%N) - began))" 'BEGIN { printf "%.1f", t / 1e9 }')")
  grep -Eq "rank $victim on $(hostname): no answer \(stopped, dead or cut off\); missing in .*[a-z]+\.[a-z_]+ [0-9]+" log ||
    fail "rank $victim is not named"
  grep -Eq "ranks? [0-3, ]+ on $(hostname): waiting in [a-z]+\.[a-z_]+ [0-9]+ .*while [a-z]+ step [0-9]+.*; for [12]\.[0-9] s" log ||
    fail "where the others wait is not printed"
  [ "$(grep -c "no rank has made progress for 1.5 s" log)" -eq 1 ] || fail "the report was not printed once on this host"
done

# Slow is not hung: a rank that is stopped for less than the limit, again and again, and hardly runs in between, so that
# a micro-batch takes it longer than the limit.
"$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set train.steps=100000 --set train.hang_seconds=4 --set model.d_model=256 \
  --set model.d_ff=1024 --set train.batch_tokens=2048 --set train.micro_batch_tokens=1024 --set run.directory=slow > log 2>&1 &
job=$!
wait_for_step slow 3
slow=$(rank_of slow 1)
ticks() { awk '{ print $14 + $15 }' "/proc/$slow/stat" 2> /dev/null || echo 0; } # of 10 ms that the processor gave it
for _ in 1 2 3 4; do
  kill -STOP "$slow" || fail "a rank that was slow ended the run"
  sleep 3
  began=$(ticks)
  kill -CONT "$slow" || fail "a rank that was slow ended the run"
  for _ in $(seq 50); do [ "$(ticks)" -lt $((began + 4)) ] || break; sleep 0.02; done
done
before=$(lines slow)
wait_for_step slow $((before + 2))
kill -TERM "$job"
code=0
wait "$job" || code=$?
[ "$code" -ne 86 ] || fail "a rank that was slow ended the run"

# Where UDP is closed, even in one direction, a run says so, and does not take a slow rank for one that hangs.
# shellcheck disable=SC2016
closed='[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" -ne 1 ] || export LD_PRELOAD=$0; exec "$@"'
"${four[@]:0:3}" sh -c "$closed" "$HEDDLE_BUILD/tests/integration/libclosed_udp.so:${LD_PRELOAD:-}" "${four[@]:3}" \
  --set train.hang_seconds=1.5 --set run.directory=closed > log 2>&1 &
job=$!
wait_for_step closed 3
grep -q "UDP messages between ranks do not get through (within $(hostname))" log || fail "closed UDP is not reported"
slow=$(rank_of closed 1)
kill -STOP "$slow"
sleep 4
kill -CONT "$slow"
before=$(lines closed)
wait_for_step closed $((before + 5))
kill -TERM "$job"
code=0
wait "$job" || code=$?
[ "$code" -ne 86 ] || fail "a slow rank ended a run in which UDP is closed"

# Without watch, as before: nobody notices. (Otherwise the tests above would prove nothing about the watch.)
"${four[@]}" --set train.hang_seconds=0 --set run.directory=unwatched > log 2>&1 &
job=$!
wait_for_step unwatched 3
stopped=$(rank_of unwatched 1)
kill -STOP "$stopped"
sleep 4
kill -0 "$job" 2> /dev/null || fail "a run without watch noticed a rank that hangs"
kill -KILL "$stopped"
wait "$job" || true

short=(--set train.steps=10 --set parallel.tensor=2)
ends 0 "$HEDDLE_MPIRUN" -np 4 "$HEDDLE" train run.toml "${short[@]}" --set run.directory=plain
ends 0 "$HEDDLE_MPIRUN" -np 4 "$HEDDLE" train run.toml "${short[@]}" --set run.directory=checked --set parallel.checked=true
same plain checked 10
echo "watch: ranks stopped with train.hang_seconds = 1.5 ended the run after ${seconds[*]} s"
