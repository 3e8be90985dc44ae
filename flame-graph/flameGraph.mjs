// A flame graph on a canvas: search, zoom, inverted view, colours by binary, by cycles per instruction and by cause. By mouse
// and by keyboard. The report of `dwell report` and the view in VS Code are both this file.
//
// In: a call tree as columns of numbers, and its functions (flameGraph.d.mts). Out: a picture in an element of the page. Never here: a
// network, HTML made from names, VS Code, work on frames that are narrower than a pixel.
//
// d3-flame-graph was the alternative. It has an element of the document for each frame, no keyboard, and eight libraries below it.

/** Height of a row, in pixels. */
const rowHeight = 18;
/** Least width of a frame that is drawn, and of one with a name. */
const widthMin = 1, namedMin = 24;
/** A lower bound of less than a cycle says nothing. */
const tellingBound = 0.995;

/** The tree as recorded: callers above what they call. Node 0 is everything; node i + 1 is the i-th of the data. */
class CallTree {
  constructor({ parents, codes, own }) {
    const size = parents.length + 1;
    this.codes = codes;
    this.own = own;
    this.parents = parents;
    this.totals = new Float64Array(size);
    this.first = new Int32Array(size).fill(-1);
    this.next = new Int32Array(size).fill(-1);
    // A caller precedes what it calls.
    for (let at = size - 1; at > 0; at--) {
      const parent = parents[at - 1] + 1;
      this.totals[at] += own[at - 1];
      this.totals[parent] += this.totals[at];
      this.next[at] = this.first[parent];
      this.first[parent] = at;
    }
  }

  total(node) { return this.totals[node]; }
  ownOf(node) { return node === 0 ? 0 : this.own[node - 1]; }
  /** Number of the function twice, plus one if it is inlined; negative: that many merged frames. Undefined: everything. */
  code(node) { return node === 0 ? undefined : this.codes[node - 1]; }
  parent(node) { return node === 0 ? -1 : this.parents[node - 1] + 1; }
  /** What is in the frames below a node. */
  below(node) { return this.totals[node] - this.ownOf(node); }

  /** Calls `visit` for what a node calls, the largest first, until it returns false. */
  each(node, visit) {
    for (let at = this.first[node]; at >= 0 && visit(at); at = this.next[at]);
  }
}

/** The tree from the innermost functions to their callers. A node is expanded when it is seen. */
class CallerTree {
  constructor(tree) {
    this.tree = tree;
    this.nodes = [{ parent: -1, code: undefined, total: tree.total(0), places: undefined, callers: undefined }];
  }

  total(node) { return this.nodes[node].total; }
  code(node) { return this.nodes[node].code; }
  parent(node) { return this.nodes[node].parent; }

  below(node) { return (this.nodes[node].callers ??= this.expand(node)).reduce((sum, caller) => sum + this.nodes[caller].total, 0); }

  each(node, visit) {
    this.nodes[node].callers ??= this.expand(node);
    for (const caller of this.nodes[node].callers) if (!visit(caller)) return;
  }

  /** Groups the callers of a node's frames by function. */
  expand(node) {
    const { tree } = this;
    const groups = new Map();
    const add = (frame, value) => {
      const code = tree.code(frame);
      const key = code < 0 ? -1 : code;
      let group = groups.get(key);
      if (group === undefined) groups.set(key, group = { parent: node, code, total: 0, places: new Map(), callers: undefined });
      else if (code < 0 && !group.places.has(frame)) group.code += code;
      group.total += value;
      group.places.set(frame, (group.places.get(frame) ?? 0) + value);
    };
    const { places } = this.nodes[node];
    if (places === undefined) {
      for (let frame = 1; frame < tree.totals.length; frame++) if (tree.ownOf(frame) > 0) add(frame, tree.ownOf(frame));
    } else {
      for (const [frame, value] of places) if (tree.parent(frame) > 0) add(tree.parent(frame), value);
    }
    const callers = [...groups.values()].sort((a, b) => b.total - a.total);
    return callers.map((caller) => this.nodes.push(caller) - 1);
  }
}

