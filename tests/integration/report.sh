#!/usr/bin/env bash
# The output and the files of a run: a short start, last lines, log.txt, report.json and TensorBoard's files.
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
train=("$HEDDLE" train run.toml)
# value FILE KEY...: the first number after these keys, in this order, in a file of one line.
value() {
  local file=$1 text key
  shift
  text=$(cat "$file")
  for key in "$@"; do text=${text#*"\"$key\":"}; done
  sed 's/^\(null\|[-0-9.e+]*\).*/\1/' <<< "$text"
}
positive() { awk -v value="$1" 'BEGIN { exit !(value > 0) }' || fail "$2 is '$1'"; }

# The terminal shows what differs, and ends with a summary; tables are in log.txt.
ends 0 "$HEDDLE_MPIRUN" -np 2 "${train[@]}" --set run.directory=run --set parallel.tensor=2 --set train.steps=40
[ "$(grep -cv '^20.* step ' log)" -le 25 ] || fail "$(grep -cv '^20.* step ' log) lines beside those of steps"
unstamped() { sed -E 's/^20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}  //' "$1"; }
[ -z "$(grep -Ev '^20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}  ' run/log.txt)" ] || fail "lines of log.txt without a time"
unstamped run/log.txt > log.txt
grep -q '^\[train\] steps = 40, batch_tokens = 1024' log || fail "no changed keys"
! grep -q 'beta2' log || fail "keys that have their defaults are printed"
! grep -q 'predicted' log || fail "tables are on the terminal"
for line in '^done: step 40 of 40, [0-9]*,[0-9]\{3\} tokens' '^best: validation loss [0-9.]* at step \(20\|40\)$' \
  '^speed: [0-9,]* tokens/s, \([0-9.]* % of the peak, \)\?parallel efficiency [0-9]* %' '^checkpoint: run/checkpoints/step-00000040$' \
  '^to use it: heddle translate --checkpoint run < TEXT; to train longer: raise train.steps$'; do
  tail -n 5 log | grep -q "$line" || fail "the last lines lack '$line'"
done
grep -Eq '^== mpi(run -np|exec -n) 2 heddle train run.toml --set run.directory=run' log.txt || fail "log.txt has no start"
grep -Eq "^1 .* 1 +2 +25-48 +75-149$" log.txt || fail "the mesh does not say what rank 1 holds"
[ "$(grep -c "predicted" run/log.txt)" -ge 2 ] || fail "no prediction of memory at the beginning and at the end"
grep -Eq "measured( +[0-9.,]+){7}$" log.txt || fail "no measured memory"
grep -Eq "^tensor\.all_reduce +[1-9][0-9,]* .* [1-9][0-9,]* " log.txt || fail "no table of communication"
grep -Eq "^parallel efficiency: [0-9.]+ % = load balance [0-9.]+ % x communication [0-9.]+ %" log.txt || fail "no efficiency"
grep -q "^slowest: rank [01] on $(hostname); the other ranks waited" log.txt || fail "the slowest rank is not named"
grep -Eq '^step 40/40  loss [0-9.]+  lr .*  epoch [0-9]+\.[0-9]{2}  unsmoothed [0-9.]+  .* tokens/s  [0-9.]+ s left' log.txt || fail "log.txt has no progress"
grep -q '^done: step 40' log.txt || fail "log.txt has no summary"

grep -Eq '^[1-9][0-9]*,[0-9]{3} parameters, training on [1-9],[0-9]{3} sentence pairs' log || fail "numbers are not in groups of three digits"
grep -Eq '[0-9]{4,} (tokens|parameters|sentence)' log run/log.txt && fail "numbers without groups"

# -q leaves warnings and the summary, -v adds the whole configuration and the tables; the files are the same.
ends 0 "${train[@]}" -q --set run.directory=quiet --set train.steps=10 --set optimizer.warmup_steps=0
grep -q '^heddle: warning: optimizer.warmup_steps = 0' log || fail "-q hides a warning"
grep -q '^done: step 10 of 10' log && [ "$(wc -l < log)" -le 6 ] || fail "-q prints more than warnings and the summary"
grep -q '  step 10/10 ' quiet/log.txt && grep -q 'predicted' quiet/log.txt && grep -q '  starting in quiet' quiet/log.txt || fail "-q: log.txt is not whole"
ends 0 "${train[@]}" -v --set run.directory=verbose --set train.steps=10
grep -q '^beta2 = 0.98$' log || fail "-v: not the whole configuration"
grep -q ' predicted ' log && grep -q ' measured ' log && grep -q '^energy: ' log && grep -q '^done: step 10' log || fail "-v: no tables"
ends 64 "${train[@]}" -q -v --set run.directory=both
grep -q 'exclude each other' log && [ ! -e both ] || fail "-q with -v"
ends 0 "$HEDDLE" run run.toml -q --set run.directory=quiet --set train.steps=12 -- "$HEDDLE_MPIRUN" -np 2
grep -q '^done: step 12 of 12' log && ! grep -q '^resuming' log || fail "run does not pass -q on"
ends 0 "$HEDDLE" prepare -q --source text/train.en --target text/train.de --vocab-size 150 --out prepared
[ "$(cat log)" = "wrote prepared" ] || fail "prepare -q prints more than where the files are"

# report.json.
report=run/report.json
[ "$(value $report version)" = 1 ] || fail "no version"
grep -q '"state":"done"' $report || fail "no state"
positive "$(value $report parameters)" parameters
positive "$(value $report communication tensor.all_reduce seconds)" "the seconds of tensor.all_reduce"
grep -q '"seconds":0[,}]' $report && fail "seconds that nothing was timed for are 0"
positive "$(value $report ranks rank memory measured total)" "measured memory"
positive "$(value $report training tokens_per_second)" "the rate"
grep -q '"rank":1,.*"heads":\[1,2\],"d_ff":\[24,48\]' $report || fail "it does not say what rank 1 holds"
awk -v b="$(value $report efficiency load_balance)" -v c="$(value $report efficiency communication)" \
  -v p="$(value $report efficiency parallel)" 'BEGIN { exit !(b > 0 && b <= 1 && c > 0 && c <= 1 && p - b * c < 1e-9 && b * c - p < 1e-9) }' ||
  fail "efficiencies that are not a product"
grep -Eq '"kernels":\[\{"operation":"[a-z_]+","problem":"[^"]+","implementation":"[a-z0-9_]+"\}' $report || fail "no kernels"
grep -q '"joules":0[,}]' $report && fail "unknown energy is 0"
grep -Eq '"energy":\{"joules":(null,.*"reason":"[^"]+"|[0-9.]+)' $report || fail "neither energy nor the reason"
[ "$(value $report best step)" = 20 ] || [ "$(value $report best step)" = 40 ] || fail "no best step"

# TensorBoard: one file for each start.
[ "$(ls run/tensorboard/events.out.tfevents.* | wc -l)" -eq 1 ] || fail "not one event file"
for tag in train/loss valid/loss norms/parameters norms/gradients; do
  grep -aq "$tag" run/tensorboard/events.out.tfevents.* || fail "no $tag"
done
# The gradients are kept for a validation: the histogram's maximum, 8 bytes after the minimum's, is above 0.
! LC_ALL=C grep -aPq 'norms/gradients\x2a..?\x09.{8}\x11\x00{8}' run/tensorboard/events.out.tfevents.* || fail "gradients are 0"

# A finished run says so, changes nothing, and ends with 0.
cp $report before.json
ends 0 "$HEDDLE_MPIRUN" -np 2 "${train[@]}" --set run.directory=run --set parallel.tensor=2 --set train.steps=40
grep -q '^already at step 40; raise train.steps to train longer$' log || fail "a finished run does not say so"
cmp -s $report before.json || fail "a finished run changed the report"
[ "$(ls run/tensorboard/events.out.tfevents.* | wc -l)" -eq 1 ] || fail "a finished run made an event file"

# With more ranks than an earlier start, computing is compared; a resume has its own event file.
ends 0 "${train[@]}" --set run.directory=scaled --set train.steps=10 --set train.validate_bleu=true --set train.validate_every=10
for tag in valid/translations attention/decoder.layers.0.cross_attention attention/tokens; do
  grep -aq "$tag" scaled/tensorboard/events.out.tfevents.* || fail "no $tag"
done
ends 0 "$HEDDLE_MPIRUN" -np 2 "${train[@]}" --set run.directory=scaled --set train.steps=20 --set train.validate_every=0
positive "$(value scaled/report.json efficiency computation_scaling)" "computation scaling"
[ "$(value scaled/report.json reference ranks)" = 1 ] || fail "no reference"
grep -q '"starts":\[{"step":0,"started":"[^"]*","layout":{"ranks":1,[^}]*},"state":"done"},{"step":10,"started":"[^"]*","layout":{"ranks":2,[^}]*}}\]' \
  scaled/report.json || fail "report.json has not the starts"
[ "$(ls scaled/tensorboard/events.out.tfevents.* | wc -l)" -eq 2 ] || fail "a resume appends to the old event file"
[ "$(grep -c '  == ' scaled/log.txt)" -eq 2 ] || fail "log.txt was not continued"

# Images of attention also where each rank has some of the heads, and none where no rank has the whole model.
translated=(--set train.steps=4 --set train.validate_every=4 --set train.validate_bleu=true)
for axis in tensor pipeline; do
  ends 0 "$HEDDLE_MPIRUN" -np 2 "${train[@]}" --set run.directory=$axis --set parallel.$axis=2 "${translated[@]}"
  grep -aq 'valid/translations' $axis/tensorboard/events.out.tfevents.* || fail "$axis: no translations"
done
grep -aq 'attention/decoder.layers.0.cross_attention' tensor/tensorboard/events.out.tfevents.* || fail "no attention over a tensor group"
! grep -aq 'attention/' pipeline/tensorboard/events.out.tfevents.* || fail "attention of a part of the model"

# Where the hosts have no counters of energy, inspect asks Slurm's accounting for the step in which the run was.
grep -q '"slurm":null,' $report || fail "a run outside of Slurm is in one"
ends 0 env SLURM_JOB_ID=17 SLURM_STEP_ID=3 "${train[@]}" --set run.directory=step --set train.steps=10 --set train.validate_every=0
grep -q '"slurm":{"job":"17","step":"3"}' step/report.json || fail "the report does not name the step"
sed -i 's/"energy":{[^}]*}/"energy":{"joules":null,"joules_per_million_tokens":null,"source":null,"reason":"no counters"}/' step/report.json
mkdir bin
inspected() { # inspected ANSWER: energy as `inspect` shows it where sacct answers this
  printf '#!/bin/sh\n[ "$*" = "-j 17.3 --format=ConsumedEnergyRaw --noheader --parsable2" ] && printf %%s "%s"\n' "$1" > bin/sacct
  chmod +x bin/sacct
  ends 0 env PATH="$work/bin:$PATH" "$HEDDLE" inspect step
  sed -n 's/^energy of the last start: //p' log
}
tokens=$(value step/report.json training tokens)
rate=$(awk -v tokens="$tokens" 'BEGIN { printf "%.1f", 1e6 * 52 / tokens }')
shown=$(inspected 52)
[ "$(tr -d , <<< "$shown")" = "52 J $rate J per million tokens (Slurm's accounting of step 17.3)" ] || fail "Slurm's energy: $shown"
for answer in 0 ''; do
  [ "$(inspected "$answer")" = "unknown (no counters; sacct knows no energy of step 17.3)" ] || fail "an energy of '$answer' is known"
done

# SIGUSR1 is acknowledged at once, and the command that resumes is printed.
"${train[@]}" --set run.directory=signalled --set train.steps=100000 --trace 1 > log 2>&1 &
victim=$!
wait_for_step signalled 5
kill -USR1 "$victim"
waited 75 "$victim"
grep -Eq "^heddle: SIGUSR1 in step [0-9,]+: a checkpoint is written after this step" log || fail "SIGUSR1 is not acknowledged"
grep -Eq "^stopped by SIGUSR1 after step [0-9,]+ of 100,000" log || fail "it is not said why it stopped"
grep -q "^to resume: heddle train run.toml --set run.directory=signalled --set train.steps=100000$" log || fail "no command that resumes"
grep -q '"state":"stopped by SIGUSR1"' signalled/report.json || fail "the report does not say why it stopped"
echo "report: all as promised"
