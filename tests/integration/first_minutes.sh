#!/usr/bin/env bash
# The first run: `selftest`, `init` (options, and questions on a terminal), shell completion.
source "$(dirname "${BASH_SOURCE[0]}")/common"

mkdir tmp
TMPDIR=$work/tmp "$HEDDLE" selftest > selftest.out || { cat selftest.out; fail "selftest fails"; }
[ "$(tail -n 1 selftest.out)" = "everything works" ] || fail "selftest does not say that everything works"
[ -z "$(ls tmp)" ] || fail "selftest leaves files: $(ls tmp)"
# No file may be longer than 100 KiB: the first thing that cannot be written is data or a checkpoint.
code=0
(ulimit -f 100 && TMPDIR=$work/tmp "$HEDDLE" selftest > selftest.out 2>&1) || code=$?
[ "$code" -eq 1 ] || fail "selftest ends with $code where files cannot be written"
grep -q FAILED selftest.out || fail "selftest does not say what failed"
[ -n "$(ls tmp)" ] || fail "selftest leaves nothing to look at where it failed"

for size in tiny base big; do
  "$HEDDLE" init --size $size --precision bfloat16 --where slurm --nodes 2 --ranks-per-node 3 --out $size < /dev/null > next
  "$HEDDLE" config $size/run.toml > config.out || fail "config refuses the configuration of init --size $size"
  grep -qx 'precision = "bfloat16"' config.out || fail "init forgets --precision"
done
# A model that Marian can have.
"$HEDDLE" init --export marian --out "for marian" < /dev/null > next.marian
grep -q "mpirun -np [0-9]* heddle train 'for marian/run.toml'" next.marian || fail "a path with a space is not quoted: $(cat next.marian)"
"$HEDDLE" config "for marian/run.toml" > config.out
for key in 'norm = "post"' 'position_frequencies = "tensor2tensor"' 'norm_epsilon = 1e-06'; do
  grep -qx "$key" config.out || fail "init --export marian without $key"
done
grep -q "sbatch big/train.sbatch big/run.toml" next || fail "init does not say what comes next"
grep -qx "#SBATCH --nodes=2" big/train.sbatch || fail "init forgets --nodes"
grep -qx "#SBATCH --ntasks-per-node=3" big/train.sbatch || fail "init forgets --ranks-per-node"
bash -n big/train.sbatch
for place in pbs lsf; do
  "$HEDDLE" init --where $place --nodes 2 --ranks-per-node 3 --out $place < /dev/null > next.$place
  bash -n $place/train.$place
done
grep -qx "#PBS -l select=2:ncpus=3:mpiprocs=3" pbs/train.pbs || fail "the PBS script has other nodes or ranks"
grep -qx "script='pbs/train.pbs'" pbs/train.pbs || fail "the PBS script would not find itself"
grep -q "qsub -v HEDDLE_ARGUMENTS=pbs/run.toml pbs/train.pbs" next.pbs || fail "init does not say how to submit to PBS"
grep -qx "#BSUB -n 6" lsf/train.lsf && grep -q 'ptile=3]' lsf/train.lsf || fail "the LSF script has other nodes or ranks"
grep -q "HEDDLE_ARGUMENTS=lsf/run.toml bsub < lsf/train.lsf" next.lsf || fail "init does not say how to submit to LSF"
# The site's account, partition, times and modules are in each script.
site=(--account p_1 --partition standard --time 02:30:00 --notice 300 --module gcc/12 --module mpi --directive=--exclusive)
for place in slurm pbs lsf; do
  "$HEDDLE" init --where $place "${site[@]}" --out site.$place < /dev/null > next
  cat site.$place/train.* > site.script
  bash -n site.script
  grep -qx "module load gcc/12 mpi" site.script || fail "the $place script loads no modules"
done
cat site.*/train.* > site.scripts
for line in "#SBATCH --account=p_1" "#SBATCH --exclusive" "#SBATCH --partition=standard" "#SBATCH --time=02:30:00" "#SBATCH --signal=B:USR1@300" \
  "#PBS -A p_1" "#PBS -q standard" "#PBS -l walltime=02:30:00" "notice=300" "#BSUB -P p_1" "#BSUB -q standard" "#BSUB -W 02:30" "#BSUB -wt 6"; do
  grep -qx -- "$line" site.scripts || fail "no job script has the line $line"
