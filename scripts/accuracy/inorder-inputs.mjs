// Makes the inputs of the programs on the simulated core. They are small enough for a few hundred million instructions, and the
// same on every machine.

import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { randomFrom, seedOf } from './random.mjs';

const pick = (random, list) => list[Math.floor(random() * list.length)];
const letters = 'eeeetttaaooiinnsshhrrddlucmfwypvbgk';
const word = (random) => Array.from({ length: 1 + Math.floor(random() * 9) }, () => pick(random, letters)).join('');
const wordsOf = (random, count) => Array.from({ length: count }, () => word(random));

/** Returns lines of words; a few of the words are frequent. */
function text(random, bytes) {
  const dictionary = wordsOf(random, 3000);
  const lines = [];
  for (let length = 0; length < bytes; length += lines.at(-1).length + 1)
    lines.push(Array.from({ length: 3 + Math.floor(random() * 12) }, () => dictionary[Math.floor(3000 * random() ** 3)]).join(' '));
  return `${lines.join('\n')}\n`;
}

function element(random, names, depth) {
  const name = pick(random, names);
  const attributes = Array.from({ length: Math.floor(random() * 3) }, (_, i) => ` ${pick(random, names)}${i}="${random() < 0.4 ? Math.floor(random() * 1000) : word(random)}"`);
  const inside = () => (depth < 7 && random() < 0.6 ? element(random, names, depth + 1) : pick(random, [word(random), `${word(random)} &amp; ${word(random)}`, '<!-- so -->', '&#233;']));
  return `<${name}${attributes.join('')}>${Array.from({ length: Math.floor(random() * 4) }, inside).join('\n')}</${name}>`;
}

function xml(random, bytes) {
  const names = wordsOf(random, 30).map((name) => `n${name}`);
  const out = [];
  for (let length = 0; length < bytes; length += out.at(-1).length) out.push(element(random, names, 0));
  return `<?xml version="1.0"?>\n<top>${out.join('\n')}</top>\n`;
}

function value(random, names, depth) {
  const way = random();
  if (depth < 4 && way < 0.25) return Array.from({ length: Math.floor(random() * 6) }, () => value(random, names, depth + 1));
  if (depth < 4 && way < 0.55) return Object.fromEntries(Array.from({ length: 1 + Math.floor(random() * 5) }, () => [pick(random, names), value(random, names, depth + 1)]));
  if (way < 0.75) return Math.round((random() - 0.3) * 1e6) / pick(random, [1, 1, 100, 1e4]);
  return way < 0.8 ? pick(random, [true, false, null]) : wordsOf(random, 1 + Math.floor(random() * 5)).join(pick(random, [' ', '\n', ' "é" ']));
}

function json(random, bytes) {
  const names = wordsOf(random, 40);
  const out = [];
  for (let length = 0; length < bytes; length += out.at(-1).length) out.push(JSON.stringify(value(random, names, 0)));
  return `[${out.join(',\n')}]\n`;
}

function markdown(random, bytes) {
  const sentence = () => wordsOf(random, 4 + Math.floor(random() * 10)).join(' ');
  const spans = [() => `*${word(random)}*`, () => `**${word(random)} ${word(random)}**`, () => `\`${word(random)}\``, () => `[${word(random)}](http://${word(random)}.example/ "${word(random)}")`, sentence, sentence];
  const paragraph = () => Array.from({ length: 2 + Math.floor(random() * 6) }, () => pick(random, spans)()).join(' ');
  const blocks = [
    () => `${'#'.repeat(1 + Math.floor(random() * 4))} ${sentence()}`,
    paragraph, paragraph, paragraph,
    () => Array.from({ length: 2 + Math.floor(random() * 4) }, () => `- ${paragraph()}\n  - ${sentence()}`).join('\n'),
    () => `> ${paragraph()}\n> ${sentence()}`,
    () => `    ${sentence()}\n    ${sentence()}`,
    () => `\`\`\`c\n${sentence()}\n\`\`\``,
    () => `<div>${sentence()}</div>`,
  ];
  const out = [];
  for (let length = 0; length < bytes; length += out.at(-1).length + 2) out.push(pick(random, blocks)());
  return `${out.join('\n\n')}\n`;
}

/** Returns random clauses of three literals. Their number per variable makes the formula hard. */
function formula(random, variables) {
  const literal = () => (random() < 0.5 ? -1 : 1) * (1 + Math.floor(random() * variables));
  const clauses = Array.from({ length: Math.floor(variables * 4.2) }, () => `${literal()} ${literal()} ${literal()} 0`);
  return `p cnf ${variables} ${clauses.length}\n${clauses.join('\n')}\n`;
}

const inputs = {
  'text.txt': (random) => text(random, 600_000),
  'document.xml': (random) => xml(random, 2_000_000),
  'small.xml': (random) => xml(random, 900_000),
  'small.json': (random) => json(random, 400_000),
  'document.md': (random) => markdown(random, 500_000),
  'formula.cnf': (random) => formula(random, 188),
};

/** Makes the inputs that are missing in the folder. */
export function makeInputs(folder) {
  mkdirSync(folder, { recursive: true });
  for (const [name, make] of Object.entries(inputs)) {
    const path = join(folder, name);
    if (!existsSync(path)) writeFileSync(path, make(randomFrom(seedOf(name))));
  }
}
