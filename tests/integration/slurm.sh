#!/usr/bin/env bash
# apps/slurm/train.sbatch, unchanged but for MPICH's srun type, on a real Slurm of four virtual nodes: a sharded run is
# signalled, writes a checkpoint, is queued again, continues and ends bitwise as an undisturbed one under mpirun; a
# pre-empted run comes back, also after a lost rank, a failed one and a cancelled one do not. Translation over ranks is one rank's.
slurm=$HEDDLE_SOURCE/tests/integration/virtual_slurm
reason=$("$slurm" why_not)
[ -z "$reason" ] || { echo "NOT RUN: training under Slurm, because $reason"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/common"

fail() { echo "FAILED: $*"; tail -n 15 -- log ./*.log; exit 1; }
prepare_data 4000 50 20 150
layout="pipeline 1 × data 2 × context 1 × tensor 2"
configure model.dropout=0.1 model.max_length=64 train.steps=120 train.batch_tokens=1024 train.micro_batch_tokens=128 \
  train.validate_every=60 train.validate_bleu=false train.log_every=1 optimizer.learning_rate=0.003 optimizer.warmup_steps=20 \
  parallel.tensor=2 parallel.data=2

start_hosts "$work/slurm" n1 n2 n3 n4
# until_true SECONDS WHAT COMMAND...: waits for the command to succeed.
until_true() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || { run squeue --all; fail "waited in vain: $what"; }
    sleep 0.1
  done
}
run() { "$slurm" run "$work/slurm" "$@"; }
timeout 30 "$slurm" start "$work/slurm" n1 n2 n3 n4 > log 2>&1 || fail "Slurm did not start"

# `init` writes the srun type of this program's MPI: pmix for Open MPI, as in the template, pmi2 for MPICH.
template=$HEDDLE_SOURCE/apps/slurm/train.sbatch
"$HEDDLE" init --where slurm --nodes 4 --ranks-per-node 8 --out site < /dev/null > log || fail "init"
if by_hydra; then template=site/train.sbatch; else cmp -s site/train.sbatch "$template" || fail "init changes the template"; fi
# submit NAME ARGUMENTS...: a job with the template, its log NAME.log and its run NAME; sets job.
submit() {
  local name=$1
  shift
  job=$(run sbatch --parsable --job-name="$name" --nodes=4 --ntasks-per-node=1 --time=5 --output="$name.log" \
    "$template" run.toml --set run.directory="$name" "$@") || fail "sbatch for $name"
}
job_is() { # job_is JOB PATTERN...: the output of `scontrol show job` contains all of these
  local shown pattern
  shown=$(run scontrol show job "$1")
  shift
  for pattern in "$@"; do grep -q "\b$pattern\b" <<< "$shown" || return 1; done
}
came_to() { [ -e "$1/metrics.jsonl" ] && [ "$(wc -l < "$1/metrics.jsonl")" -ge "$2" ]; }

submit wrong --set train.nonsense=1
wrong=$job
submit cut
cut=$job
until_true 60 "cut's step 5" came_to cut 5
run scancel --batch --signal=USR1 "$cut" # as --signal=B:USR1 has it sent
# MPICH 4.0.2 on several hosts may wait in MPI_Finalize until `heddle run` ends the launcher, 30 seconds later.
until_true 75 "cut back in the queue" job_is "$cut" Restarts=1
"$HEDDLE_MPIRUN" -np 4 "$HEDDLE" train run.toml --set run.directory=whole > whole.log 2>&1 || fail "the undisturbed run"
until_true 120 "the end of cut" job_is "$cut" JobState=COMPLETED Restarts=1 ExitCode=0:0

grep -q "^stopped by SIGUSR1 after step" cut.log || fail "cut was not stopped by SIGUSR1"
grep -q "^training ended with exit code 75" cut.log || fail "cut did not end with 75"
grep -q "^resuming after step" cut.log || fail "cut did not resume"
[ "$(grep -c "^job $cut, restart [01], on n\[1-4\]" cut.log)" -eq 2 ] || fail "cut did not run twice on four nodes"
grep -q "\"slurm\":{\"job\":\"$cut\",\"step\":\"[0-9]*\"}" cut/report.json || fail "the report of cut does not name its step"
[ "$(grep -c "$layout" cut.log)" -eq 1 ] || fail "the header of cut is not printed by its first start alone"
[ "$(grep -c "$layout" cut/log.txt)" -eq 2 ] || fail "cut was not sharded as $layout"
# If the comparison could not detect different runs it would prove nothing: step 60 is not step 120.
state() { echo "$1"/checkpoints/step-00000"$2"/tensors-*.h5; }
! h5diff -q "$(state whole 060)" "$(state whole 120)" /parameters > /dev/null || fail "training changed nothing"
for file in cut/checkpoints/step-00000120/tensors-*.h5; do # each node writes a file of tensors
  for parameter in $(h5ls "$file/parameters" | awk '{print $1}'); do
    h5diff "$(state whole 120)" "$file" "/parameters/$parameter" > log || fail "the parameters of whole and cut differ"
    compared=$((${compared:-0} + 1))
  done
done
[ "$compared" -gt 10 ] || fail "only $compared parameters were compared"
diff <(sed 's/,"tokens_per_second.*//' whole/metrics.jsonl) <(sed 's/,"tokens_per_second.*//' cut/metrics.jsonl) > log ||
  fail "the metrics of whole and cut differ"

job_is "$wrong" JobState=FAILED ExitCode=78:0 Restarts=0 || fail "the job with a wrong key did not simply fail"
! grep -q "to be queued again" wrong.log || fail "the job with a wrong key was queued again"

# Pre-empted with grace time and SIGTERM, Slurm's default: the ranks end at once, and the script itself requests the
# requeue.
submit preempted --set train.steps=1000000 --set checkpoint.every_steps=10
preempted=$job
until_true 60 "step 15 before the pre-emption" came_to preempted 15
# srun ends the others ten seconds after a rank was lost, and `heddle run` starts all again.
kill -KILL "$(training_in preempted | tail -n 1)"
resumed() { [ "$(grep -c "^resuming after step" preempted.log)" -ge "$1" ]; }
until_true 60 "the start after a lost rank" resumed 1
grep -q "^heddle run: a rank was lost (code 137: Killed) after step [0-9]*: starting again" preempted.log || fail "the lost rank is not named"
run sbatch --parsable --partition=high --nodes=4 --exclusive --output=high.log --wrap true > log || fail "sbatch for high"
until_true 60 "the pre-empted job's second start" resumed 2
job_is "$preempted" JobState=RUNNING Restarts=1 || fail "the pre-empted job was not queued again once"
run scancel "$preempted"
until_true 30 "the cancelled job's end" job_is "$preempted" JobState=CANCELLED Restarts=1

if by_hydra; then
  echo "NOT RUN: translation over four nodes, because ranks of MPICH 4.0 at times never leave MPI_Finalize"
else
  "$HEDDLE" translate --checkpoint cut < text/test.en > one.out 2> log || fail "translation"
  run timeout 60 srun --mpi=pmix --nodes=4 --ntasks=4 "$HEDDLE" translate --checkpoint cut < text/test.en > four.out 2> log ||
    fail "translation on four nodes"
  cmp one.out four.out || fail "four ranks translate otherwise than one"
fi
echo "slurm: $(grep -o 'stopped by SIGUSR1 after step [0-9]*' cut.log), then as undisturbed; $SECONDS s"
