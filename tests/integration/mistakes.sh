#!/usr/bin/env bash
# Sixty mistakes of new users: each ends with the code that docs/reference/exit-codes.md gives, and says what would be right.
source "$HEDDLE_SOURCE/tests/integration/small_run"

mistakes=0 wrong=0
# mistake CODE PATTERN COMMAND-AND-ARGUMENTS...: `heddle` with these ends with the code, and its message has the pattern.
mistake() {
  local expected=$1 pattern=$2 code=0
  shift 2
  timeout 60 "$HEDDLE" "$@" > log 2>&1 < /dev/null || code=$?
  mistakes=$((mistakes + 1))
  if [ "$code" -ne "$expected" ] || ! grep -q -- "$pattern" log || ! grep -q '^heddle: ' log; then
    wrong=$((wrong + 1))
    echo "WRONG: heddle $* ended with $code instead of $expected, or says nothing of '$pattern':"
    tail -n 3 log
  fi
}
set_mistake() { local code=$1 pattern=$2; shift 2; mistake "$code" "$pattern" train run.toml "${@/#/--set=}"; }

# Commands and options.
mistake 64 'a command is missing'
mistake 64 'did you mean "train"?' trian run.toml
mistake 64 'there is no command "frobnicate"; expected one of' frobnicate
mistake 64 'did you mean "evaluate"?' eval
mistake 64 'did you mean "evaluate"?' help eval
mistake 64 'RUN.toml is missing' train
mistake 64 'did you mean --fresh?' train run.toml --frsh
mistake 64 'did you mean --beam?' translate --checkpoint run --beamsize 5
mistake 64 '5 is one argument too many: did you mean --set train.steps=5?' train run.toml --set train.steps 5
mistake 64 'other.toml is one argument too many' train run.toml other.toml
mistake 64 '--set' train run.toml --set
mistake 64 'expected bpe|unigram' prepare --source text/train.en --target text/train.de --out new --vocab-type words
mistake 64 '--source is missing' prepare --target text/train.de --out new
mistake 64 'ten' prepare --source text/train.en --target text/train.de --out new --vocab-size ten
mistake 64 'the largest possible is' prepare --source text/train.en --target text/train.de --out new --vocab-size 30000
mistake 64 'too small' prepare --source text/train.en --target text/train.de --out new --vocab-size 6
mistake 64 'sentinels is -4; expected 0 to' prepare --text text/train.en --out new --vocab-size 100 --sentinels -4
mistake 64 'sentinels is 101; expected 0 to' prepare --text text/train.en --out new --vocab-size 100 --sentinels 101
mistake 64 'has "a b"; expected text without spaces' prepare --text text/train.en --out new --tag '<a>' --tag 'a b'
mistake 64 'which stands for the space before a word' prepare --text text/train.en --out new --user-defined-symbols '▁'
mistake 64 'expected two numbers' prepare --tsv text/train.en --out new --columns 3
mistake 64 'tag controls vocabulary training' prepare --text text/train.en --out new --tag '<a>' --vocab-model x
mistake 64 'replace it with --overwrite' prepare --source text/train.en --target text/train.de --out data --vocab-size 100
mistake 64 'replace it with --overwrite' demo-data --out text
mistake 64 'last' translate --checkpoint run --which newest
mistake 64 'there is no metric "bleurt"; did you mean bleu?' evaluate --hypotheses text/test.de --reference text/test.de --metric bleurt
mistake 64 'expected 13a|zh|char|intl|none' evaluate --hypotheses text/test.de --reference text/test.de --tokenize moses
mistake 64 'give one of' config
mistake 64 'did you mean train.steps?' config --explain train.stepz
mistake 64 'did you mean checkpoint.keep?' config --explain keep
mistake 64 'list|verify|prune|diff is missing' checkpoint
mistake 64 'RUN.toml' run
mistake 64 'resume-from' train run.toml --fresh --resume-from 3

