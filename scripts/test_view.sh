#!/usr/bin/env bash
# Check the page of `shardmill view`: its sources, its bundle, and every page in headless Chromium.
#
#   scripts/test_view.sh PROGRAM
#
# Screenshots are in $CARGO_TARGET_DIR/view. Without npm or Chromium, prints what is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v npm >/dev/null 2>&1; then
    (cd crates/view/web && npm ci --no-audit --no-fund --silent && npm run --silent check && npm test --silent)
else
    echo "skipped: npm is not installed, so the sources of the page are not checked"
fi
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    scripts/venv.sh .cache/venv-view scripts/requirements-view.txt
    .cache/venv-view/bin/python scripts/check_view.py "$1" "${CARGO_TARGET_DIR:-target}/view"
else
    echo "skipped: chromium and chromedriver are not installed, so no page is opened"
fi
