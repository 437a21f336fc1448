#!/usr/bin/env bash
# heddle run: SIGKILL of ranks, of mpirun and of whole virtual hosts at every named point of step, save, prune and load, in
# between and at random, in data, tensor, pipeline and context layouts: each run ends bitwise as an undisturbed one.
# HEDDLE_KILLS: kills of ranks and mpirun, to which those of hosts and links are added (30 and 10; 1,000 and 144 with
# HEDDLE_TORTURE=big); HEDDLE_SEED chooses the order. Where there can be no virtual hosts, theirs are left out.
export TMPDIR=/tmp # virtual hosts have a /dev/shm of their own
source "$(dirname "${BASH_SOURCE[0]}")/../integration/small_run"
kills=${HEDDLE_KILLS:-30}
[ "${HEDDLE_TORTURE:-small}" = small ] || kills=${HEDDLE_KILLS:-1000}
RANDOM=${HEDDLE_SEED:-1}
points=$HEDDLE_BUILD/tests/integration/libkill_points.so
[ -e "$points" ] || fail "$points is missing"
at_once=8 # kills in one run
steps=$((40 * at_once))
export OMPI_MCA_odls_base_sigkill_timeout=0
training=(--set train.steps=$steps --set checkpoint.keep=2 --set train.deterministic=true)

# Points that come in every save are awaited twice, so that a checkpoint lies between two kills.
named=()
for point in directory_make tensors_create tensors_write tensors_sync tensors_read state_write state_sync state_read \
  manifest_write manifest_sync directory_sync directory_rename parent_sync; do
  for side in before after; do named+=("save.$point.$side 2 0"); done
done
for side in before after; do
  named+=("save.best_link.$side 1 0" "save.best_rename.$side 1 0" "prune.rename.$side 2 0" "prune.remove.$side 5 0"
    "load.open.$side 3 0" "load.read.$side 1 1" "log.write.$side 7 0")
done
for _ in 1 2 3; do named+=("mpi $((RANDOM % 500 + 50)) 1" "mpi $((RANDOM % 500 + 50)) 0"); done
for _ in 1 2 3; do named+=("training $((RANDOM % 300)) 0"); done
named+=("start $((RANDOM % 500 + 20)) 1")
mapfile -t named < <(printf '%s\n' "${named[@]}" | awk -v seed="$RANDOM" 'BEGIN { srand(seed) } { print rand() "\t" $0 }' | sort -n | cut -f 2)