# Configuration.
mistake 78 "nowhere.toml: does not exist (relative to $PWD); expected a TOML file" train nowhere.toml
mistake 78 'expected a TOML file' train .
printf '[train]\nsteps = \n' > broken.toml
mistake 78 'broken.toml:2' train broken.toml
printf '[train]\nsteps = 5\nsteps = 6\n' > twice.toml
mistake 78 'twice.toml:3' train twice.toml
printf '[trian]\nsteps = 5\n' > section.toml
mistake 78 'did you mean train?' train section.toml
printf '[train]\nstep = 5\n' > key.toml
mistake 78 'key.toml:2:.*did you mean train.steps?' train key.toml
printf '[train]\nsteps = 5\n' > empty.toml
mistake 78 'run.directory is not set' train empty.toml
set_mistake 78 'did you mean train.steps?' train.step=5
set_mistake 78 'expected section.key=value' train.steps
set_mistake 78 'train.steps' train.steps=many
set_mistake 78 'at least 1\|1 to' train.steps=0
set_mistake 78 'expected an integer' train.steps=5.5
set_mistake 78 'below 1' model.dropout=1.5
set_mistake 78 'optimizer.name = "lyon": there is no such update rule; did you mean lion?' optimizer.name=lyon
set_mistake 78 'there is no key optimizer.beta1 for the update rule sgd' optimizer.name=sgd optimizer.beta1=0.5
set_mistake 78 'did you mean "gelu"?' model.activation=gellu
set_mistake 78 'did you mean "rms"?' model.norm_kind=rmss
for refused in 'did you mean "gelu"?|model.activation=GELU' 'did you mean "bfloat16"?|train.precision=bf16' \
  'which the encoder does not have|model.encoder.cross_attention.head_dim=8' \
  'every parameter of the model is frozen|optimizer.group.all={parameters=["*"],frozen=true}'; do
  set_mistake 78 "${refused%|*}" "${refused#*|}"
  mistake 78 "${refused%|*}" config run.toml --set "${refused#*|}"
done
set_mistake 78 'heads may be 1, 2, 4' model.heads=5
set_mistake 78 'needs 2 ranks, but 1 runs' parallel.tensor=2
set_mistake 78 'expected' train.precision=float16
set_mistake 78 'kernels.gemm' kernels.gemm=cublas
set_mistake 78 'kernels' kernels.gem=auto
set_mistake 78 'does not fit into the memory' model.d_ff=1000000 model.d_model=100000 model.heads=8
set_mistake 78 'run.directory' run.directory=/proc/heddle
set_mistake 78 'run.directory' run.directory=run.toml
set_mistake 78 'data.valid is not set' 'data.valid=""'
mistake 78 'nowhere.so: does not exist' train run.toml --plugin nowhere.so
mistake 78 'run.toml' train run.toml --plugin run.toml
set_mistake 78 'plugins.paths\|nowhere.so' 'plugins.paths=["nowhere.so"]'

# Data.
set_mistake 65 "nowhere.h5: does not exist (relative to $PWD)" data.train=nowhere.h5
set_mistake 65 'heddle prepare' data.train=text/train.en
set_mistake 78 'heddle prepare --only-vocab' data.train=text/train.en data.valid=text/valid.en
set_mistake 65 'does not exist' data.train=text
mistake 65 "nowhere.en: .* (relative to $PWD)" prepare --source nowhere.en --target text/train.de --out new
mistake 65 'lines' prepare --source text/train.en --target text/valid.de --out new --vocab-size 100
printf 'a\xff\n' > bytes.en
mistake 65 'bytes.en' prepare --source bytes.en --target bytes.en --out new --vocab-size 100
mistake 65 "nowhere: .* (relative to $PWD)" translate --checkpoint nowhere
mistake 65 "run.toml: is not a directory; expected the directory of a run" translate --checkpoint run.toml
mistake 65 "owner/name: does not exist .*hub are not downloaded.*save_pretrained" import owner/name --out imported
mistake 64 'a finite length penalty of at least 0' translate --checkpoint nowhere --length-penalty -1
mistake 65 'nowhere' inspect nowhere
mistake 65 'run.toml' inspect run.toml
mistake 65 'nowhere' checkpoint verify nowhere
printf 'x' > data/short.h5
set_mistake 65 'short.h5' data.train=data/short.h5
mistake 65 'nowhere.de' evaluate --hypotheses text/test.de --reference nowhere.de

[ ! -e new ] || fail "a refused command left its output"
[ ! -e run ] || fail "a refused run left its directory"

# Meant well: a directory that prepare wrote is its datasets.
ends 0 "$HEDDLE" train run.toml --set data.train=data --set data.valid=data --set train.steps=2 --set train.validate_every=2
ends 0 "$HEDDLE" config run.toml --changed --set train.steps=7
[ "$(grep -c . log)" -gt 5 ] && grep -qx 'train.steps = 7' log && ! grep -q '^train.seed' log || fail "config --changed"
ends 0 "$HEDDLE" config run.toml --changed --set train.steps=1e6
grep -qx 'train.steps = 1000000' log || fail "train.steps = 1e6"
ends 0 "$HEDDLE" doctor .
grep -q '^ok *files' log && grep -q ' mpi ' log && grep -q '^0 of 10 checks failed' log || fail "doctor"
if [ "$(id -u)" = 0 ] && grep -q '  mpi .*Open MPI.*mpirun' log; then
  ends 0 env -u OMPI_ALLOW_RUN_AS_ROOT "$HEDDLE" doctor .
  grep -q '^WARNING mpi .*root' log || fail "doctor does not see that mpirun refuses root"
