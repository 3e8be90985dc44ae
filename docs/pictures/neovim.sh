#!/usr/bin/env bash
# Makes neovim-hot-*.png: lines with their costs above the quickfix list of hot functions, and the listing of one, as tmux has it and a browser draws it
# (Debian packages: tmux, chromium, pngquant; Neovim: that of lsp-server/test/neovim.mjs, or NVIM).
#   docs/pictures/neovim.sh     after `npm start`; records a walk through a list in memory anew; DWELL names another dwell
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
dwell=${DWELL:-$top/target/release/dwell}
nvim=${NVIM:-${XDG_CACHE_HOME:-$HOME/.cache}/dwell-test/neovim-0.11.4/bin/nvim}
work=$(mktemp -d)
tmux=(tmux -L "dwell-neovim-$$")
columns=150 rows=36
trap '"${tmux[@]}" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT

mkdir -p "$work/chase/.git" && cd "$work/chase"
cp "$top"/test-fixtures/programs/{chase.c,workload.h} .
gcc -O2 -g -o chase chase.c
"$dwell" --db "$work/db" record --name sixteen -- ./chase 16 >/dev/null 2>&1
cat > "$work/init.lua" <<INIT
vim.opt.runtimepath:append('$top/neovim')
require('dwell').setup({ settings = { database = '$work/db', dwellPath = '$dwell' } })
vim.o.swapfile, vim.o.number, vim.o.termguicolors, vim.o.shortmess = false, true, true, vim.o.shortmess .. 'I'
vim.api.nvim_create_autocmd('VimEnter', { callback = function() vim.api.nvim_set_hl(0, 'Normal', {}) end }) -- the terminal's background
INIT

sees() {
  for _ in $(seq 200); do
    if "${tmux[@]}" capture-pane -p -t 0 | grep -qE -- "$1"; then return; fi
    sleep 0.1
  done
  echo "neovim.sh: never saw: $1"; "${tmux[@]}" capture-pane -p -t 0; exit 1
}

for theme in light dark; do
  LC_ALL=C.UTF-8 "${tmux[@]}" -u -f /dev/null new-session -d -x $columns -y $rows \
    "TERM=screen-256color COLORTERM=truecolor $nvim -u $work/init.lua -i NONE --cmd 'set background=$theme' +/HOT chase.c"
  "${tmux[@]}" set-option -ga terminal-overrides ',*:RGB'
  sees '[0-9] % · '
  "${tmux[@]}" send-keys -t 0 ':Dwell hot' Enter; sees 'Quickfix List|cycles/instr'
  "${tmux[@]}" send-keys -t 0 ':resize 4' Enter ':Dwell listing' Enter; sees 'Where the cycles go'
  "${tmux[@]}" send-keys -t 0 ':resize 20' Enter '/best case.*actual' Enter 'zt' ':nohlsearch | echo' Enter; sees 'executed [0-9]'
  sleep 1
  "${tmux[@]}" capture-pane -pe -t 0 > "$work/screen"
  node "$top/emacs/test/ansi.mjs" $theme < "$work/screen" > "$work/page.html"
  picture=$top/docs/pictures/neovim-hot-$theme.png
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" --force-device-scale-factor=1.5 \
    --screenshot="$picture" --window-size=$((columns * 8 + 4)),$((rows * 18)) "file://$work/page.html" >/dev/null 2>&1
  if command -v pngquant >/dev/null; then pngquant --force --ext .png --strip 48 "$picture"; fi
  "${tmux[@]}" kill-server; sleep 1
done