/** Colours that people with any colour vision tell apart and that black text is legible on ("light" of P. Tol's schemes). */
const tol = { blue: '#77aadd', orange: '#ee8866', yellow: '#eedd88', pink: '#ffaabb', cyan: '#99ddff', mint: '#44bb99', pear: '#bbcc33', olive: '#aaaa00' };
const binaryColors = Object.values(tol);
const cpiSteps = [
  { below: 0.5, color: '#fff7bc' }, { below: 1, color: '#fee391' }, { below: 2, color: '#fec44f' }, { below: 4, color: '#fb9a29' },
  { below: 8, color: '#d95f0e' }, { below: Infinity, color: '#8c2d04' },
];
const causeClasses = {
  memory: { label: 'memory', color: tol.orange }, front: { label: 'code and branches', color: tol.pink }, unit: { label: 'busy units', color: tol.mint },
  system: { label: 'kernel and other processors', color: tol.yellow }, fixed: { label: 'static stalls', color: tol.cyan },
  execution: { label: 'executing', color: tol.blue }, several: { label: 'several causes may explain as much', color: tol.pear },
  unknown: { label: 'unexplained', color: '#c3a6e0' },
};
const classOfCause = {
  'd-cache-miss': 'memory', 'dtlb-miss': 'memory', 'write-buffer': 'memory', 'i-cache-miss': 'front', 'itlb-miss': 'front', 'branch-mispredict': 'front',
  divider: 'unit', multiplier: 'unit', synchronization: 'system', other: 'system', unexplained: 'unknown',
};
const plain = '#dddddd', matched = '#7a1fa2';

function luminance([r, g, b]) {
  const linear = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}

/** A fill, and whichever of black and white is legible on it: one of them always has a contrast of at least 4.5. */
export function paint(hex, shade = 1) {
  const parts = [1, 3, 5].map((at) => Math.round(parseInt(hex.slice(at, at + 2), 16) * shade));
  return { fill: `rgb(${parts.join(' ')})`, ink: luminance(parts) > 0.179 ? '#000' : '#fff' };
}

/** A cause that matters at all, in a function that may also have executed all the time. */
const tellingShare = 0.05;

/** The class of what may take most of a function's time; `several` if classes are tied. Where it is not known how often the function ran,
 *  execution may take as much as a cause. */
function classOf({ analysis }) {
  if (!analysis) return undefined;
  const causes = analysis.causes.map(({ kind, cause, shareMax }) => [kind === 'static' ? 'fixed' : classOfCause[cause] ?? 'unknown', shareMax]);
  const most = Math.max(0, ...causes.map(([, share]) => share));
  if ((analysis.execution ?? Math.min(analysis.executionMax, tellingShare)) >= most) return 'execution';
  const classes = new Set(causes.filter(([, share]) => share >= most - 0.0005).map(([name]) => name));
  return classes.size > 1 || analysis.executionMax >= most ? 'several' : [...classes][0];
}

/** Each coloring has `of`, a key for each function, and `legend`, the color and label of each key; functions without one are plain. */
function colorings(functions) {
  const sums = new Map();
  for (const { kind, image, own } of functions) if (kind === 'function') sums.set(image, (sums.get(image) ?? 0) + own);
  const images = [...sums].sort(([, a], [, b]) => b - a).slice(0, binaryColors.length).map(([image]) => image);
  const step = (cycles) => cpiSteps.findIndex(({ below }) => cycles < below);
  const bound = ({ analysis }) => (analysis && analysis.cpi === null && analysis.cpiMin >= tellingBound ? step(analysis.cpiMin) : undefined);
  const stepLabel = ({ below }, at) => (at === 0 ? `CPI below ${below}` : below === Infinity ? `${cpiSteps[at - 1].below} or more` : `${cpiSteps[at - 1].below} to ${below}`);
  const seen = (of, legend) => legend.filter(({ key }) => functions.some((f) => of(f) === key));
  const binary = { label: 'binary', of: ({ kind, image }) => (kind === 'function' && images.includes(image) ? image : undefined), rest: 'other binaries', legend: images.map((image, at) => ({ key: image, label: image, color: binaryColors[at] })) };
  // Dark steps would vanish on a dark page.
  const cpi = { label: 'cycles per instruction', dimmed: 0.85, of: ({ analysis }) => (analysis && analysis.cpi !== null ? step(analysis.cpi) : undefined), bound, rest: 'not known', legend: cpiSteps.map((each, at) => ({ key: at, label: stepLabel(each, at), color: each.color })) };
  const cause = { label: 'what it waits for', of: classOf, rest: 'not analysed', legend: Object.entries(causeClasses).map(([key, { label, color }]) => ({ key, label, color })) };
  cause.legend = seen(classOf, cause.legend);
  return { binary, cpi, cause };
}

