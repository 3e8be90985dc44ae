'use strict';
// The page is whole without this: it only sorts and filters the table of procedures, and opens what a link leads to.
const table = document.querySelector('table.procs');
const body = table.tBodies[0];
const heads = [...table.tHead.rows[0].cells];
const value = (row, column) => {
  const cell = row.cells[column];
  return heads[column].dataset.sort === 'number' ? Number(cell.dataset.v) : cell.textContent.toLowerCase();
};

function sort(column) {
  const head = heads[column];
  const fresh = head.dataset.sort === 'number' ? 'descending' : 'ascending';
  const other = fresh === 'descending' ? 'ascending' : 'descending';
  const order = head.getAttribute('aria-sort') === fresh ? other : fresh;
  heads.forEach((h) => h.removeAttribute('aria-sort'));
  head.setAttribute('aria-sort', order);
  const sign = order === 'ascending' ? 1 : -1;
  const rows = [...body.rows].map((row) => [value(row, column), row]);
  rows.sort(([a], [b]) => sign * (a < b ? -1 : a > b ? 1 : 0));
  body.append(...rows.map(([, row]) => row));
}

heads.forEach((head, column) => {
  head.tabIndex = 0;
  head.addEventListener('click', () => sort(column));
  head.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    sort(column);
  });
});

const filter = document.getElementById('filter');
filter.hidden = false;
filter.addEventListener('input', () => {
  const wanted = filter.value.toLowerCase();
  for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});

function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  const closed = target?.closest('details:not([open])');
  if (!closed) return;
  closed.open = true;
  target.scrollIntoView();
}
addEventListener('hashchange', reveal);
reveal();
