// Makes the inputs of the programs. Each comes from a seeded generator, so its bytes are the same on every machine.

import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { randomFrom, seedOf } from './random.mjs';

const letters = 'etaoinshrdlucmfwypvbgkjqxz';
export const pick = (random, list) => list[Math.floor(random() * list.length)];
/** Draws small numbers often and large ones rarely, like the frequencies of words in a text. */
export const skewed = (random, size) => Math.min(size - 1, Math.floor(size ** random() - 1));

export function words(random, size) {
  const word = () => Array.from({ length: 2 + skewed(random, 12) }, () => letters[skewed(random, 26)]).join('');
  return Array.from({ length: size }, word);
}

/** Returns lines that resemble English: words of skewed frequency, some numbers, some repeated sentences. */
export function text(random, bytes) {
  const dictionary = words(random, 8000);
  const sentences = [];
  const out = [];
  for (let length = 0; length < bytes; ) {
    const fresh = () => Array.from({ length: 4 + skewed(random, 20) }, () =>
      random() < 0.04 ? String(Math.floor(random() * 1e5)) : dictionary[skewed(random, dictionary.length)]).join(' ');
    const sentence = sentences.length > 50 && random() < 0.15 ? pick(random, sentences) : fresh();
    if (sentences.length < 400) sentences.push(sentence);
    out.push(sentence);
    length += sentence.length + 1;
  }
  return `${out.join('\n')}\n`.slice(0, bytes);
}

/** Returns binary data: records of small fields with slowly growing counters, and noise. */
export function records(random, bytes) {
  const out = Buffer.alloc(bytes);
  for (let at = 0, number = 0; at + 32 <= bytes; at += 32, number++) {
    out.writeUInt32LE(number, at);
    out.writeUInt32LE(skewed(random, 1 << 20), at + 4);
    out.writeDoubleLE(Math.round(random() * 1e4) / 100, at + 8);
    for (let byte = 16; byte < 32; byte++) out[at + byte] = random() < 0.4 ? Math.floor(random() * 256) : byte;
  }
  return out;
}

export function xml(random, bytes) {
  const names = words(random, 40);
  const out = ['<?xml version="1.0" encoding="UTF-8"?>\n<top>'];
  const open = [];
  for (let length = 0; length < bytes; ) {
    let piece;
    const way = random();
    if (open.length < 8 && way < 0.35) {
      open.push(pick(random, names));
      const attributes = Array.from({ length: Math.floor(random() * 4) }, (_, i) => ` ${pick(random, names)}${i}="${pick(random, names)}"`);
      piece = `<${open.at(-1)}${attributes.join('')}>`;
    } else if (open.length > 0 && way < 0.65) piece = `</${open.pop()}>\n`;
    else if (way < 0.95) piece = Array.from({ length: 1 + Math.floor(random() * 9) }, () => pick(random, names)).join(' ');
    else piece = pick(random, ['&amp;', '&#233;', '<!-- a remark -->', '<![CDATA[ < & > ]]>', 'é ß 中']);
    out.push(piece);
    length += piece.length;
  }
  return `${out.join('')}${open.toReversed().map((name) => `</${name}>`).join('')}</top>\n`;
}

export function json(random, bytes) {
  const names = words(random, 60);
  const value = (depth) => {
    const way = random();
    if (depth < 5 && way < 0.25) return Array.from({ length: Math.floor(random() * 6) }, () => value(depth + 1));
    if (depth < 5 && way < 0.5) return Object.fromEntries(Array.from({ length: 1 + Math.floor(random() * 6) }, () => [pick(random, names), value(depth + 1)]));
    if (way < 0.75) return Math.round((random() - 0.3) * 1e6) / pick(random, [1, 1, 100, 1e5]);
    return way < 0.8 ? pick(random, [true, false, null]) : Array.from({ length: 1 + skewed(random, 12) }, () => pick(random, names)).join(pick(random, [' ', ' ', '\n', ' "é" ']));
  };
  const out = [];
  for (let length = 0; length < bytes; ) {
    out.push(JSON.stringify(value(0)));
    length += out.at(-1).length + 2;
  }
  return `[${out.join(',\n')}]\n`;
}

const table = (random, rows) =>
  Array.from({ length: rows }, (_, row) =>
    [row, pick(random, ['red', 'green', 'blue', 'grey']), skewed(random, 5000), (random() * 1000).toFixed(3), Math.floor(random() * 100)].join('\t')).join('\n') + '\n';

const numbers = (random, count) => Array.from({ length: count }, () => String((random() - 0.5) * 10 ** Math.floor(random() * 40 - 20))).join('\n') + '\n';

const inputs = {
  'text.txt': (random) => text(random, 4e6),
  'short.txt': (random) => text(random, 6e5),
  'records.bin': (random) => records(random, 4e6),
  'document.xml': (random) => xml(random, 6e6),
  'document.json': (random) => json(random, 6e6),
  'table.tsv': (random) => table(random, 60_000),
  'numbers.txt': (random) => numbers(random, 150_000),
};

/** Makes the files that are missing in the folder. Each file has its own generator, seeded by its name. */
export function makeInputs(folder, files = inputs) {
  mkdirSync(folder, { recursive: true });
  for (const [name, make] of Object.entries(files)) {
    const path = join(folder, name);
    if (!existsSync(path)) writeFileSync(path, make(randomFrom(seedOf(name))));
  }
}