function percent(share) {
  const value = 100 * share;
  return value > 0 && value < 0.05 ? '<0.1 %' : `${value.toFixed(1)} %`;
}

function count(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

function duration(seconds) {
  return seconds >= 9.95 ? `${count(seconds)} s` : seconds >= 0.9995 ? `${seconds.toFixed(1)} s` : `${(1000 * seconds).toFixed(1)} ms`;
}

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

let graphs = 0;

export class FlameGraph {
  constructor(host, data, options = {}) {
    this.host = host;
    this.data = data;
    this.options = options;
    this.tree = this.callTree = new CallTree(data);
    this.colorings = colorings(data.functions);
    this.coloring = this.colorings.binary;
    this.zoomed = this.focused = 0;
    this.rows = [];
    this.found = undefined;
    this.build();
    this.resized = new ResizeObserver(() => { this.layOut(); });
    this.resized.observe(this.scroller);
    this.schemes = matchMedia('(prefers-color-scheme: dark)');
    this.schemeChanged = () => { this.recolor(); };
    this.schemes.addEventListener('change', this.schemeChanged);
    this.recolor();
    this.say(0);
  }

  /** Shows other data of the same kind: search, coloring and direction stay, and zoom and focus where the frames are still there. */
  show(data) {
    const [zoomed, focused] = [this.zoomed, this.focused].map((node) => this.pathTo(node));
    this.data = data;
    this.callTree = new CallTree(data);
    this.colorings = colorings(data.functions);
    this.coloring = this.colorings[this.by.value];
    this.turn(this.inverted.checked);
    this.zoom(this.nodeAt(zoomed));
    this.focus(this.nodeAt(focused));
    this.search(this.input.value);
    this.recolor();
  }

  /** What identifies a function in other data. */
  keyOf(code) {
    const each = code >= 0 ? this.data.functions[code >> 1] : undefined;
    return each && JSON.stringify([each.kind, each.name, each.image, code & 1]);
  }

  /** The functions from everything to a node. */
  pathTo(node) {
    const path = [];
    for (let at = node; this.tree.parent(at) >= 0; at = this.tree.parent(at)) path.unshift(this.keyOf(this.tree.code(at)));
    return path;
  }

  /** The node at the end of a path, as far as it is there. */
  nodeAt(path) {
    let node = 0;
    for (const key of path) {
      let next;
      this.tree.each(node, (callee) => {
        if (this.keyOf(this.tree.code(callee)) === key) next = callee;
        return next === undefined;
      });
      if (next === undefined || key === undefined) break;
      node = next;
    }
    return node;
  }

  /** Takes what was learned of the same functions; what is shown stays. */
  know(functions) {
    this.data = { ...this.data, functions };
    this.colorings = colorings(functions);
    this.coloring = this.colorings[this.by.value];
    this.recolor();
    this.say(this.focused);
  }

  dispose() {
    this.resized.disconnect();
    this.schemes.removeEventListener('change', this.schemeChanged);
    this.host.replaceChildren();
  }

  build() {
    const id = `flame-${graphs++}`;
    this.input = make('input', { type: 'search', placeholder: 'Search functions', ariaLabel: 'Search functions of the flame graph' });
    this.by = make('select', { id: `${id}-by` }, ...Object.entries(this.colorings).map(([value, { label }]) => make('option', { value, textContent: label })));
    this.inverted = make('input', { type: 'checkbox' });
    this.whole = make('button', { type: 'button', textContent: 'Show all', disabled: true });
    this.matches = make('output', { className: 'flame-matches' });
    const bar = make('div', { className: 'flame-bar' }, this.input, this.matches, make('label', { htmlFor: this.by.id }, 'Color by '), this.by,
      make('label', {}, this.inverted, ' From the innermost'), this.whole);
    this.legend = make('ul', { className: 'flame-legend', ariaLabel: 'Colors' });
    this.canvas = make('canvas', { ariaHidden: 'true' });
    this.room = make('div', { className: 'flame-room' }, this.canvas);
    this.scroller = make('div', { className: 'flame-scroller', tabIndex: 0 }, this.room);
    this.scroller.setAttribute('role', 'application');
    this.scroller.setAttribute('aria-label', 'Flame graph: arrow keys move, Enter zooms in, Escape shows all');
    this.status = make('p', { className: 'flame-status' });
    this.status.setAttribute('aria-live', 'polite');
    this.status.id = `${id}-status`;
    this.scroller.setAttribute('aria-describedby', this.status.id);
    this.hover = make('div', { className: 'flame-hover', hidden: true });
    this.host.classList.add('flame');
    this.host.replaceChildren(bar, this.legend, this.scroller, this.status, this.hover);
    this.listen();
  }

  listen() {
    this.input.addEventListener('input', () => { this.search(this.input.value); });
    this.by.addEventListener('change', () => { this.coloring = this.colorings[this.by.value]; this.recolor(); });
    this.inverted.addEventListener('change', () => { this.turn(this.inverted.checked); });
    this.whole.addEventListener('click', () => { this.zoom(0); });
    this.scroller.addEventListener('scroll', () => { this.draw(); });
    this.scroller.addEventListener('keydown', (event) => { if (!event.ctrlKey && !event.altKey && !event.metaKey && this.pressed(event.key)) event.preventDefault(); });
    this.scroller.addEventListener('focus', () => { this.draw(); });
    this.scroller.addEventListener('blur', () => { this.draw(); });
    this.canvas.addEventListener('click', (event) => {
      const node = this.at(event);
      if (node === undefined) return;
      this.focus(node);
      if (this.options.clickOpens) this.open(node);
      else this.zoom(node);
    });
    this.canvas.addEventListener('dblclick', (event) => { const node = this.at(event); if (node !== undefined) this.zoom(node); });
    this.canvas.addEventListener('mousemove', (event) => { this.point(event); });
    this.canvas.addEventListener('mouseleave', () => { this.hover.hidden = true; });
  }

  /** Handles a key; returns whether it means something. */
  pressed(key) {
    const { row, place } = this.placeOf(this.focused) ?? {};
    const beside = (step) => this.rows[row]?.nodes[place + step];
    switch (key) {
      case 'ArrowDown': {
        let callee;
        this.tree.each(this.focused, (node) => { callee = node; return false; });
        return this.focus(callee);
      }
      case 'ArrowUp': return this.focus(this.tree.parent(this.focused));
      case 'ArrowLeft': return this.focus(beside(-1));
      case 'ArrowRight': return this.focus(beside(1));
      case 'Home': return this.focus(0);
      case 'Enter': this.zoom(this.focused); return true;
      case 'Escape': this.zoom(0); return true;
      case ' ': this.open(this.focused); return true;
      case '/': this.input.focus(); return true;
      default: return false;
    }
  }

  /** Opens what the host shows of a function. */
  open(node) {
    const code = this.tree.code(node);
    if (code >= 0) this.options.open?.(this.data.functions[code >> 1], code >> 1);
  }

  /** Begins with the innermost frames, or with the outermost. */
  turn(isInverted) {
    this.tree = isInverted ? new CallerTree(this.callTree) : this.callTree;
    this.zoomed = this.focused = 0;
    this.zoom(0);
  }

  zoom(node) {
    this.zoomed = node;
    this.whole.disabled = node === 0;
    this.layOut();
    this.focus(node);
  }

  /** Returns whether there is such a node, so that keys that lead nowhere still do not scroll the page. */
  focus(node) {
    if (node === undefined || node < 0) return true;
    this.focused = node;
    // A caller of the zoomed frame is always in sight, and so is what it calls if it is wide enough.
    if (this.placeOf(node) === undefined) { this.zoomed = node; this.whole.disabled = false; this.layOut(); }
    const { row } = this.placeOf(node);
    const top = row * rowHeight, { scroller } = this;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + rowHeight > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + rowHeight - scroller.clientHeight;
    this.say(node);
    this.draw();
    return true;
  }

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter((word) => word !== '');
    const { functions } = this.data;
    this.found = words.length === 0 ? undefined : functions.map(({ name, image }) => words.every((word) => `${name} ${image}`.toLowerCase().includes(word)));
    this.matches.textContent = this.found === undefined ? '' : `${percent(this.matchedShare())} of the stacks, functions: ${count(this.found.filter(Boolean).length)}`;
    this.draw();
  }

  /** Share of the stacks that contain a function that was found. */
  matchedShare() {
    const { callTree: tree, found } = this;
    const inside = new Uint8Array(tree.totals.length);
    let sum = 0;
    for (let node = 1; node < inside.length; node++) {
      const code = tree.code(node), parent = tree.parent(node);
      const isFound = code >= 0 && found[code >> 1];
      if (isFound && !inside[parent]) sum += tree.total(node);
      inside[node] = isFound || inside[parent];
    }
    return sum / Math.max(1, tree.total(0));
  }

  /** Draws again: the colors around have changed. */
  recolor() {
    this.chooseColors();
    this.draw();
  }

  chooseColors() {
    // A transparent background shows that of an element further out.
    let behind = this.host, color = 'rgba(0, 0, 0, 0)';
    for (; behind && /^rgba\(.*, 0\)$|^transparent$/.test(color); behind = behind.parentElement) color = getComputedStyle(behind).backgroundColor;
    const isDark = luminance((color.match(/[\d.]+/g) ?? [255, 255, 255]).slice(0, 3).map(Number)) < 0.18;
    const { functions } = this.data, { of, bound, legend, rest, dimmed = 0.5 } = this.coloring;
    const paints = new Map(legend.map(({ key, color: hex }) => [key, paint(hex, isDark ? dimmed : 1)]));
    this.plain = paint(plain, isDark ? 0.4 : 1);
    this.narrow = isDark ? '#222' : '#ebebeb';
    this.matchedPaint = paint(matched);
    this.paints = functions.map((each) => paints.get(of(each)) ?? this.plain);
    this.bounds = functions.map((each) => (bound?.(each) === undefined ? undefined : paints.get(bound(each))));
    const hasBounds = this.bounds.some((each) => each !== undefined);
    const entry = ({ fill }, label, className = '') => {
      const swatch = make('i', { className });
      swatch.style.setProperty('--swatch', fill);
      return make('li', {}, swatch, label);
    };
    this.legend.replaceChildren(
      ...legend.map(({ key, label }) => entry(paints.get(key), label)),
      ...(hasBounds ? [entry(paints.get(2), 'a line below: at least', 'flame-bound')] : []),
      entry(this.plain, rest),
      entry({ fill: this.narrow }, 'narrower than a pixel: zoom in'),
    );
  }

  /** Places the frames that are at least a pixel wide, row by row. */
  layOut() {
    const { tree } = this;
    this.width = this.scroller.clientWidth;
    this.rows = [];
    const put = (row, node, x, width) => {
      const { nodes, xs, widths } = (this.rows[row] ??= { nodes: [], xs: [], widths: [] });
      nodes.push(node);
      xs.push(x);
      widths.push(width);
    };
    const above = [];
    for (let node = this.zoomed; node >= 0; node = tree.parent(node)) above.push(node);
    above.reverse().forEach((node, row) => { put(row, node, 0, this.width); });
    const scale = this.width / Math.max(1, tree.total(this.zoomed));
    for (let row = above.length - 1; row < this.rows.length; row++) {
      const { nodes, xs } = this.rows[row];
      for (let place = 0; place < nodes.length; place++) {
        if (nodes[place] < 0) continue;
        let x = xs[place];
        tree.each(nodes[place], (node) => {
          const width = tree.total(node) * scale;
          // The next ones are not wider.
          if (width < widthMin) return false;
          put(row + 1, node, x, width);
          x += width;
          return true;
        });
        const narrow = tree.below(nodes[place]) * scale - (x - xs[place]);
        if (narrow >= widthMin) put(row + 1, -1, x, narrow);
      }
    }
    this.room.style.height = `${this.rows.length * rowHeight}px`;
    this.draw();
  }

  draw() {
    const { canvas, scroller, width, rows } = this;
    if (this.paints === undefined || width === undefined) return;
    const height = scroller.clientHeight, ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext('2d');
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this.host);
    this.font ??= `12px ${style.getPropertyValue('--flame-font') || 'monospace'}`;
    pen.font = this.font;
    pen.textBaseline = 'middle';
    this.letter ??= pen.measureText('m').width;
    this.frameLine = style.getPropertyValue('--flame-line').trim();
    // The colors of text, turned around, are on no other frame.
    this.focusPaint = document.activeElement === scroller ? { fill: style.color, ink: this.narrow } : undefined;
    const first = Math.floor(scroller.scrollTop / rowHeight);
    for (let row = first; row < Math.min(rows.length, first + Math.ceil(height / rowHeight) + 1); row++) this.drawRow(pen, rows[row], row * rowHeight - scroller.scrollTop);
  }

  drawRow(pen, { nodes, xs, widths }, top) {
    for (let place = 0; place < nodes.length; place++) {
      const node = nodes[place], x = xs[place], width = Math.max(widthMin, widths[place] - 0.5);
      if (node < 0) {
        pen.fillStyle = this.narrow;
        pen.fillRect(x, top, width, rowHeight - 1);
        continue;
      }
      const code = this.tree.code(node);
      const { fill, ink } = (node === this.focused && this.focusPaint) || this.paintOf(code);
      pen.fillStyle = fill;
      pen.fillRect(x, top, width, rowHeight - 1);
      const bound = code >= 0 && this.bounds[code >> 1];
      if (bound) {
        pen.fillStyle = bound.fill;
        pen.fillRect(x, top + rowHeight - 4, width, 3);
      }
      if (this.frameLine && width > 3) {
        pen.strokeStyle = this.frameLine;
        pen.lineWidth = 1;
        pen.strokeRect(x + 0.5, top + 0.5, width - 1, rowHeight - 2);
      }
      if (width >= namedMin) this.drawName(pen, code, ink, x, width, top);
    }
  }

  drawName(pen, code, ink, x, width, top) {
    const room = Math.floor((width - 6) / this.letter);
    const name = this.nameOf(code);
    if (room < 3) return;
    pen.font = code >= 0 && code & 1 ? `italic ${this.font}` : this.font;
    pen.fillStyle = ink;
    pen.fillText(name.length <= room ? name : `${name.slice(0, room - 1)}…`, x + 3, top + rowHeight / 2);
  }

  paintOf(code) {
    if (code === undefined || code < 0) return this.plain;
    return this.found?.[code >> 1] ? this.matchedPaint : this.paints[code >> 1];
  }

  nameOf(code) {
    if (code === undefined) return this.data.title ?? 'all';
    return code < 0 ? `${count(-code)} small frames` : this.data.functions[code >> 1].name;
  }

  placeOf(node) {
    let depth = 0;
    for (let at = node; this.tree.parent(at) >= 0; at = this.tree.parent(at)) depth++;
    const place = this.rows[depth]?.nodes.indexOf(node) ?? -1;
    return place < 0 ? undefined : { row: depth, place };
  }

  /** The node at a place of the canvas. */
  at({ offsetX, offsetY }) {
    const row = this.rows[Math.floor((offsetY + this.scroller.scrollTop) / rowHeight)];
    if (row === undefined) return undefined;
    const place = row.xs.findLastIndex((x) => x <= offsetX);
    return place >= 0 && offsetX < row.xs[place] + Math.max(widthMin, row.widths[place]) && row.nodes[place] >= 0 ? row.nodes[place] : undefined;
  }

  point(event) {
    const node = this.at(event);
    this.hover.hidden = node === undefined;
    if (node === undefined) return;
    this.hover.replaceChildren(...this.words(node).map((text, at) => make(at === 0 ? 'b' : 'div', { textContent: text })));
    const { width, height } = this.hover.getBoundingClientRect();
    this.hover.style.left = `${Math.max(0, Math.min(event.clientX + 12, innerWidth - width - 8))}px`;
    this.hover.style.top = `${event.clientY + 16 + height > innerHeight ? event.clientY - height - 8 : event.clientY + 16}px`;
  }

  /** Says what is known of a frame, and links to what the host shows of its function. */
  say(node) {
    const [name, ...words] = this.words(node);
    const code = this.tree.code(node);
    const link = code >= 0 ? this.options.link?.(this.data.functions[code >> 1], code >> 1) : undefined;
    this.status.replaceChildren(make('b', { textContent: name }), ...words.flatMap((text) => [' · ', text]), ...(link ? [' · ', link] : []));
  }

  /** What is known of a frame, line by line. */
  words(node) {
    const code = this.tree.code(node), { unit, seconds = 0, functions } = this.data;
    const amount = (value) => [unit === 'samples' ? `${count(value)} ${value === 1 ? 'sample' : 'samples'}` : seconds > 0 ? '' : `${count(value)} ${unit}`, seconds > 0 ? duration(value * seconds) : ''].filter((text) => text !== '').join(', ');
    const total = this.tree.total(node), all = this.callTree.total(0);
    const lines = [`${percent(total / Math.max(1, all))} (${amount(total)})`];
    if (code === undefined) return [this.nameOf(code), ...lines];
    if (code < 0) return [this.nameOf(code), ...lines, 'each is too small to be kept apart'];
    const each = functions[code >> 1];
    const place = [each.image, code & 1 ? 'inlined' : '', each.file ? `${each.file.slice(each.file.lastIndexOf('/') + 1)}${each.line ? `:${each.line}` : ''}` : ''].filter((text) => text);
    const own = each.kind === 'function' ? [`in itself, all its places together: ${percent(each.own / Math.max(1, all))}`] : [];
    return [each.name, ...(place.length > 0 ? [place.join(', ')] : []), ...lines, ...own, ...analysisWords(each)];
  }
}

