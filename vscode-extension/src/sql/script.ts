/// <reference lib="dom" />
// Queries in their page: sends what is typed, and shows the rows that come. Texts become text nodes, never markup.
import { summaryOf, type FromPage, type ToPage } from './model';

declare function acquireVsCodeApi(): { postMessage(message: FromPage): void };

const api = acquireVsCodeApi();

function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no #${id} in the page`);
  return found;
}

const form = element('form') as HTMLFormElement;
const query = element('query') as HTMLTextAreaElement;
const [run, cancel] = [element('run') as HTMLButtonElement, element('cancel') as HTMLButtonElement];

addEventListener('message', ({ data }: MessageEvent<ToPage>) => {
  if (data.kind === 'query') {
    query.value = data.query;
    form.requestSubmit();
    return;
  }
  wait(false);
  if (data.kind === 'rows') showRows(data);
  else element('failure').textContent = data.text;
});

function showRows(result: Extract<ToPage, { kind: 'rows' }>): void {
  const { columns, rows, notes } = result;
  element('summary').textContent = summaryOf(result);
  const isNumber = columns.map((_, at) => rows.some((row) => typeof row[at] === 'number'));
  const cell = (tag: 'th' | 'td', text: string, at: number) => {
    const made = document.createElement(tag);
    made.textContent = text;
    made.classList.toggle('number', isNumber[at] === true);
    return made;
  };
  element('head').replaceChildren(line(columns.map(({ name, type }, at) => Object.assign(cell('th', name, at), { title: type }))));
  element('rows').replaceChildren(...rows.map((row) => line(row.map((value, at) => cell('td', value === null ? '' : String(value), at)))));
  element('notes').replaceChildren(...notes.map((note) => Object.assign(document.createElement('li'), { textContent: note })));
}

function line(cells: HTMLElement[]): HTMLElement {
  const row = document.createElement('tr');
  row.append(...cells);
  return row;
}

/** Clears what was shown, and shows whether an answer is awaited. */
function wait(waits: boolean): void {
  run.disabled = waits;
  cancel.disabled = !waits;
  element('summary').textContent = waits ? 'Running…' : '';
  for (const id of ['failure', 'notes', 'head', 'rows']) element(id).replaceChildren();
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  wait(true);
  api.postMessage({ kind: 'run', query: query.value });
});
query.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (!run.disabled) form.requestSubmit();
});
cancel.addEventListener('click', () => { api.postMessage({ kind: 'cancel' }); });
query.focus();
if ('runs' in form.dataset) form.requestSubmit();
