#!/usr/bin/env bash
# Checkpoints in memory on three hosts, each of which has the part of one other: all ranks of a host are killed and its memory is
# lost; the run resumes from the others', also without that host, bitwise as the run of one rank. With two memories lost it resumes
# from the disk, and names what is missing.
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
needs_end_over_hosts "memory of three hosts"
reason=$("$hosts" why_not)
[ -z "$reason" ] || { echo "NOT RUN: memory of three hosts, because $reason"; exit 77; }
start_hosts hosts host1 host2 host3

# In deterministic mode the run is the same, bitwise, for any number of data ranks.
# Files of tensors have several blocks of 4 MiB.
common=(--set model.d_model=256 --set model.d_ff=1024 --set train.deterministic=true --set train.batch_tokens=256
  --set train.micro_batch_tokens=128 --set train.validate_every=0 --set checkpoint.every_steps=5 --set checkpoint.writers=1)
train() { # train PLACES OPTIONS...
  local places=$1
  shift
  "$hosts" on hosts host1 timeout -k 2 120 "$HEDDLE_MPIRUN" "${over_hosts[@]}" --host "$places" "${by_node[@]}" \
    "$HEDDLE" train run.toml "${common[@]}" --set train.steps=$steps --set checkpoint.memory_every_steps=1 "$@" > log 2>&1 < /dev/null
}
on_all() { # on_all COMMAND: prints its output on each host, one line each
  for host in host1 host2 host3; do "$hosts" on hosts $host sh -c "$1" | tr '\n' ' '; echo; done
}
steps=18
ends 0 "$HEDDLE" train run.toml "${common[@]}" --set train.steps=$steps --set run.directory=one

# broken DIRECTORY HOST...: a run that loses all ranks of host2 after step 6, and the memory of these hosts.
broken() {
  local directory=$1 job lost
  shift
  train host1:2,host2:1,host3:1 --set run.directory="$directory" --set train.steps=100000 &
  job=$!
  wait_for_step "$directory" 6
  kill -KILL "$(rank_of "$directory" 1)" # by node: ranks 0 and 3 are on host1
  wait "$job" && fail "the job outlived a host"
  on_all 'ls /dev/shm/heddle-*/step-*' > "$directory.files"
  [ "$(grep -c 'state.h5 tensors-.*tensors' "$directory.files")" -eq 3 ] || { cat "$directory.files"; fail "the parts are not on the hosts"; }
  for host in "$@"; do "$hosts" on hosts "$host" sh -c 'rm -r /dev/shm/heddle-*'; done
}

broken lost host2
train host1:2,host2:1,host3:1 --set run.directory=lost || fail "three hosts did not resume"
grep -Eq "resuming from step ([5-9]|1[0-9]) in memory" log || fail "three hosts did not resume from memory"
same one lost $steps
on_all 'ls -d /dev/shm/heddle-*' 2> /dev/null | grep heddle && fail "a finished run left its memory"

broken without host2
train host1:1,host3:1 --set run.directory=without || fail "two hosts did not resume"
grep -Eq "resuming from step ([5-9]|1[0-9]) in memory" log || fail "two hosts did not resume from memory"
same one without $steps

broken both host2 host3
train host1:2,host2:1,host3:1 --set run.directory=both || fail "the run did not resume from the disk"
grep -Eq "in memory rejected: no host has a complete copy of tensors-0000[0-9].h5" log || fail "the missing part is not named"
grep -Eq "resuming after step (5|1[05]) " log || fail "it did not resume from the disk"
same one both $steps
echo "memory_hosts: a host and its memory lost, bitwise the undisturbed run"
