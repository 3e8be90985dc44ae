// A terminal's screen with its colours, as `tmux capture-pane -e` gives it, as a page.   node ansi.mjs light|dark < SCREEN > PAGE
const [, , theme] = process.argv;
const plain = theme === 'light' ? { color: '#000000', background: '#ffffff' } : { color: '#ffffff', background: '#000000' };
const levels = [0, 95, 135, 175, 215, 255];
const hex = (...channels) => `#${channels.map((channel) => Number(channel).toString(16).padStart(2, '0')).join('')}`;

/** One of the 256 colours. */
function indexed(index) {
  const basic = ['000000', 'cd0000', '00cd00', 'cdcd00', '0000ee', 'cd00cd', '00cdcd', 'e5e5e5', '7f7f7f', 'ff0000', '00ff00', 'ffff00', '5c5cff', 'ff00ff', '00ffff', 'ffffff'];
  if (index < 16) return `#${basic[index]}`;
  if (index >= 232) return hex(...Array(3).fill(8 + 10 * (index - 232)));
  const at = index - 16;
  return hex(levels[Math.floor(at / 36)], levels[Math.floor(at / 6) % 6], levels[at % 6]);
}

/** The style after the codes of one sequence. */
function apply(style, codes) {
  const rest = codes.split(';').map(Number);
  const next = { ...style };
  for (let code = rest.shift(); code !== undefined; code = rest.shift()) {
    if (code === 0) for (const key of Object.keys(next)) delete next[key];
    else if (code === 1) next.bold = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 9) next.strike = true;
    else if (code === 22) delete next.bold;
    else if (code === 23) delete next.italic;
    else if (code === 24) delete next.underline;
    else if (code === 27) delete next.inverse;
    else if (code === 29) delete next.strike;
    else if (code === 38 || code === 48) next[code === 38 ? 'color' : 'background'] = rest.shift() === 5 ? indexed(rest.shift()) : hex(...rest.splice(0, 3));
    else if (code === 39) delete next.color;
    else if (code === 49) delete next.background;
    else if (code >= 30 && code < 38) next.color = indexed(code - 30);
    else if (code >= 40 && code < 48) next.background = indexed(code - 40);
    else if (code >= 90 && code < 98) next.color = indexed(code - 82);
    else if (code >= 100 && code < 108) next.background = indexed(code - 92);
  }
  return next;
}

function css({ color = plain.color, background = plain.background, bold, italic, underline, strike, inverse }) {
  const [front, back] = inverse ? [background, color] : [color, background];
  const lines = [underline && 'underline', strike && 'line-through'].filter(Boolean).join(' ');
  return `color:${front};background:${back}${bold ? ';font-weight:bold' : ''}${italic ? ';font-style:italic' : ''}${lines ? `;text-decoration:${lines}` : ''}`;
}

const escape = (text) => text.replace(/[&<>]/g, (sign) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[sign]);

let screen = '';
for await (const chunk of process.stdin) screen += chunk;
let style = {};
const rows = screen.replace(/\n$/, '').split('\n').map((row) => {
  const parts = row.split(/\x1b\[([0-9;]*)m/);
  return parts.map((part, i) => {
    if (i % 2 === 1) return (style = apply(style, part || '0')), '';
    return part === '' ? '' : `<span style="${css(style)}">${escape(part)}</span>`;
  }).join('');
});
console.log(`<meta charset="utf-8"><style>body{margin:0;background:${plain.background}}
div{font:13.3px/18px "DejaVu Sans Mono",monospace;white-space:pre;height:18px}span{display:inline-block;height:18px}</style>
${rows.map((row) => `<div>${row}</div>`).join('\n')}`);