# plan NAME KILLS VICTIMS...: the next kills. The first one comes when there are checkpoints, so that others can be loading one.
next=0
plan() {
  local name=$1 count=$2 number point="prune.rename.before 1 0"
  shift 2
  for number in $(seq "$count"); do
    echo "$point ${*:$((next % $# + 1)):1}"
    point=${named[$((next % ${#named[@]}))]}
    next=$((next + 1))
  done > "$name.plan"
}
# recovered NAME SUPERVISOR-CODE KILLS: the run's own end, its kills, and their figures.
recovered() {
  [ "$2" -eq 0 ] || { cp "$1.log" log; fail "$1 ended with $2"; }
  grep -a '^kill ' "$1.events" > "$1.kills" || true
  # Ranks outlive a launcher that is killed for a second, in which they may come to the end: the other kills are for the next run.
  came=$(wc -l < "$1.kills")
  [ "$came" -ge 1 ] && { [ "$came" -eq "$3" ] || grep -q ' launcher ' "$1.kills"; } ||
    { cp "$1.log" log; cat "$1.plan" "$1.kills"; fail "$1: $came kills instead of $3"; }
  ! grep overdue "$1.kills" || fail "$1: a point did not come"
  # For each kill: its kind, seconds until a process that began after it had finished a step, and the steps that were computed again.
  awk '$1 == "begin" { began[$2] = $3 }
       $1 == "step" { for (; settled < kills && began[$3] > at[settled + 1]; ++settled) {
                        again = settled + 1 == kills && last >= $2 ? last - $2 + 1 : 0
                        printf "%s %.2f %d\n", victim[settled + 1], ($4 - at[settled + 1]) / 1e9, again }
                      if (settled == kills || $2 > last) last = $2 }
       $1 == "kill" { at[++kills] = $4; victim[kills] = $3 }' "$1.events" >> figures
}
# disturb NAME WHOLE COUNT VICTIM... -- LAUNCHER... -- OPTIONS...; in a pipeline backward passes are split, which changes no bit.
disturb() {
  local name=$1 whole=$2 count=$3 victims=() launcher=() code=0
  shift 3
  while [ "$1" != -- ]; do victims+=("$1") && shift; done
  shift
  while [ "$1" != -- ]; do launcher+=("$1") && shift; done
  shift
  plan "$name" "$count" "${victims[@]}"
  "${on[@]}" "$HEDDLE" run run.toml "${training[@]}" "$@" --set run.directory="$name" --set parallel.zero_bubble=true -- "${launcher[@]}" env LD_PRELOAD="$points:${LD_PRELOAD:-}" \
    HEDDLE_KILL_PLAN="$PWD/$name.plan" HEDDLE_KILL_EVENTS="$PWD/$name.events" > "$name.log" 2>&1 || code=$?
  recovered "$name" "$code" "$count"
  same "$whole" "$name" "$steps"
  rm -rf "$name"
}

: > figures
on=()
layouts=(data tensor pipeline context)
mixture=(--set 'model.encoder.layer.1.sublayers=["self_attention", "mixture_of_experts"]'
  --set 'model.encoder.mixture_of_experts={ experts = 4 }')
# options_of LAYOUT: in of_layout[]. Replicas divide parameters, except where a run continues with fewer: that adds the
# norm's squares in another order. Data and context ranks divide experts, too; beside tensor ranks the encoder has a grid of its own.
options_of() {
  of_layout=(--set parallel.shard_parameters=true --set parallel.shard_min_parameters=1 --set parallel.$1=2)
  case $1 in
    data | context) of_layout+=("${mixture[@]}" --set parallel.expert=2) ;;
    pipeline) of_layout+=("${mixture[@]}") ;;
    tensor) of_layout+=(--set parallel.encoder_tensor=1) ;;
    power) of_layout=(--set parallel.data=2) ;;
  esac
}
for layout in "${layouts[@]}" power; do
  options_of "$layout"
  "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml "${training[@]}" "${of_layout[@]}" --set run.directory=whole_$layout > whole_$layout.log 2>&1 &
done
wait
for layout in "${layouts[@]}" power; do
  [ -e "$(state whole_$layout $steps)/MANIFEST.json" ] || { cp whole_$layout.log log; fail "the undisturbed run of $layout ended early"; }
done

kill_hosts() {
  # Two ranks on two of three virtual hosts, which are killed whole; the launcher is on another machine.
  on=("$hosts" on "$work/hosts" switch)
  local over=("$HEDDLE_MPIRUN" "${over_hosts[@]}" --host '{hosts}' -np '{ranks}')
  for number in $(seq $(((kills + 79) / 80))); do
    layout=${layouts[$((number % ${#layouts[@]}))]}
    options_of "$layout"
    disturb "hosts_$number" "whole_$layout" $((kills < at_once ? kills : at_once)) host -- "${over[@]}" -- \
      "${of_layout[@]}" --hosts host1:1,host2:1,host3:1 --ranks 2
  done
  # Cut links: another host takes the place of the one that is lost, which comes back later.
  for number in $(seq $(((kills + 199) / 200))); do
    layout=${layouts[$(((number + 1) % ${#layouts[@]}))]}
    options_of "$layout"
    links=$((kills < 200 ? 1 : at_once))
    disturb "links_$number" "whole_$layout" $links link -- "${over[@]}" -- \
      "${of_layout[@]}" --set train.hang_seconds=3 --hosts host1:1,host2:1,host3:1 --ranks 2 --launcher-ends-within 1
    grep -q "after step [0-9]*.*: starting again" "links_$number.log" || { cp "links_$number.log" log; fail "the run was not started again"; }
  done
  # Without spare hosts, fewer data ranks train the same run.
  disturb power whole_power 1 power -- "${over[@]}" -- --set train.hang_seconds=3 --hosts host1:1,host2:1 --ranks 2,1 --launcher-ends-within 1
  grep -Eq "left out, nothing starts there: host[12]" power.log || { cp power.log log; fail "no host was left out"; }
}

# Both kinds at the same time, as much of it is waiting; one after the other where the seconds are to be measured.
beside=
reason=$("$hosts" why_not)
if [ -z "$reason" ]; then
  start_hosts hosts host1 host2 host3
  trap '[ -z "$beside" ] || kill "$beside" 2> /dev/null || true; stop_hosts' EXIT
  mkdir beside
  ln -s "$work"/data "$work"/run.toml "$work"/whole_* beside/
  (cd beside; next=$kills; kill_hosts) > beside.log 2>&1 &
  beside=$!
  [ "${HEDDLE_TORTURE:-small}" = small ] || wait "$beside" || { cat beside.log; exit 1; }
fi
left=$kills number=0
while [ "$left" -gt 0 ]; do
  number=$((number + 1))
  layout=${layouts[$((number % ${#layouts[@]}))]}
  options_of "$layout"
  count=$((left < at_once ? left : at_once))
  disturb "killed_$number" "whole_$layout" "$count" rank0 rank1 rank0 rank1 rank0 rank1 rank1 launcher -- "$HEDDLE_MPIRUN" -np 2 -- \
    "${of_layout[@]}"
  left=$((left - came))
done
if [ -n "$beside" ]; then
  wait "$beside" || { cat beside.log; exit 1; }
  cat beside/figures >> figures
fi

for kind in rank launcher host link power; do
  { grep "^$kind" figures || true; } | sort -n -k 2 | awk -v kind=$kind '{ t[NR] = $2; steps += $3 } END {
    if (NR > 0) printf "figures: %d times a %s, bitwise the undisturbed run; seconds to the next finished step: median %s, worst %s; %.1f steps computed again\n",
      NR, kind, t[int((NR + 1) / 2)], t[NR], steps / NR }'
done
[ -z "$reason" ] || echo "figures: no host was killed, because $reason"