fi
ends 1 "$HEDDLE" doctor nowhere
grep -q '^FAILED  files' log && grep -q '^1 of 10 checks failed' log || fail "doctor of a directory that is not there"
mistake 64 'start it on every rank' doctor --cluster
TMPDIR=/nonexistent mistake 1 'TMPDIR=/nonexistent: No such file or directory; set it to a directory' selftest
mistake 65 'does\\x1b\[31m-not-exist' checkpoint list "does$(printf '\033[31m')-not-exist"
ends 0 "$HEDDLE" help train
cp log help_train
ends 0 "$HEDDLE" train --help
cmp -s log help_train || fail "help train"

mistake 65 'run/checkpoints has no checkpoint of step 7; it has the steps 2$' train run.toml --resume-from 7 --set data.train=data --set data.valid=data
ends 0 "$HEDDLE" checkpoint list run
grep -q "^step-00000002 .* MiB  $(date +%Y)-[0-9-]* [0-9:]*  complete  loss [0-9.]*  validation [0-9.]*  (best)$" log || fail "checkpoint list"
ends 0 "$HEDDLE" train run.toml --set data.train=data --set data.valid=data --set train.steps=4 --set train.validate_every=2
ends 0 "$HEDDLE" checkpoint diff run run
grep -q '^no difference in [0-9]* tensors$' log || fail "a checkpoint differs from itself"
ends 1 "$HEDDLE" checkpoint diff run/checkpoints/step-00000002 run/checkpoints/step-00000004
grep -q '^train.steps = 2 in a, 4 in b$' log && grep -q ' tensors of equal shape differ, at most by ' log || fail "checkpoint diff"
mistake 64 '--keep is missing' checkpoint prune run
ends 0 "$HEDDLE" checkpoint prune run --keep 1 --dry-run
ends 0 "$HEDDLE" checkpoint list run
[ "$(wc -l < log)" -eq 2 ] || fail "a dry run of checkpoint prune removed something"
ends 0 "$HEDDLE" average run --best 2 --out mean
ends 65 "$HEDDLE" average run --best 1 --by bleu --out other
ends 0 "$HEDDLE" config --schema
grep -q '"steps": {"type": "number"' log || fail "config --schema"

# Help: each value has a name, and arguments without "--" are shown without it.
commands=$("$HEDDLE" --help | awk '/^  [a-z]/ { print $1 }')
[ "$(wc -w <<< "$commands")" -ge 13 ] || fail "heddle --help lists $commands"
for command in $commands; do
  ends 0 "$HEDDLE" "$command" --help
  ! grep -nE '(^| )arg( |$)' log || fail "heddle $command --help has a value without a name"
done
ends 0 "$HEDDLE" train --help
grep -q '^  RUN.toml  *the configuration (also --config)$' log || fail "train --help shows RUN.toml otherwise"
grep -q 'docs/reference/config.md' log && grep -q '86' log || fail "train --help"

# Doubtful, but not refused: a warning.
# warned PATTERN COMMAND-AND-ARGUMENTS...
warned() {
  ends 0 "$HEDDLE" "${@:2}"
  grep -q "^heddle: warning: .*$1" log || { cat log; fail "no warning of '$1'"; }
}
warned 'the same file' prepare --source text/train.en --target text/train.en --out same --vocab-size 60
warned 'is the training text' prepare --text text/train.en --valid-text text/train.en --out same --vocab-size 60 --overwrite
warned 'too rarely' prepare --source text/test.en --target text/test.de --out few --vocab-size 90
warned 'warmup_steps = 50 is longer than the run' config run.toml --set optimizer.warmup_steps=50 --set train.steps=20
ends 0 "$HEDDLE" train run.toml -q --set model.max_length=14 --set train.steps=1 --set run.directory=short
grep -Eq '^heddle: warning: data.train: [0-9.]+ % are left out, .* longer than model.max_length = 14' log || fail "a warning about what is left out, also with -q"
warned 'warmup_steps = 0' train run.toml --set optimizer.warmup_steps=0 --set train.steps=1 --set run.directory=cold

[ "$wrong" -eq 0 ] || fail "$wrong of $mistakes mistakes"
[ "$mistakes" -ge 60 ] || fail "only $mistakes mistakes"
echo "$mistakes mistakes"
