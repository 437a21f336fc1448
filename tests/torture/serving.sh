#!/usr/bin/env bash
# A server under hostile requests, and under many: right translations between them, no crash, memory that does not grow.
source "$HEDDLE_SOURCE/tests/integration/served_model"
python3 "$HEDDLE_SOURCE/tests/torture/serving.py"