/** What the analysis knows of a function. */
function analysisWords({ kind, own, analysis }) {
  if (kind !== 'function' || own === 0) return [];
  if (!analysis) return ['not analysed'];
  const cycles = (value) => (value >= 9.95 ? value.toFixed(0) : value.toFixed(2));
  const { cpi, cpiMin, cpiMax } = analysis;
  const range = cpiMin !== null && cpiMax !== null ? ` (${cycles(cpiMin)} to ${cycles(cpiMax)})` : '';
  const cost = cpi !== null ? [`${cycles(cpi)} cycles per instruction${range}`] : cpiMin !== null && cpiMin >= tellingBound ? [`at least ${cycles(cpiMin)} cycles per instruction`] : [];
  const share = ({ shareMin, shareMax }) => (shareMax - shareMin < 0.0005 ? percent(shareMax) : shareMin < 0.0005 ? `up to ${percent(shareMax)}` : `${percent(shareMin)} to ${percent(shareMax)}`);
  // Where it is not known how often the function ran, the greatest share is no bound.
  const least = ({ shareMin }) => (shareMin < 0.0005 ? '' : ` at least ${percent(shareMin)}`);
  const causes = analysis.causes.slice(0, 3).map((cause) => `${cause.label}${analysis.execution === null ? least(cause) : ` ${share(cause)}`}`);
  if (analysis.execution === null && causes.length > 0) return [...cost, `may wait for: ${causes.join(', ')}`];
  return [...cost, ...(causes.length > 0 ? [`of its own time: ${causes.join(', ')}`] : [])];
}
