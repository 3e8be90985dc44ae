#!/usr/bin/env bash
# Makes top-tui.png: `dwell top --tui` at a listing, as tmux has it and a browser draws it (Debian packages: tmux, aha, chromium).
#   docs/pictures/tui.sh     after `npm start`; records the hash join anew; DWELL names another dwell
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
tmux=(tmux -L "dwell-$$")
trap '"${tmux[@]}" kill-server 2>/dev/null || true; rm -rf "$scratch"' EXIT
export DWELL_DB=$scratch/db
dwell=${DWELL:-target/release/dwell}
$dwell record -F 5000 --name hashjoin -- "${PROGRAM:-test-fixtures/programs/build/hashjoin}" >/dev/null 2>&1
"${tmux[@]}" new-session -d -x 112 -y 30 "$dwell top --tui --by procedure"
wait_for() { for _ in $(seq 100); do "${tmux[@]}" capture-pane -p | grep -q "$1" && return; sleep 0.2; done; return 1; }
wait_for 'probe'; "${tmux[@]}" send-keys Enter; wait_for 'best case'
"${tmux[@]}" capture-pane -pe | aha --black --title dwell | sed 's/<pre>/<pre style="font: 14px\/1.35 monospace; margin: 12px">/' >"$scratch/page.html"
"${tmux[@]}" send-keys q
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" \
  --screenshot="$PWD/docs/pictures/top-tui.png" --window-size=980,594 "file://$scratch/page.html" >/dev/null 2>&1
