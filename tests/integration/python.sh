#!/usr/bin/env bash
# The Python package of the build directory: it gives what the commands give for the same model, and trains.
# shellcheck source=small_run
. "$HEDDLE_SOURCE/tests/integration/small_run"
export OMP_NUM_THREADS=1 PYTHONPATH=$HEDDLE_BUILD/python
extension=$(find "$PYTHONPATH/heddle" -name '_heddle*.so' 2> /dev/null | head -n 1)
[ -n "$extension" ] || { echo "the Python package was not built: no pybind11-dev or python3-dev" && exit 77; }
! ldd "$extension" | grep -q 'lib[au][a-z]*san' || { echo "Python would have to be a sanitizer's program, too" && exit 77; }
tag=${extension##*cpython-3}
python=python3.${tag%%-*}
command -v "$python" > /dev/null || python=python3
"$python" -c 'import numpy' 2> /dev/null || { echo "$python has no numpy" && exit 77; }

ends 0 "$HEDDLE" train run.toml --set train.steps=20
head -n 8 text/test.en > lines.en
ends 0 "$HEDDLE" translate --checkpoint run --beam 4 --input lines.en --output lines.de
ends 0 "$HEDDLE" score --checkpoint run --source lines.en --target lines.de --length-penalty 0 --output scores
PATH=$(dirname "$HEDDLE"):$PATH "$python" "$HEDDLE_SOURCE/tests/integration/python_checks.py" || fail "the Python package"
