#!/usr/bin/env bash
# 64 ranks on however few cores there are: a tiny model starts, saves, is resumed and saves again; one rank resumes with
# what they saved. HEDDLE_TORTURE=small: 16 ranks.
source "$(dirname "${BASH_SOURCE[0]}")/../integration/small_run"
ranks=64
[ "${HEDDLE_TORTURE:-small}" != small ] || ranks=16
options=(--set run.directory=many --set train.batch_tokens=4096 --set train.micro_batch_tokens=64 --set train.validate_every=0
  --set checkpoint.every_steps=2)
run=(timeout 900 "$HEDDLE_MPIRUN" -np $ranks "$HEDDLE" train run.toml --set parallel.tensor=2 --set parallel.pipeline=2 "${options[@]}")
began=$(date +%s%N)
ends 0 "${run[@]}" --set train.steps=2
first=$(($(date +%s%N) - began))
[ -e "$(state many 2)/MANIFEST.json" ] || fail "no checkpoint of step 2"
began=$(date +%s%N)
ends 0 "${run[@]}" --set train.steps=4
second=$(($(date +%s%N) - began))
grep -q "resuming after step 2" log || fail "it did not resume"
ends 0 "$HEDDLE" checkpoint verify many
ends 0 "$HEDDLE" train run.toml "${options[@]}" --set train.steps=5
grep -q "resuming after step 4" log || fail "one rank did not resume with what $ranks saved"
awk -v ranks=$ranks -v a="$first" -v b="$second" 'BEGIN {
  printf "figures: %d ranks: start, 2 steps and a checkpoint in %.1f s; resumed, 2 steps and a checkpoint in %.1f s\n", ranks, a / 1e9, b / 1e9 }'
