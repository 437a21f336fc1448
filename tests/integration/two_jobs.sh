#!/usr/bin/env bash
# Two jobs with one name for their memory in /dev/shm, as in containers with PID namespaces of their own that share it: the
# second one says what is wrong, and the first continues.
if ! command -v python3 > /dev/null; then
  echo "NOT CHECKED: two jobs of one name, because python3 is not here (apt-get install python3)"
  exit 77
fi
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
by_hydra && { echo "NOT RUN: two jobs of one name, because only Open MPI's memory of ranks has names that jobs can share"; exit 77; }
mkdir names
export OMPI_MCA_btl_vader_backing_directory=$PWD/names
python3 - << 'PYTHON' &
# The first job: it has all names. 37 is F_OFD_SETLK.
import fcntl, os, struct, time
file = open(f"names/.heddle_jobs_{os.geteuid()}", "w")
fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
open("held", "w")
time.sleep(60)
PYTHON
first=$!
until [ -e held ]; do kill -0 $first || fail "no first job"; sleep 0.05; done
ends 78 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set parallel.tensor=2 --set train.steps=2
grep -q "another job on this host has the same name for its memory in $PWD/names" log || fail "the second job does not say what is wrong"
kill $first
ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set parallel.tensor=2 --set train.steps=2
echo "two_jobs: a second job of one name is refused"
