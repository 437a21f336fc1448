#!/usr/bin/env bash
# Hangs: a rank that is stopped at a named or random point, a host whose link is cut, a rank that calls another collective than
# the others (also in checked mode) or leaves its work early, in data, tensor, pipeline and context layouts of two to four ranks.
# The report must name the right rank or host and what it is missing in, and the run must end with 86 (in checked mode: with the
# error of the mismatch). 10 cases, or HEDDLE_HANGS; 100 with HEDDLE_TORTURE=big. HEDDLE_SEED chooses others, HEDDLE_CASES="3 14"
# repeats some.
export TMPDIR=/tmp # virtual hosts have a /dev/shm of their own
source "$(dirname "${BASH_SOURCE[0]}")/../integration/small_run"
cases=${HEDDLE_HANGS:-10}
[ "${HEDDLE_TORTURE:-small}" = small ] || cases=${HEDDLE_HANGS:-100}
seed=${HEDDLE_SEED:-1}
points=$HEDDLE_BUILD/tests/integration/libkill_points.so
faulty=$HEDDLE_BUILD/tests/torture/hanging_ranks
export OMPI_MCA_odls_base_sigkill_timeout=0
kinds=(stop mismatch stop early link stop checked mismatch stop early)
# Pipeline, data, context, tensor.
layouts=("2 1 1 1" "1 2 1 1" "1 1 2 1" "1 1 1 2" "1 3 1 1" "3 1 1 1" "1 1 3 1" "1 4 1 1" "2 2 1 1" "1 2 1 2" "2 1 1 2" "1 1 2 2" "1 2 2 1"
  "4 1 1 1" "1 1 1 4")
training=(--set train.steps=100000 --set model.encoder_layers=2 --set model.decoder_layers=2 --set model.heads=4)
# Rank 0, which saves and logs, is stopped at each of these.
named=(save.directory_make.before save.tensors_create.after save.tensors_write.before save.tensors_sync.before save.tensors_read.after
  save.state_write.before save.state_sync.after save.manifest_write.before save.directory_rename.before save.parent_sync.before
  prune.rename.before log.write.before load.read.before)

