#!/usr/bin/env bash
# Makes terminal.png: dwell's own colours, as a browser draws them (Debian packages: aha, chromium).
#   docs/pictures/terminal.sh     after `npm start`; records the hash join anew
# vscode.png is lines-dark.png of `npm run shots -w vscode-extension -- FOLDER`.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
export DWELL_DB=$scratch/db
dwell=target/release/dwell
$dwell record -F 5000 -- test-fixtures/programs/build/hashjoin >/dev/null 2>&1
{
  printf '$ dwell top -n 4\n'; $dwell --color always top -n 4 | grep -v note:
  printf '\n$ dwell annotate\n'; $dwell --color always annotate | grep -v note:
} | aha --black --title dwell | sed 's/<pre>/<pre style="font: 14px\/1.35 monospace; margin: 12px">/' >"$scratch/page.html"
lines=$(wc -l <"$scratch/page.html")
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" \
  --screenshot="$PWD/docs/pictures/terminal.png" --window-size=980,$(((lines - 12) * 19 + 24)) "file://$scratch/page.html" >/dev/null 2>&1
