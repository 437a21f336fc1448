#!/usr/bin/env bash
# run_page.sh PAGE [FOLDER]: runs the commands of a tutorial as a reader would: the blocks of PAGE that begin with ```sh,
# in their order, by one shell, in an empty folder, with the installed program. The first command that fails ends the
# test, which prints the page, the line and the command.
#
# FOLDER (that of this script) has the small variant of a page:
#   NAME.before  makes what the page's readers have downloaded, before the first command
#   NAME.sed     shortens the commands, one substitution a line: fewer steps, a smaller model; one that changes nothing fails
# The languages of the other blocks say that they are not run: console (needs a network, a cluster or another terminal),
# text (what a command prints), and code.
set -euo pipefail
page=$(readlink -f "$1")
folder=$(readlink -f "${2:-$(dirname "${BASH_SOURCE[0]}")}")
name=$(basename "$page" .md)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/page"
fail() { echo "FAILED: $*"; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$HEDDLE_BUILD/CMakeCache.txt"; }

# The commands, each in the line that it has in the page; all other lines are empty.
awk -v page="$page" '
  /^```/ && !open {
    open = 1
    run = $0 == "```sh"
    if ($0 !~ /^```(sh|console|text|toml|json|python)$/) { print page ":" FNR ": unknown language " $0 > "/dev/stderr"; exit 1 }
    print ""; next
  }
  /^```/ { open = run = 0 }
  { print run ? $0 : "" }' "$page" > "$scratch/commands" || fail "a block that is neither run nor left out"
grep -q . "$scratch/commands" || fail "$page has no commands"
if [ -e "$folder/$name.sed" ]; then
  while IFS= read -r rule; do
    [[ "$rule" =~ ^(#|$) ]] && continue
    sed -E -e "$rule" "$scratch/commands" > "$scratch/changed"
    ! cmp -s "$scratch/commands" "$scratch/changed" || fail "$name.sed: nothing in the page matches $rule"
    mv "$scratch/changed" "$scratch/commands"
  done < "$folder/$name.sed"
fi

# Programs by the names that readers have for them, and the compiler that plug-ins need.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$HEDDLE_MPIRUN" > "$scratch/bin/mpirun"
chmod +x "$scratch/bin/mpirun"
export PATH="$scratch/bin:$HEDDLE_INSTALL/bin:$PATH" OMP_NUM_THREADS=1
CXX=$(cached CMAKE_CXX_COMPILER)
sanitizers=$(cached HEDDLE_SANITIZE)
export CXX CXXFLAGS="${sanitizers:+-fsanitize=$sanitizers}"

cd "$scratch/page"
if [ -e "$folder/$name.before" ]; then
  bash -euo pipefail "$folder/$name.before" > "$scratch/log" 2>&1 || { tail -n 30 "$scratch/log"; fail "$name.before"; }
fi
# A sourced file's lines are counted by themselves: the trap knows the line in the page.
code=0
SCRATCH="$scratch" bash -c '
  set -eEuo pipefail
  trap "echo \$LINENO > $SCRATCH/line" ERR
  trap "kill \$(jobs -p) 2> /dev/null || true" EXIT
  source "$SCRATCH/commands"' > "$scratch/log" 2>&1 < /dev/null || code=$?
if [ "$code" -ne 0 ]; then
  tail -n 30 "$scratch/log"
  line=$(cat "$scratch/line" 2> /dev/null || echo 0)
  fail "$page:$line: exit code $code: $(sed -n "${line}p" "$scratch/commands")"
fi
echo "$name: $(grep -c . "$scratch/commands") lines of commands ran"
