#!/usr/bin/env bash
# heddle plan and heddle train --dry-run: a layout is planned and written into run.toml, the run holds what was planned; limits are named;
# a dry run writes nothing.
source "$(dirname "${BASH_SOURCE[0]}")/small_run"
export XDG_CACHE_HOME=$work/cache
# A model of some 20 MiB: the tables have tenths of a MiB.
sed -i 's/^\[train\]/[parallel] # the layout\ntensor = 4  # heads\n[train]/; s/^steps = 60/steps = 8/; s/^warmup_steps = 20/warmup_steps = 4/
  s/^d_model = 32/d_model = 256/; s/^d_ff = 48/d_ff = 512/' run.toml
cp run.toml original.toml
plan=("$HEDDLE" plan run.toml --measure-seconds 0.3)

# Without MPI, for more ranks than there are: the layouts, and the limits of the others.
ends 0 "${plan[@]}" --nodes 4 --ranks-per-node 4 --memory 64 --network 2e-6,1e-10
grep -q "^  1 " log || fail "no layout is listed"
grep -Eq "^With the first layout, 8 steps: about [0-9.,]+ epochs, [0-9,]+ tokens, .* without validation" log || fail "the run's length is not told"
grep -q "[1-9] layouts* rejected: the model does not support this parallel.tensor; for example" log || fail "the model's limit is not named"
cmp run.toml original.toml || fail "plan without --write changed the file"
grep -q "^  nodes  *tokens/s" log && grep -Eq "^ +4 +[0-9,]+ +[0-9]+ % " log || fail "no table of nodes"
ends 78 "${plan[@]}" --nodes 1 --ranks-per-node 64 --memory 64
grep -q "no layout of 64 ranks fits.* fewer than one sequence of model.max_length = 64; with train.batch_tokens = 4,096" log ||
  fail "it is not said that the batch is too small"
ends 78 "${plan[@]}" --nodes 1 --ranks-per-node 2 --memory 0.001
grep -q "[1-9][0-9]* layouts* rejected: a node has too little memory; for example" log || fail "the memory's limit is not named"
ends 0 "${plan[@]}" -q --nodes 4 --ranks-per-node 4 --memory 64 --network 2e-6,1e-10
grep -q "^  1 " log && ! grep -q "MiB of a rank" log || fail "-q: not only the list"
ends 0 "${plan[@]}" -v --nodes 4 --ranks-per-node 4 --memory 64 --network 2e-6,1e-10
[ "$(grep -c "MiB of a rank" log)" -gt 1 ] && grep -q "^beta2 = 0.98$" log || fail "-v: neither details nor configuration"
# Training's refusals and warnings.
ends 0 "$HEDDLE" plan run.toml -q --measure-seconds 0 --set model.max_length=8 --set optimizer.warmup_steps=20
grep -q "warning: optimizer.warmup_steps = 20 is longer than the run, train.steps = 8" log || fail "no warning of the warm-up"
grep -q "warning: data.train: [0-9.]* % are left out, .* longer than model.max_length = 8" log || fail "no warning of max_length"
ends 78 "${plan[@]}" --set 'optimizer.group.all.parameters=["*"]' --set optimizer.group.all.frozen=true
grep -q "every parameter of the model is frozen" log || fail "plan accepts a model of which nothing is trained"
ends 78 "$HEDDLE" plan run.toml --measure-seconds 0 --memory 8 --set model.d_model=65536
grep -q "no layout of 1 rank fits: a node has too little memory for .*; more nodes (--nodes), .*--memory.*model.d_model" log ||
  fail "no fix for a plan of a model that is too large"
ends 64 "${plan[@]}" --nodes 0
grep -q -- "plan: --nodes 0: expected at least 1" log || fail "the message does not name the number that is wrong"
ends 64 "${plan[@]}" --ranks-per-node 0
grep -q -- "plan: --ranks-per-node 0: expected at least 1" log || fail "the message does not name the number that is wrong"
ends 64 "${plan[@]}" --network fast

# Plan, write, train: the run resolves to the layout, and its memory is what was planned.
ends 0 "${plan[@]}" --nodes 1 --ranks-per-node 2 --memory 64 --write
sed -n 's/^run.toml: //p' log > written
[ -s written ] || fail "nothing was written"
sed 's/ *#.*//' run.toml > values
while read -r key equals value; do
  grep -qF "${key#*.} $equals $value" values || fail "$key is not in run.toml"
done < written
grep -q "^\[parallel\] # the layout" run.toml || fail "a comment was lost"
grep -q "^tensor = [12] *# heads" run.toml || fail "the comment of a key was lost"
largest() { sed -nE "s/^.*\b$1((  *[0-9.,]+){6,7})$/\1/p" | tr -d , | awk '{ if ($6 > m) m = $6 } END { print m }'; }
ends 0 "$HEDDLE" train run.toml --dry-run --ranks 2
grep -q "^Memory with the data's first 8 batches:" log || fail "the dry run plans batches that the run does not have"
grep -q "It would start in run" log || fail "the dry run does not say that it would start"
grep -Eq "step [0-9.]+ s" log || fail "no time of a step"
[ ! -e run ] || fail "a dry run made the run's directory"
cp log whole
ends 0 "$HEDDLE" train run.toml --dry-run --ranks 2 -q
[ "$(grep -vc "^heddle: warning: other processes" log)" -le 4 ] && grep -q "^a step: [0-9.]* s$" log && grep -q "^2 ranks together on this machine: " log && grep -q "It would start in run" log || fail "a quiet dry run"
ends 0 "$HEDDLE" train run.toml --dry-run --ranks 2 -v
grep -q "^beta2 = 0.98$" log && grep -q "MiB of a rank" log || fail "a verbose dry run"
cp whole log
sed '/^Memory with the data/,$d' log | largest predicted > planned_most
sed -n '/^Memory with the data/,$p' log | largest predicted > planned
ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" train run.toml
sed 's/^20[0-9-]* [0-9:]*  //' run/log.txt > log.txt
[ "$(largest predicted < log.txt)" = "$(cat planned_most)" ] || fail "the run plans another memory than the dry run"
largest measured < log.txt > measured
awk -v p="$(cat planned)" -v m="$(cat measured)" 'BEGIN { exit !(p > 0.98 * m && p < 1.02 * m) }' ||
  fail "planned $(cat planned) MiB, measured $(cat measured)"
