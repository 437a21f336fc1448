#!/usr/bin/env bash
# The page of `heddle serve` in a headless browser: translation as it is typed, lists, the token, themes, a phone.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
driver=$(command -v chromedriver || true)
if [ -z "$browser" ] || [ -z "$driver" ]; then
  echo "NOT CHECKED: the server's page in a browser, because chromium and its driver are not here (apt-get install chromium chromium-driver)"
  exit 77
fi
source "$HEDDLE_SOURCE/tests/integration/served_model"
python3 "$HEDDLE_SOURCE/tests/integration/serve_page_in_browser.py" "$driver" "$browser"
