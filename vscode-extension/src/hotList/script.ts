/// <reference lib="dom" />
// The hot list in its page: of thousands of rows only those in sight are in the document, so that it scrolls freely. What a
// row lacks is asked for when it comes in sight. New rows replace old ones in place: choice, filter and scroll stay.
import { imageName, percent } from '../format';
import { arranged, cpiText, inSight, type By, type Detail, type FromPage, type ListRow, type Sort, type ToPage, type Words } from './model';

declare function acquireVsCodeApi(): { postMessage(message: FromPage): void; getState(): unknown; setState(state: State): void };

interface State {
  filter: string;
  sort: Sort;
  chosen: string | null;
}

const api = acquireVsCodeApi();
function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no #${id} in the page`);
  return found;
}

const [list, room, foot, words] = [element('list'), element('room'), element('foot'), element('words')];
const filter = element('filter') as HTMLInputElement;
const [sort, by] = [element('sort') as HTMLSelectElement, element('by') as HTMLSelectElement];

let rows: ListRow[] = [];
/** Indices of `rows`, as shown. */
let order: number[] = [];
let chosen: string | null = null;
const drawn = new Map<string, HTMLElement>();
/** Ids of rows whose details are of the profile as it is. */
const fresh = new Set<string>();

addEventListener('message', ({ data }: MessageEvent<ToPage>) => {
  if (data.kind === 'words') sayWords(data.words);
  else if (data.kind === 'rows') takeRows(data.by, data.rows);
  else if (data.by === by.value) takeDetails(data.details);
});

function takeDetails(details: Record<string, Detail>): void {
  for (const row of rows) {
    const detail = details[row.id];
    if (!detail) continue;
    row.detail = detail;
    fresh.add(row.id);
  }
  arrange();
}

function takeRows(kind: By, taken: ListRow[]): void {
  fresh.clear();
  if (by.value !== kind) removeDrawn();
  // A row shows its old values until the new ones arrive.
  const known = new Map(by.value === kind ? rows.map((row) => [row.id, row.detail]) : []);
  for (const row of taken) {
    const detail = row.detail ?? known.get(row.id);
    if (row.detail) fresh.add(row.id);
    if (detail) row.detail = detail;
  }
  by.value = kind;
  rows = taken;
  words.hidden = true;
  element('bar').hidden = list.hidden = false;
  arrange();
}

function removeDrawn(): void {
  for (const row of drawn.values()) row.remove();
  drawn.clear();
}

function sayWords({ text, actions }: Words): void {
  rows = [];
  words.replaceChildren(text, ...actions.map(({ title, command }) => {
    const button = document.createElement('button');
    button.textContent = title;
    button.addEventListener('click', () => { api.postMessage({ kind: 'run', command }); });
    return button;
  }));
  words.hidden = false;
  element('bar').hidden = list.hidden = true;
  arrange();
}

function arrange(): void {
  order = arranged(rows, filter.value, sort.value as Sort);
  draw();
}

function rowHeight(): number {
  return document.body.classList.contains('wide') ? 22 : 38;
}

/** Brings the document to what is in sight. */
function draw(): void {
  document.body.classList.toggle('wide', document.body.clientWidth >= 560);
  const height = rowHeight();
  room.style.height = `${order.length * height}px`;
  const [from, to] = inSight(list.scrollTop, list.clientHeight, height, order.length);
  const seen = new Set<string>();
  for (let place = from; place < to; place++) {
    const row = rows[order[place] ?? -1];
    if (!row) continue;
    seen.add(row.id);
    const shown = drawn.get(row.id) ?? newRow(row);
    shown.style.top = `${place * height}px`;
    shown.setAttribute('aria-posinset', String(place + 1));
    shown.setAttribute('aria-setsize', String(order.length));
    fill(shown, row);
    if (!shown.isConnected) room.append(shown);
  }
  for (const [id, shown] of drawn) {
    if (seen.has(id)) continue;
    shown.remove();
    drawn.delete(id);
  }
  foot.textContent = order.length === rows.length ? '' : `${order.length} of ${rows.length}`;
  list.setAttribute('aria-activedescendant', chosen !== null && drawn.has(chosen) ? `row ${chosen}` : '');
  wantDetails(from, to);
}

function newRow(row: ListRow): HTMLElement {
  const shown = document.createElement('div');
  shown.className = 'row';
  shown.id = `row ${row.id}`;
  shown.setAttribute('role', 'option');
  shown.dataset.vscodeContext = JSON.stringify({ webviewSection: by.value, id: row.id, preventDefaultContextMenuItems: true });
  for (const part of ['share', 'meter', 'name', 'total', 'cpi', 'split', 'image']) {
    const cell = document.createElement('span');
    cell.className = part;
    shown.append(cell);
  }
  shown.addEventListener('click', () => {
    choose(row.id);
    api.postMessage({ kind: 'open', id: row.id });
  });
  drawn.set(row.id, shown);
  return shown;
}

