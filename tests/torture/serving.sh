#!/usr/bin/env bash
# A server under hostile requests, and under many: right translations between them, no crash, memory that does not grow.
set -euo pipefail
if ! command -v python3 > /dev/null; then
  echo "NOT CHECKED: the server, because python3 is not here (apt-get install python3)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
source "$HEDDLE_SOURCE/tests/integration/served_model"
python3 "$HEDDLE_SOURCE/tests/torture/serving.py"
