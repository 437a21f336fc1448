#!/usr/bin/env bash
# The page of `heddle inspect --html` in a headless browser, driven by the keyboard and the pointer.
set -euo pipefail
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
driver=$(command -v chromedriver || true)
if [ -z "$browser" ] || [ -z "$driver" ] || ! command -v python3 > /dev/null; then
  echo "NOT CHECKED: the page in a browser, because chromium and its driver are not here (apt-get install chromium chromium-driver)"
  exit 77
fi
source "$HEDDLE_SOURCE/tests/integration/inspected_run"
"$HEDDLE" inspect run other third --source "$hostile" --pairs pairs.tsv --word "$hostile" --word seven --html page.html > log 2>&1 ||
  fail inspect
python3 "$HEDDLE_SOURCE/tests/integration/page_in_browser.py" "$driver" "$browser" "$work/page.html" run/metrics.jsonl
