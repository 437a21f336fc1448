#!/usr/bin/env bash
# A training step of 16 simulated ranks on both platforms: it ends, costs more than its kernels alone, is the same again, and is near
# the planner's estimate.
set -euo pipefail
settings=$HEDDLE_BUILD/bench/simulation/simgrid.json
skip() { echo "$1"; exit 77; }
fail() { echo "simulation: $1" >&2; exit 1; }
command -v python3 > /dev/null || skip "python3 is not installed"
[ -e "$settings" ] || skip "this build found no SimGrid: bench/simulation/get-simgrid DIRECTORY, then -DHEDDLE_SMPI_ROOT=DIRECTORY"

work=$(mktemp -d "$HEDDLE_BUILD/simulation.XXXXXX")
trap 'rm -rf "$work"' EXIT
simulate() { # FILE OPTION...: the results go into FILE
  "$HEDDLE_SOURCE/bench/simulate_scaling" "$HEDDLE_BUILD" --models tiny --ranks 16 --bucket 262144 --message 15000 --look 1e-4 --json "$@"
}
simulate "$work/first" || fail "the simulation did not end"
simulate "$work/again" > "$work/log" || fail "the second simulation did not end"
simulate "$work/fast" --operations 1e15 --bytes 1e15 > "$work/log" || fail "the simulation with fast kernels did not end"
if simulate "$work/impossible" --set parallel.tensor=3 > "$work/log" 2>&1; then
  fail "a layout that is impossible was simulated"
fi
grep -q 'tensor' "$work/log" || fail "the message does not say that parallel.tensor was wrong"

python3 - "$work" << 'END'
import json
import sys
from pathlib import Path

def results(name):
    return [json.loads(line) for line in (Path(sys.argv[1]) / name).read_text().splitlines()]

for first, again, fast in zip(*map(results, ("first", "again", "fast")), strict=True):
    simulated, planned = first["simulated"]["step"], first["planned"]["step"]
    assert simulated == again["simulated"]["step"], f"{simulated} s, then {again['simulated']['step']} s"
    assert simulated > first["planned"]["kernels"] > 0, f"{simulated} s with kernels of {first['planned']['kernels']} s"
    assert 0 < fast["simulated"]["step"] < simulated, "communication alone does not take less than all"
    assert 0.7 < simulated / planned < 1.4, f"{simulated} s simulated, {planned} s planned"
assert [result["platform"] for result in results("first")] == ["frontera", "archer2"]
END
