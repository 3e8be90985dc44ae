// Writes and reads the tables of a capture (core/accuracy/FORMAT.md): rows of text, in the order of their addresses.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const byAddress = (a, b) => a[0] - b[0] || (a[1] ?? 0) - (b[1] ?? 0);

/** Writes rows; their first `addresses` fields are addresses. */
export function writeTable(folder, name, rows, addresses = 1) {
  const line = (row) => row.map((field, column) => (column < addresses ? field.toString(16) : String(field))).join('\t');
  writeFileSync(join(folder, name), [...rows].toSorted(byAddress).map((row) => `${line(row)}\n`).join(''));
}

/** Reads a table from address to count. @returns {Map<number, number>} */
export function readCounts(folder, name) {
  const rows = readFileSync(join(folder, name), 'utf8').split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(rows.map((line) => line.split('\t')).map(([address, count]) => [parseInt(address, 16), Number(count)]));
}

export const writeJson = (folder, name, value) => writeFileSync(join(folder, name), `${JSON.stringify(value, null, 2)}\n`);
export const readJson = (folder, name) => JSON.parse(readFileSync(join(folder, name), 'utf8'));
