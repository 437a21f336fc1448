#!/usr/bin/env bash
# run_page.sh passes a page whose commands succeed, and fails for each reason that it promises.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
runner=$HEDDLE_SOURCE/tests/integration/tutorials/run_page.sh
fail() { echo "FAILED: $*"; cat log; exit 1; }
# page LINES...: a page whose first line is its title.
page() { printf '%s\n' '# A page' "$@" > page.md; }
refused() { # refused WORDS: the page fails, and the last line says why
  ! bash "$runner" page.md . > log 2>&1 || fail "a page passed instead of: $1"
  tail -n 1 log | grep -qF "$1" || fail "the last line does not say: $1"
}

# shellcheck disable=SC2016
page '```sh' 'number=7' 'cat > file << END' 'text' 'END' '```' 'Words.' '```sh' '[ "$(cat file) $number" = "text 7" ]' 'heddle --version' '```' \
  '```console' 'false' '```'
bash "$runner" page.md . > log 2>&1 || fail "a page with right commands fails"
page '```sh' 'true' '' 'echo shown && false' '```'
refused 'page.md:5: exit code 1: echo shown && false'
grep -q shown log || fail "the output of the command that failed is not shown"
# shellcheck disable=SC1003
page '```sh' 'heddle train \' '  absent.toml' '```'
refused "page.md:3: exit code 78: heddle train"
page '```sh' 'false | cat' '```'
refused "page.md:3: exit code 1"
page '```bash' 'true' '```'
refused 'neither run nor left out'
page '```text' 'sh' '```'
refused 'has no commands'
page '```sh' 'sleep 300' '```'
echo 's/sleep 300/true/' > page.sed
bash "$runner" page.md . > log 2>&1 || fail "a substitution is not applied"
echo 's/sleep 30s/true/' >> page.sed
refused 'nothing in the page matches s/sleep 30s/true/'
rm page.sed
page '```sh' 'cat made' '```'
refused 'page.md:3:'
echo 'echo x > made' > page.before
bash "$runner" page.md . > log 2>&1 || fail "page.before did not run"
echo "run_page: all as promised"