done
for wrong in "--account=a b" "--module=\$(id)" "--directive=qos" "--time=2h" "--time=00:01:00"; do
  code=0
  "$HEDDLE" init --where slurm "$wrong" --out wrong < /dev/null > next 2>&1 || code=$?
  [ "$code" -eq 64 ] && [ ! -e wrong ] || fail "init accepts $wrong"
done
for wrong in --account=x --time=01:00:00; do
  code=0
  "$HEDDLE" init "$wrong" --out wrong < /dev/null > next 2>&1 || code=$?
  [ "$code" -eq 64 ] && [ ! -e wrong ] || fail "init ignores $wrong where there is no job script"
done
code=0
"$HEDDLE" init --out big < /dev/null > next 2>&1 || code=$?
[ "$code" -eq 64 ] || fail "init overwrites a configuration"
mkdir script
touch script/train.lsf
code=0
"$HEDDLE" init --where lsf --out script < /dev/null > next 2>&1 || code=$?
[ "$code" -eq 64 ] && [ ! -e script/run.toml ] || fail "init writes a configuration beside a job script that it refuses to replace"
code=0
"$HEDDLE" init --size huge --out huge < /dev/null > next 2>&1 || code=$?
[ "$code" -eq 64 ] || fail "init takes a size that there is not"
[ ! -e huge ] || fail "init writes something for answers that are not possible"

# On a terminal it asks for what no option gives; an empty line is the default.
printf 'corpus\nbase\nfloat32\n\n3\n2\n' | script -qec "$HEDDLE init --out asked" /dev/null > asked.out
grep -qx 'directory = "runs/corpus"' asked/run.toml || { cat asked/run.toml; fail "init does not name the run after its data"; }
grep -qx 'train = "corpus/train.h5"' asked/run.toml || { cat asked.out; fail "init forgets an answer"; }
grep -q "mpirun -np 6 heddle train asked/run.toml" asked.out || { cat asked.out; fail "init forgets the ranks"; }
# An answer that is not possible is asked for again; a file in the way is named before the first question.
printf 'corpus\nlarge\nbase\n\nhome\n\nx\n0\n3\n2\n' | script -qec "$HEDDLE init --out again" /dev/null > again.out
grep -qF '"large" is not a possible answer' again.out || { cat again.out; fail "init takes a size that there is not"; }
grep -q "mpirun -np 6 heddle train again/run.toml" again.out || { cat again.out; fail "init does not ask again"; }
code=0
script -qec "$HEDDLE init --out again" /dev/null < /dev/null > exists.out || code=$?
[ "$code" -eq 64 ] && grep -q "exists" exists.out && ! grep -q "Where are" exists.out ||
  { cat exists.out; fail "init asks before it names the file in the way"; }

# shellcheck source=packaging/completions/heddle.bash
source "$HEDDLE_SOURCE/packaging/completions/heddle.bash"
completed() {
  COMP_WORDS=("$HEDDLE" "$@")
  COMP_CWORD=$#
  _heddle
  echo "${COMPREPLY[*]}"
}
[ "$(completed trans)" = translate ] || fail "a command is not completed: $(completed trans)"
[[ " $(completed translate --b) " == *" --beam "* ]] || fail "an option is not completed: $(completed translate --b)"
[ "$(completed checkpoint p)" = prune ] || fail "an action is not completed: $(completed checkpoint p)"
[ "$(completed help trans)" = translate ] || fail "a command is not completed after help: $(completed help trans)"
[ "$(completed train run.toml --set train.st)" = "train.steps=" ] || fail "a key is not completed: $(completed train run.toml --set train.st)"
[ "$(completed train run.toml --set optimizer.b)" = "optimizer.base_width= optimizer.beta1= optimizer.beta2= optimizer.bfloat16=" ] ||
  fail "options of update rules are not completed: $(completed train run.toml --set optimizer.b)"
[ "$(completed train run.toml --set optimizer.min)" = "optimizer.min_factor= optimizer.min_scale=" ] || fail "options of schedules are not completed"
[ "$(completed train run.toml --set data.valid_s)" = data.valid_sets. ] || fail "no validation set is completed"
"$HEDDLE" config --explain optimizer.beta1 > explained
grep -q '^# with optimizer.name = "adam": a number, .*: decay rate of the first moment' explained || { cat explained; fail "an option is not explained"; }
[ "$(completed config --explain checkpoint.k)" = checkpoint.keep ] || fail "a key is not completed for --explain"
[ "$(completed translate --align h)" = hard ] || fail "a word of an option is not completed: $(completed translate --align h)"
