#!/usr/bin/env bash
# Emacs on a terminal, in tmux: type, read the screen.   screen.sh [EMACS]
# Ends as ERT does, `Ran N tests, …`; a machine without tmux gets one line `SKIPPED emacs-screen: reason`.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
emacs=${1:-emacs}
command -v tmux >/dev/null || { echo 'SKIPPED emacs-screen: tmux is not installed'; exit 0; }

work=$(mktemp -d)
socket=dwell-screen-$$
pane() { tmux -L "$socket" capture-pane -p -t 0; }
keys() { tmux -L "$socket" send-keys -t 0 "$@"; }
trap 'tmux -L "$socket" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT

mkdir -p "$work/project/.git"
printf 'long sum(int *p) {\n  long total = 0;\n  for (;;) total += *p;\n  p = p->next;\n  return total;\n}\n' > "$work/project/a.c"
cat > "$work/init.el" <<INIT
(setq inhibit-startup-screen t make-backup-files nil create-lockfiles nil native-comp-jit-compilation nil)
(add-to-list 'load-path "$here")
(require 'dwell)
(setq dwell-server-command '("node" "$here/test/fake-server.mjs"))
(set-language-environment "UTF-8")
(add-hook 'c-mode-hook #'dwell-mode)
(define-key dwell-mode-map (kbd "C-c '") dwell-command-map)
INIT

passed=0 failed=0
# sees NAME REGEXP: the pane comes to show it
sees() {
  for _ in $(seq 100); do
    if pane | grep -qE -- "$2"; then passed=$((passed + 1)); return; fi
    sleep 0.1
  done
  failed=$((failed + 1))
  echo "screen: $1: never saw: $2"
  pane | sed 's/^/  | /'
}

LC_ALL=C.UTF-8 tmux -L "$socket" -u -f /dev/null new-session -d -x 120 -y 30 \
  "TERM=screen-256color LC_ALL=C.UTF-8 $emacs -Q -nw -l $work/init.el $work/project/a.c 2>$work/stderr"

sees 'line cost' '^  for \(;;\) total \+= \*p;  █▋   42 % · 1\.3 s · waits for memory \(D-cache or DTLB miss\) ← :2$'
sees 'a bound' 'p = p->next;  ▎    5\.0 % · 150 ms · waits for memory \(DTLB miss\) ← far\.h:10 · ≥ 2\.0 cycles/instr'
sees 'totals above' '^47 % · 1\.4 s · 3\.9 cycles/instr \(ideal 0\.50\) · sum\(int\*\)$'
sees 'mode line' 'Dwell\[20261121T100000Z\]'

# Typing at a line's end: the text goes before the cost, which is stale then and good again after undo.
keys "C-c" "'" "n"; sleep 0.2; keys C-e; keys 'typed'
sees 'typing' '^  for \(;;\) total \+= \*p;typed  edited · was 42 %'
keys C-x u
sees 'undo' '^  for \(;;\) total \+= \*p;  █▋   42 %'
keys M-'<'; sleep 0.1; keys Enter; keys C-x C-s
sees 'saving' '^  long total = 0;  █▋   42 %' # the script's costs stand on fixed lines
keys "C-c" "'" "n"; sleep 0.2; keys "C-c" "'" "."
sees 'culprit' 'Dwell: D-cache miss ← :2'

keys "C-c" "'" "h"
sees 'hot list' '█▉    47\.2%   47\.2%   944 M    1\.9      472 sum\(int\*\)'
sees 'hot list, mode line' 'by function: 20261121T100000Z'
keys l
sees 'listing' '401003    add %rax,%rcx'
keys n
sees 'stall' 'd = D-cache miss'
keys Enter
sees 'back in the source' 'total \+= \*p;'
keys C-x 1

keys M-x; sleep 0.2; keys 'dwell-record' Enter; sees 'prompt' 'Record the command:'; keys './a.out' Enter
sees 'recorded' 'made recording recorded-1'
sees 'the new profile' '43 % · 1\.3 s'
keys M-x; sleep 0.2; keys 'dwell-select-epoch' Enter; sees 'epoch prompt' 'Recordings to show'; keys '?'
sees 'annotations' 'before +2026-11-20 09:00 +1000 samples, 3 lost'
keys 'before' Enter
sees 'the other epoch' 'Dwell\[before\]'

if [ -n "${DWELL_SCREEN_SHOW:-}" ]; then pane; fi
echo "Ran $((passed + failed)) tests, $passed results as expected, $failed unexpected (screen)"
[ "$failed" -eq 0 ]