function fill(shown: HTMLElement, row: ListRow): void {
  shown.classList.toggle('chosen', row.id === chosen);
  shown.setAttribute('aria-selected', String(row.id === chosen));
  const key = JSON.stringify(row);
  if (shown.dataset.key === key) return;
  shown.dataset.key = key;
  const image = row.image === null ? '' : imageName(row.image);
  const cost = cpiText(row.detail);
  const split = row.detail?.split;
  const parts = split ? ([['execution', split.execution], ['static', split.static], ['dynamic', split.dynamic]] as const) : [];
  const [share, meter, name, total, cpiCell, splitCell, imageCell] = shown.children as unknown as HTMLElement[];
  if (!share || !meter || !name || !total || !cpiCell || !splitCell || !imageCell) return;
  share.textContent = percent(row.share);
  meter.replaceChildren(bar('', row.share));
  name.textContent = row.label;
  total.textContent = percent(row.cumulativeShare);
  cpiCell.textContent = document.body.classList.contains('wide') ? cost : [cost, image].filter((part) => part !== '').join(' · ');
  splitCell.replaceChildren(...parts.map(([part, size]) => bar(part, size)));
  imageCell.textContent = image;
  const told = [percent(row.share), `with those above ${percent(row.cumulativeShare)}`, cost, ...parts.map(([part, size]) => `${partNames[part]} ${percent(size)}`), row.image ?? ''];
  const text = [row.label, ...told.filter((part) => part !== '')];
  shown.title = text.join('\n');
  shown.setAttribute('aria-label', text.join(', '));
}

const partNames = { execution: 'execution', static: 'static stalls', dynamic: 'dynamic stalls' };

function bar(part: string, size: number): HTMLElement {
  const filled = document.createElement('i');
  filled.className = part;
  filled.style.width = `${Math.max(0, Math.min(1, size)) * 100}%`;
  return filled;
}

/** What was asked for last. */
let asked = '';

/** Asks for what rows in sight lack, in the order of share: there they are neighbours. */
function wantDetails(from: number, to: number): void {
  const lacking = order.slice(from, to).filter((at) => !fresh.has(rows[at]?.id ?? ''));
  if (by.value !== 'procedure' || lacking.length === 0) return;
  const [first, last] = [Math.min(...lacking), Math.max(...lacking)];
  // Of a filtered or sorted list neighbours may lie far apart: the rest comes with the next scroll.
  const end = Math.min(last + 1, first + 100);
  const key = JSON.stringify([first, end, rows.length, rows[first]]);
  if (asked === key) return;
  asked = key;
  api.postMessage({ kind: 'wanted', from: first, to: end });
}

function choose(id: string | null): void {
  chosen = id;
  remember();
  draw();
}

function remember(): void {
  api.setState({ filter: filter.value, sort: sort.value as Sort, chosen });
}

/** Moves the choice by rows and keeps it in sight. */
function move(rowsDown: number): void {
  const at = order.findIndex((index) => rows[index]?.id === chosen);
  const to = Math.max(0, Math.min(order.length - 1, (at < 0 ? -1 : at) + rowsDown));
  const height = rowHeight();
  if (to * height < list.scrollTop) list.scrollTop = to * height;
  if ((to + 1) * height > list.scrollTop + list.clientHeight) list.scrollTop = (to + 1) * height - list.clientHeight;
  choose(rows[order[to] ?? -1]?.id ?? null);
}

list.addEventListener('keydown', (event) => {
  const page = Math.max(1, Math.floor(list.clientHeight / rowHeight()) - 1);
  const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -order.length, End: order.length };
  const by = moves[event.key];
  if (by !== undefined) move(by);
  else if (event.key === 'Enter' && chosen !== null) api.postMessage({ kind: event.ctrlKey ? 'listing' : 'open', id: chosen });
  else if (event.key === '/') filter.focus();
  else return;
  event.preventDefault();
});
filter.addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown') list.focus();
});
filter.addEventListener('input', () => {
  list.scrollTop = 0;
  remember();
  arrange();
});
sort.addEventListener('change', () => {
  list.scrollTop = 0;
  remember();
  arrange();
});
by.addEventListener('change', () => { api.postMessage({ kind: 'by', by: by.value as By }); });
let waiting = false;
list.addEventListener('scroll', () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
});
new ResizeObserver(() => { draw(); }).observe(document.body);

const state = api.getState() as State | undefined;
if (state) {
  filter.value = state.filter;
  sort.value = state.sort;
  chosen = state.chosen;
}
api.postMessage({ kind: 'ready' });