ends 0 "$HEDDLE" train run.toml --dry-run --ranks 2
! grep -q "without validation" log && grep -q "^run is already at step 8: raise train.steps" log || fail "the dry run does not know the checkpoint"
ends 0 "$HEDDLE" train run.toml --dry-run --ranks 2 --resume-from 8 --set train.steps=9
grep -q "It would resume after step 8 of 9" log || fail "the dry run does not go back to a step"
grep -q "^the 1 left of 9 steps: about " log || fail "the dry run counts steps that are made"
ends 65 "$HEDDLE" train run.toml --dry-run --ranks 2 --resume-from 7
grep -q "has no checkpoint of step 7" log || fail "the dry run knows a checkpoint that there is not"
ends 78 "$HEDDLE" train run.toml --dry-run --ranks 2 --set train.seed=7
ends 78 "$HEDDLE" train run.toml --dry-run --ranks 3 --set parallel.tensor=2 --set parallel.data=1
ends 64 "$HEDDLE_MPIRUN" -np 1 "$HEDDLE" train run.toml --dry-run
# One rank that fits no machine here; samples with prefixes.
ends 78 "$HEDDLE" train run.toml --dry-run --set run.directory=other --set model.d_model=65536 --set parallel.tensor=1 --set parallel.pipeline=1
grep -q "does not fit into the memory of host .*: 1 rank there needs [0-9,.]* GiB" log &&
  grep -q "parallel.tensor and parallel.pipeline divide parameters" log && ! grep -q "It would start" log || fail "no fix for a model that is too large"
ends 0 "$HEDDLE" train run.toml --dry-run --set run.directory=other --set 'model.stacks=["decoder"]' \
  --set 'model.decoder.self_attention={mask="prefix"}' --set parallel.tensor=1 --set parallel.pipeline=1

# Measured: messages and kernels, by the ranks of one node.
ends 78 "$HEDDLE" plan run.toml --network measured --nodes 1 --ranks-per-node 2
ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" plan --measure
grep -q "inside a node measured with 2 ranks" log && grep -q "^inside_node  *all_reduce " log && grep -q "the network is kept in " log ||
  fail "messages were not measured"
ends 64 "$HEDDLE" plan run.toml --measure-seconds -1
ends 64 "$HEDDLE" plan run.toml --memory 1e30
ends 64 "$HEDDLE" plan run.toml --network 1e400,1
ends 64 "$HEDDLE_MPIRUN" -np 1 "$HEDDLE" plan run.toml
ends 64 "$HEDDLE_MPIRUN" -np 1 "$HEDDLE" plan --measure --set kernels.cache=elsewhere/kernels.json
ends 64 "$HEDDLE_MPIRUN" -np 1 "$HEDDLE" plan run.toml --measure --write
ends 0 "$HEDDLE_MPIRUN" -np 1 "$HEDDLE" plan --measure
grep -q "one rank: there are no messages to measure" log || fail "nothing is said of one rank"
# A cache that cannot be written costs no plan.
ends 0 "${plan[@]}" --set kernels.cache=/proc/none/kernels.json
grep -q "the times are not kept: .*; set kernels.cache or XDG_CACHE_HOME" log || fail "times that are not kept are not named"
times=$XDG_CACHE_HOME/heddle/kernels.json
cp "$times" kept.json
sed -i 's/version 1/version 9/' "$times"
touch "$XDG_CACHE_HOME/heddle/network.json"
ends 0 "$HEDDLE" plan run.toml --nodes 1 --ranks-per-node 2 --measure-seconds 0
grep -q "note: not used: .*kernels.json: is not a file of measured times .*(another format)" log && grep -q "network: assumed" log &&
  grep -q "network.json is of an older version and not used" log || fail "files of other versions are not named"
rm "$XDG_CACHE_HOME/heddle/network.json"
sed -E '/"[^"]*; [^"]*": /s/,[^],]*\]/,9]/g' kept.json > "$times" # the load
ends 0 "$HEDDLE" plan run.toml --network measured --nodes 1 --ranks-per-node 2 --measure-seconds 0
grep -q "network: inside a node measured with 2 ranks, between nodes assumed" log || fail "the measurement is not used"
grep -q "times of kernels are not trusted (taken on a busy machine)$" log && ! grep -q "measured again" log ||
  fail "times are said to be measured again although nothing is measured"

# Times that ranks measured together are kept where a single process adds others.
ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" plan run.toml --measure --measure-seconds 1
ends 0 "$HEDDLE_MPIRUN" -np 2 "$HEDDLE" plan run.toml --measure --remeasure --measure-seconds 1
grep -q "kernels of [1-9][0-9]* layouts* were measured" log || fail "--remeasure measures nothing"
cp "$times" together.json
ends 0 "${plan[@]}" --nodes 1 --ranks-per-node 2 --set model.d_ff=4096
grep -q "the ranks of a node have not timed all kernels of [1-9][0-9]* layouts* together: one process timed the others" log ||
  fail "it is not said that one process timed kernels"
cmp "$times" together.json || fail "a single process changed the times of ranks together"
echo "planning: planned $(cat planned) MiB, measured $(cat measured) MiB"
