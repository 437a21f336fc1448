#!/usr/bin/env bash
# apps/pbs/train.pbs and apps/lsf/train.lsf, unchanged, with stand-ins for the schedulers: what they do on two slots of this
# machine when they are signalled, near the time limit, after a failure, and when they run again. A real PBS or LSF may differ.
# shellcheck source=tests/integration/small_run
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
# A job that waits must not outlive a failed test.
trap '[ -z "${job:-}" ] || kill -KILL -- "-$job" 2> /dev/null; rm -rf "$work"' EXIT
cp "$HEDDLE_SOURCE/apps/pbs/train.pbs" "$HEDDLE_SOURCE/apps/lsf/train.lsf" .
mkdir bin queue
printf 'localhost\nlocalhost\n' > slots
printf '#!/bin/sh\nexec "%s" "$@"\n' "$HEDDLE_MPIRUN" > bin/mpirun  # not a link: Hydra looks beside its name

# qsub -v NAME,... SCRIPT: numbers the job and keeps its script and variables in queue/. qstat -f JOB: the limit of the job.
cat > bin/qsub << 'STUB'
#!/bin/bash
[ "$1" = -v ] && [ -f "$3" ] || { echo "qsub: illegal arguments: $*" >&2; exit 2; }
[ ! -e queue/refuse ] || { echo "qsub: would exceed the limit of jobs" >&2; exit 38; }
number=$(($(find queue -name '*.job' | wc -l) + 1))
for name in ${2//,/ }; do printf 'export %s=%q\n' "$name" "${!name}"; done > "queue/$number.environment"
cp "$3" "queue/$number.job"
echo "$number.stub"
STUB
cat > bin/qstat << 'STUB'
#!/bin/bash
[ "$1" = -f ] && [ -e "queue/${2%%.*}.job" ] || { echo "qstat: unknown job $2" >&2; exit 153; }
printf 'Job Id: %s\n    Job_Name = heddle\n    Resource_List.ncpus = 2\n    Resource_List.walltime = %s\n' "$2" "$(cat queue/walltime)"
STUB
chmod +x bin/*
export PATH=$work/bin:$PATH

# submit_pbs ARGUMENTS: the first job of a training. start_pbs NUMBER: as PBS starts a job, in another directory and with little of
# the environment of qsub. finish CODE: waits for the job, which ends with the code.
submit_pbs() { number=$(HEDDLE_ARGUMENTS=$1 qsub -v HEDDLE,HEDDLE_ARGUMENTS train.pbs); number=${number%.stub}; }
start_pbs() {
  setsid bash -c "cd / && . '$work/queue/$1.environment' && PBS_JOBID=$1.stub PBS_O_WORKDIR='$work' PBS_NODEFILE='$work/slots' \
    exec bash '$work/queue/$1.job'" > "output.$1" 2>&1 &
  job=$!
}
finish() {
  local code=0
  for _ in $(seq 1200); do
    kill -0 "$job" 2> /dev/null || break
    sleep 0.1
  done
  ! kill -0 "$job" 2> /dev/null || { cp "$log" log; fail "the job did not end"; }
  wait "$job" || code=$?
  job=
  [ "$code" -eq "$1" ] || { cp "$log" log; fail "the job ended with $code, not $1"; }
}
jobs_in_queue() { find queue -name '*.job' | wc -l; }

ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml --set parallel.data=2 --set run.directory=whole

# Signalled by hand: one more job in the same log, which ends bitwise as an undisturbed one.
echo 12:00:00 > queue/walltime
submit_pbs "run.toml --set parallel.data=2 --set run.directory=pbs"
log=heddle-$number.log
start_pbs "$number"
wait_for_step pbs 8
kill -USR1 "$job"
finish 75
grep -q "^training ended with exit code 75: it continues in job 2.stub" "$log" || fail "no second job"
start_pbs 2
finish 0
grep -q "^resuming after step [0-9]* in pbs (restart 1, ranks: 2)$" "$log" || fail "the second job did not resume"
[ "$(grep -c "^\[model\]" "$log")" -eq 1 ] || fail "the second job printed the configuration again"
! grep -q "^to resume:" "$log" || fail "it is said how to resume, which the script does"
grep -q "^job 1.stub, restart 0, on localhost" "$log" || fail "no header of the first job"
grep -q "^job 2.stub, restart 1, on localhost" "$log" || fail "no header of the second job"
same whole pbs 60
[ "$(jobs_in_queue)" -eq 2 ] || fail "a finished training was queued again"

# Near the limit the script itself sends the signal. --resume-from holds for the first job only.
echo 00:02:04 > queue/walltime
submit_pbs "run.toml --resume-from 55 --set parallel.data=2 --set run.directory=pbs --set train.steps=1000000"
log=heddle-$number.log
start_pbs "$number"
finish 75
grep -q "^stopped by SIGUSR1 after step" "$log" || fail "no signal before the limit"
grep -q -- "HEDDLE_ARGUMENTS=run.toml.*set.*train.steps" queue/4.environment || fail "the arguments were lost"
! grep -q -- "--resume-from" queue/4.environment || fail "the next job would go back to step 55, too"
# A job that qsub refuses is reported.
touch queue/refuse
start_pbs 4
finish 75
grep -q "qsub failed: submit train.pbs again" "$log" || fail "a refused job is not reported"
rm queue/refuse

# Any other code ends the training; so does a limit that leaves no time for the notice.
submit_pbs "run.toml --set train.nonsense=1"
log=heddle-$number.log
start_pbs "$number"
finish 78
echo 00:02:00 > queue/walltime
submit_pbs "run.toml"
log=heddle-$number.log
start_pbs "$number"
finish 64
[ "$(jobs_in_queue)" -eq 6 ] || fail "a failed training was queued again"

# run_lsf ARGUMENTS: as LSF starts a job with the lines #BSUB of the script, whose output -o appends to the log.
run_lsf() {
  HEDDLE_ARGUMENTS=$1 LSB_JOBID=17 LSB_DJOB_HOSTFILE=$work/slots setsid bash train.lsf >> "$log" 2>&1 &
  job=$!
}
requeued=$(sed -n 's/^#BSUB -Q "\(.*\)"/\1/p' train.lsf)
grep -q '^#BSUB -wa USR1' train.lsf || fail "LSF would not signal the job"
log=heddle-17.log
run_lsf "run.toml --set parallel.data=2 --set run.directory=lsf"
wait_for_step lsf 8
kill -USR1 -- "-$job" # LSF signals all processes
finish "$requeued"
run_lsf "run.toml --set parallel.data=2 --set run.directory=lsf"
finish 0
[ "$(grep -c "^job 17 on localhost" "$log")" -eq 2 ] || fail "LSF's log does not have both starts"
grep -q "^resuming after step [0-9]* in lsf (restart 1, ranks: 2)$" "$log" || fail "the second start did not resume"
[ "$(grep -c "^\[model\]" "$log")" -eq 1 ] || fail "the second start printed the configuration again"
same whole lsf 60
run_lsf "run.toml --set train.nonsense=1"
finish 78
run_lsf "run.toml --resume-from 20"
finish 64
echo "job scripts: PBS and LSF continued as undisturbed; $SECONDS s"
