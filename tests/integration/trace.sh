#!/usr/bin/env bash
# heddle train --trace: every rank's lanes are nested, transfers end, and the sums are those of the report.
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
reader=$HEDDLE_BUILD/tests/integration/trace_reader
processor=$(command -v trace_processor || command -v trace_processor_shell || true)

# processed NAME: Perfetto's own processor reads the trace without errors and finds as many slices as our reader, all of them ended.
processed() {
  local slices answer
  slices=$(sed -n 's/^slices: //p' log)
  [ "$slices" -gt 0 ] || fail "$1: the reader counts no slices"
  [ -n "$processor" ] || return 0
  echo "select 'slices=' || (select count(*) from slice) || ' unfinished=' || (select count(*) from slice where dur < 0) ||
    ' errors=' || (select coalesce(sum(value), 0) from stats where severity = 'error') as answer;" > query.sql
  "$processor" -q query.sql "$1/trace.json" > processor.log 2>&1 || { cat processor.log; fail "$1: $processor cannot read the trace"; }
  answer=$(grep -o 'slices=.*errors=[0-9]*' processor.log || true)
  [ "$answer" = "slices=$slices unfinished=0 errors=0" ] || fail "$1: $processor found '$answer' instead of $slices slices"
  echo "$1: $processor found the same $slices slices"
}

# traced NAME RANKS SETTING...: a run of six steps, all of which are traced.
traced() {
  local name=$1 ranks=$2 setting arguments=(--trace 6)
  shift 2
  for setting in "run.directory=$name" train.steps=6 train.validate_every=0 "$@"; do
    arguments+=(--set "$setting")
  done
  if [ "$ranks" -eq 1 ]; then
    ends 0 "$HEDDLE" train run.toml "${arguments[@]}"
  else
    ends 0 "$HEDDLE_MPIRUN" -np "$ranks" "$HEDDLE" train run.toml "${arguments[@]}"
  fi
  grep -q "^the trace of 6 steps is in $name/trace.json" log || fail "$name: the trace is not announced"
  "$reader" "$name/trace.json" "$name/report.json" "$ranks" 6 > log || fail "$name: the trace is wrong"
  echo "$name: $(grep -c ' traced, ' log) sums agree, $(grep 'messages' log)"
  processed "$name"
}
traced single 1
traced data 2 train.validate_every=3 # a validation is in no step, and in no trace
traced stages 4 parallel.pipeline=2 parallel.tensor=2 parallel.zero_bubble=true
grep -q '"name":"weights"' stages/trace.json || fail "no passes of weights"
traced context 2 parallel.context=2 parallel.shard_optimizer=true
[ "$(sed -n 's/messages in order: //p' log)" -gt 0 ] || fail "no messages between context ranks"

# Only the first steps are traced, and a later trace replaces an earlier one.
ends 0 "$HEDDLE" train run.toml --trace 2 --set run.directory=single --set train.steps=10 --set train.validate_every=0
[ "$(grep -c '"cat":"step"' single/trace.json)" -eq 2 ] || fail "not two steps"
grep -q '"cat":"step","name":"step 7"' single/trace.json || fail "not the first steps of this start"
ends 0 "$HEDDLE" train run.toml --trace 2 --set run.directory=single --set train.steps=10 --set train.validate_every=0
grep -q "^note: no step was made, so there is nothing to trace$" log || fail "a finished run is silent about its trace"
ends 64 "$HEDDLE" train run.toml --trace -1

# The reader sees what is wrong.
sed 's/"dur":[0-9.]*/"dur":1e9/' data/trace.json > wrong.json
! "$reader" wrong.json data/report.json 2 6 > log || fail "overlaps are not seen"
sed 's/"communicating":[0-9.E-]*/"communicating":1e3/g' data/report.json > wrong.json
! "$reader" data/trace.json wrong.json 2 6 > log || fail "wrong sums are not seen"
[ -n "$processor" ] || echo "NOT CHECKED: the traces by Perfetto, because neither trace_processor nor trace_processor_shell is in PATH (perfetto.dev)"
echo "trace: all as promised"