pick() { local -n list=$1; picked=${list[$((RANDOM % ${#list[@]}))]}; }
layout() { # layout LAYOUT: sets ranks, sizes and the options of train
  sizes=$1
  read -r pipeline data context tensor <<< "$sizes"
  ranks=$((pipeline * data * context * tensor))
  mesh=(--set parallel.pipeline="$pipeline" --set parallel.data="$data" --set parallel.context="$context" --set parallel.tensor="$tensor")
}
nanoseconds() { date +%s%N; }
# wrong NUMBER KIND REASON LOG: records a case that was not named right.
wrong() { echo "$2 wrong" > "result.$1"; { echo "case $1 ($2, layout $sizes, rank $victim${point:+, $point}): $3"; tail -n 25 "$4"; } > "why.$1"; }
# ended NUMBER KIND CODE WANTED NAMED FROM TO LOG: records a case.
ended() {
  if [ "$3" -ne "$4" ]; then
    wrong "$1" "$2" "it ended with $3 instead of $4" "$8"
  elif ! $5; then
    wrong "$1" "$2" "it is not named right" "$8"
  else
    echo "$2 right $6 $7" > "result.$1"
  fi
}
# only LOG KIND-OF-LINE LINE: all lines of the reports with this text are this one.
only() { [ "$(grep -a "$2" "$1" | sort -u | wc -l)" -eq 1 ] && grep -aEq "$3" "$1"; }

stop_case() {
  local number=$1 name=stop_$1 code=0 right=false
  pick layouts && layout "$picked"
  victim=$((RANDOM % ranks))
  if [ $((RANDOM % 3)) -eq 0 ]; then
    victim=0
    pick named && point="$picked 1"
  else
    point="mpi $((RANDOM % 600 + 60))"
  fi
  cp -r base "$name"
  echo "$point $victim stop" > "$name.plan"
  timeout -k 1 60 "$HEDDLE_MPIRUN" -np "$ranks" env LD_PRELOAD="$points:${LD_PRELOAD:-}" HEDDLE_KILL_PLAN="$PWD/$name.plan" \
    HEDDLE_KILL_EVENTS="$PWD/$name.events" "$HEDDLE" train run.toml "${training[@]}" "${mesh[@]}" --set train.hang_seconds=1.5 \
    --set run.directory="$name" > "$name.log" 2>&1 || code=$?
  ! only "$name.log" "no answer" "^  rank $victim on $(hostname): no answer .stopped, dead or cut off.; missing in [^.;]+\.[a-z_]+ [0-9]" ||
    right=true
  ended "$number" stop "$code" 86 $right "$(sed -n 's/^kill .* //p' "$name.events")" "$(nanoseconds)" "$name.log"
  rm -rf "$name"
}

# Ranks 0, 1, … on host1, host2, …, or pairs of them.
# silent_in NUMBER LOG: hosts and ranks that gave no answer, by this report of the log, if one of them is missing in a collective. Ranks
# of a host are on one line only if they are missing in the same collectives.
silent_in() {
  awk -v number="$1" '/no rank has made progress/ { ++report } report == number && /: no answer / {
    if (/missing in [^.;]+\.[a-z_]+ [0-9]/) missing = 1; lines = lines $0 "\n" } END { if (missing) printf "%s", lines }' "$2" |
    sed -nE 's/^  ranks? ([0-9, ]*) on (.*): no answer .*/\2 \1/p' | tr -s ', ' '\n' | sort -u | paste -sd ' '
}
link_case() {
  local number=$1 name=$work/link_$1 slots=1 places="" host right=false cut
  pick layouts && layout "$picked"
  [ "$ranks" -lt 4 ] || slots=2
  for host in $(seq $((ranks / slots))); do places+=${places:+,}host$host:$slots; done
  victim=$((RANDOM % (ranks / slots) + 1))
  point=host$victim
  { "$hosts" on hosts switch timeout -k 1 100 "$HEDDLE_MPIRUN" "${over_hosts[@]}" --host "$places" -np "$ranks" \
    sh -c '"$@"; code=$?; echo "${OMPI_COMM_WORLD_RANK:-$PMI_RANK} $code $(date +%s%N)" >> "$0"; exit $code' "$name.ended" \
    "$HEDDLE" train run.toml "${training[@]}" "${mesh[@]}" --set train.hang_seconds=1.5 --set run.directory="$name" || true; } > "$name.log" 2>&1 &
  local job=$!
  touch "$name.ended"
  local step=$((RANDOM % 10 + 2))
  for _ in $(seq 1000); do [ "$(lines "$name")" -lt $step ] || break; sleep 0.02; done
  sleep "0.$((RANDOM % 9))"
  cut=$(nanoseconds)
  "$hosts" on hosts host$victim ip link set eth0 down
  # Ranks end on both sides; the first one ends its neighbours. mpirun ends when it hears of its host again.
  local first=$(((victim - 1) * slots)) lost sides
  for _ in $(seq 500); do
    sides=$(awk -v first=$first -v slots=$slots '$2 == 86 { side[$1 >= first && $1 < first + slots] } $2 != 86 { wrong = 1 }
      END { print wrong ? 0 : length(side) }' "$name.ended")
    [ "$sides" -lt 2 ] || break
    sleep 0.02
  done
  "$hosts" on hosts host$victim ip link set eth0 up
  wait "$job"
  lost=$(printf '%s\n' host$victim $(seq $first $((first + slots - 1))) | sort -u | paste -sd ' ')
  local others report
  others=$(printf '%s\n' $(seq -f 'host%g' $((ranks / slots))) $(seq 0 $((ranks - 1))) | grep -vxE "${lost// /|}" | sort -u | paste -sd ' ')
  # For those who were cut off, the others are: that report comes only if the link is up again in time.
  for report in $(seq "$(grep -c 'no rank has made progress' "$name.log")"); do
    case "$(silent_in "$report" "$name.log")" in
      "$lost") [ "$right" = wrong ] || right=true ;;
      "$others") ;;
      *) right=wrong ;;
    esac
  done
  [ "$right" = true ] || right=false
  [ "$sides" -eq 2 ] || { cat "$name.ended" >> "$name.log"; right=false; }
  ended "$number" link 86 86 $right "$cut" "$(sort -n -k 3 "$name.ended" | tail -n 1 | cut -d ' ' -f 3)" "$name.log"
}

# faulty_case NUMBER KIND: hanging_ranks, which trains another tiny model.
faulty_case() {
  local number=$1 kind=$2 log=$2_$1.log code=0 wanted=86 right=false checked="" other group at fault=$2
  pick layouts && layout "$picked"
  victim=$((RANDOM % ranks))
  point="collective $((RANDOM % 50 + 1))"
  [ "$kind" != early ] || point="step $((RANDOM % 20 + 1))"
  [ "$kind" != checked ] || { checked=checked wanted=1 fault=mismatch; }
  # shellcheck disable=SC2086 # words
  timeout -k 1 60 "$HEDDLE_MPIRUN" -np "$ranks" "$faulty" $fault $victim ${point#* } $sizes 0.$((RANDOM % 5 + 5)) $checked > "$log" 2>&1 ||
    code=$?
  at=$(sed -n 's/^fault: .* at //p' "$log")
  other=$(sed -n 's/^fault: rank [0-9]* calls \([^ ]*\) before .*/\1/p' "$log")
  group=${other%.*}
  case $kind in
    early) ! only "$log" "leaving the run" "^  rank $victim on $(hostname): leaving the run, .*; missing in [^.;]+\.[a-z_]+ [0-9]" ||
      grep -aq "no answer" "$log" || right=true ;;
    mismatch) ! grep -aEq "^  rank $victim on .*: waiting in $other [0-9]+.*; missing in $group\.|different calls in one place: .*rank $victim calls $other [0-9]" "$log" ||
      grep -aq "no answer" "$log" || right=true ;;
    checked) ! grep -aEq "the ranks of a $group group do not call the same collective: .*rank $victim calls ${other#*.} as its" "$log" || right=true ;;
  esac
  ended "$number" "$kind" "$code" $wanted $right "${at:-0}" "$(nanoseconds)" "$log"
}

run_case() {
  RANDOM=$((seed * 1000 + $1))
  local kind=${kinds[$(($1 % ${#kinds[@]}))]}
  point=""
  case $kind in
    stop | link) "${kind}_case" "$1" ;;
    *) faulty_case "$1" "$kind" ;;
  esac
}

ends 0 "$HEDDLE" train run.toml "${training[@]}" --set train.steps=12 --set run.directory=base
reason=$("$hosts" why_not)
if [ -z "$reason" ]; then
  start_hosts hosts host1 host2 host3
fi
# The hosts are used by one case at a time; ranks of the others mostly wait, so that some run at once.
lanes=() links=""
others=3 lane=0
for number in ${HEDDLE_CASES:-$(seq 0 $((cases - 1)))}; do
  if [ "${kinds[$((number % ${#kinds[@]}))]}" = link ]; then
    links+=" $number"
  else
    lanes[lane]+=" $number"
    lane=$(((lane + 1) % others))
  fi
done
[ -n "$reason" ] || lanes+=("$links")
started=()
for lane in "${lanes[@]}"; do
  for number in $lane; do run_case "$number"; done &
  started+=($!)
done
wait "${started[@]}"

cat why.* 2> /dev/null || true
cat result.* | awk '{ ++cases; ++of[$1]; if ($2 == "right") ++right; if ($2 == "right" && $1 != "checked") print ($4 - $3) / 1e9 | "sort -n > seconds" }
  END { printf "figures: %d hangs (%d ranks stopped, %d links cut, %d mismatches, %d of them in checked mode, %d ranks left early): %d named right",
    cases, of["stop"], of["link"], of["mismatch"] + of["checked"], of["checked"], of["early"], right }'
awk '{ t[NR] = $1 } END { printf "; seconds to 86: median %.1f, worst %.1f\n", t[int((NR + 1) / 2)], t[NR] }' seconds
[ -z "$reason" ] || echo "figures: no link was cut, because $reason"
[ "$(cat result.* | wc -l)" -eq "$(wc -w <<< "${lanes[*]}")" ] && ! grep -q wrong result.*
