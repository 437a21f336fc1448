#!/usr/bin/env bash
# `heddle serve` as its clients meet it: translations, limits, hostile requests, signals.
source "$HEDDLE_SOURCE/tests/integration/served_model"
python3 "$HEDDLE_SOURCE/tests/integration/serve_checks.py"
