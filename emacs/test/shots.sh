#!/usr/bin/env bash
# Pictures of dwell.el's views on a terminal, light and dark, for the README:   shots.sh [FOLDER]   (FOLDER: docs/pictures)
# What they show is real: a program recorded twice, the second time with twice the work. Needs what `npm run build` builds,
# tmux and chromium; pngquant makes them small.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
top=$(dirname "$here")
folder=${1:-$top/docs/pictures}
target=${CARGO_TARGET_DIR:-$top/target}
emacs=${EMACS:-emacs}
dwell=$target/release/dwell
[ -x "$dwell" ] || dwell=$target/debug/dwell
columns=150 rows=40

work=$(mktemp -d)
socket=dwell-shots-$$
pane() { tmux -L "$socket" capture-pane -p "$@" -t 0; }
keys() { tmux -L "$socket" send-keys -t 0 "$@"; }
lisp() { keys M-: ; sleep 0.3; keys -l "(ignore $1)"; keys Enter; }
trap 'tmux -L "$socket" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT

# sees REGEXP: the pane comes to show it
sees() {
  for _ in $(seq 300); do
    if pane | grep -qE -- "$1"; then return; fi
    sleep 0.1
  done
  echo "shots: never saw: $1"; pane; exit 1
}

# A walk through a list in memory, then one twice as long.
stage() {
  mkdir -p "$work/chase/.git" "$folder"
  cp "$top"/test-fixtures/programs/{chase.c,workload.h} "$work/chase"
  cd "$work/chase"
  gcc -O2 -g -o chase chase.c
  for rounds in 16 32; do
    "$dwell" --db "$work/db" record --name "$rounds-rounds" -- ./chase $rounds >/dev/null 2>&1
  done
}

# begin light|dark
begin() {
  local theme=modus-operandi
  [ "$1" = light ] || theme=modus-vivendi
  cat > "$work/init.el" <<INIT
(setq inhibit-startup-screen t make-backup-files nil create-lockfiles nil frame-background-mode '$1
      eldoc-idle-delay 3600 help-window-select nil)
(load-theme '$theme t)
(menu-bar-mode -1)
(xterm-mouse-mode -1)
(add-to-list 'load-path "$here")
(require 'dwell)
(setq dwell-server-command '("node" "$top/lsp-server/dist/server.js" "--stdio")
      dwell-database "$work/db" dwell-program "$dwell")
(set-language-environment "UTF-8")
(add-hook 'c-mode-hook #'dwell-mode)
(define-key dwell-mode-map (kbd "C-c '") dwell-command-map)
INIT
  LC_ALL=C.UTF-8 tmux -L "$socket" -u -f /dev/null new-session -d -x $columns -y $rows \
    "TERM=screen-256color COLORTERM=truecolor LC_ALL=C.UTF-8 $emacs -Q -nw -l $work/init.el $work/chase/chase.c 2>$work/stderr"
  sees '[0-9] % · [0-9.]+ m?s'
}

# shot NAME
shot() {
  lisp '(run-with-timer 0.3 nil (lambda () (message nil)))' # the echo area empty
  sleep 1
  pane -e > "$work/screen"
  node "$here/test/ansi.mjs" "$theme" < "$work/screen" > "$work/page.html"
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" --force-device-scale-factor=1.5 \
    --screenshot="$folder/emacs-$1-$theme.png" --window-size=$((columns * 8 + 4)),$((rows * 18)) "file://$work/page.html" >/dev/null 2>&1
  # Colours of a terminal are few: a third of the size.
  if command -v pngquant >/dev/null; then pngquant --force --ext .png --strip 48 "$folder/emacs-$1-$theme.png"; fi
  echo "$folder/emacs-$1-$theme.png"
}

stage
for theme in light dark; do
  begin $theme
  keys C-c "'" t; sleep 0.3
  keys C-c "'" l
  sees 'best case'
  keys n; sleep 0.3
  shot lines
  keys C-x o; sleep 0.3; keys C-x 1
  keys C-c "'" h
  sees 'chase +[0-9]+/[0-9]+/[0-9]+ +chase' # what is dear to know has come too
  keys C-x 1; sleep 0.2
  lisp '(dwell-hot-summary)'
  sees 'Net sampling error'
  shot summary
  lisp '(progn (delete-other-windows) (dwell-graph "chase"))'
  sees 'falls|↓'
  lisp '(progn (delete-other-windows) (dwell-graph-hottest))'
  shot graph
  lisp '(progn (delete-other-windows) (switch-to-buffer "chase.c") (dwell-compare (list "16-rounds")))'
  sees 'slower|more|new'
  keys C-c "'" E
  sees ' b 16-rounds'
  lisp '(progn (delete-other-windows) (split-window) (dwell-hot-procedures) (other-window 1))'
  sees 'by procedure'
  shot lists
  lisp '(progn (switch-to-buffer "chase.c") (dwell-hottest-line) (dwell-diff))'
  sees 'Verdict'
  lisp '(progn (goto-char (point-min)) (dwell-diff-visit))'
  sees 'n/p: changes'
  shot diff
  tmux -L "$socket" kill-server
done
