#!/usr/bin/env bash
# The page of `heddle serve` in a headless browser: translation as it is typed, lists, the token, themes, a phone.
set -euo pipefail
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
driver=$(command -v chromedriver || true)
if [ -z "$browser" ] || [ -z "$driver" ] || ! command -v python3 > /dev/null; then
  echo "NOT CHECKED: the server's page in a browser, because chromium and its driver are not here (apt-get install chromium chromium-driver)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_NUM_THREADS=1
source "$HEDDLE_SOURCE/tests/integration/served_model"
python3 "$HEDDLE_SOURCE/tests/integration/serve_page_in_browser.py" "$driver" "$browser"
