#!/usr/bin/env bash
# The Lmod module of an installation: it loads from the prefix, wherever that was moved, and is unloaded without a trace. A copy
# elsewhere that finds no program is refused.
set -euo pipefail
initialization=
for place in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/bash" /usr/share/lmod/lmod/init/bash /opt/apps/lmod/lmod/init/bash; do
  [ ! -e "$place" ] || { initialization=$place; break; }
done
[ -n "$initialization" ] || { echo "NOT RUN: the module for Lmod, because Lmod is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

cp -r "$HEDDLE_INSTALL" "$work/moved"
modules=$work/moved/share/heddle/modulefiles
version=$("$work/moved/bin/heddle" --version | sed -n 's/^heddle \([0-9.]*\).*/\1/p')
[ -e "$modules/heddle/$version.lua" ] || fail "there is no module of version $version"

set +u # Lmod reads variables that may be unset
unset HEDDLE_ROOT
# shellcheck disable=SC1090
source "$initialization"
module use "$modules"
module load heddle || fail "the module does not load"
[ "$(command -v heddle)" = "$work/moved/bin/heddle" ] || fail "PATH leads to $(command -v heddle)"
[ "$HEDDLE_ROOT" = "$work/moved" ] || fail "HEDDLE_ROOT is $HEDDLE_ROOT"
[[ ":$CMAKE_PREFIX_PATH:" == *":$work/moved:"* ]] || fail "CMAKE_PREFIX_PATH is $CMAKE_PREFIX_PATH"
heddle kernels > "$work/kernels" || fail "the loaded program does not run"
module list 2>&1 | grep -q "heddle/$version" || fail "module list does not show heddle/$version"
module help heddle 2>&1 | grep -q "heddle selftest" || fail "the module has no help"
module unload heddle
[[ "$PATH:$CMAKE_PREFIX_PATH:$MANPATH:$HEDDLE_ROOT" != *"$work/moved"* ]] || fail "unloading leaves the prefix in a variable"

mkdir -p "$work/other/heddle"
cp "$modules/heddle/$version.lua" "$work/other/heddle/0.0.1.lua"
module use "$work/other"
! module load heddle/0.0.1 > "$work/refused" 2>&1 || fail "a module without a program loads"
tr -s "\n " " " < "$work/refused" | grep -q "there is no Heddle in /opt/heddle/0.0.1" || { cat "$work/refused"; fail "the refusal gives no reason"; }
echo "module: heddle/$version, Lmod ${LMOD_VERSION:-?}"
