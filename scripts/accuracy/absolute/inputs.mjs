// Makes the inputs for one pass of each program of the absolute table: about 50 ms of work, so that callgrind counts a pass in
// seconds. Each input comes from a seeded generator, so its bytes are the same on every machine.

import { json, makeInputs, pick, records, skewed, text, words, xml } from '../inputs.mjs';

/** Returns audio: stereo, 44.1 kHz, 16 bits, without a header; notes with overtones and some noise. */
function sound(random, seconds) {
  const rate = 44_100;
  const frames = Math.floor(rate * seconds);
  const out = Buffer.alloc(frames * 4);
  let pitch = 220;
  for (let frame = 0; frame < frames; frame++) {
    if (frame % 5000 === 0) pitch = 110 * 2 ** (Math.floor(random() * 36) / 12);
    const phase = (2 * Math.PI * pitch * frame) / rate;
    const tone = Math.sin(phase) + 0.5 * Math.sin(2 * phase) + 0.3 * Math.sin(3 * phase);
    for (const [side, share] of [[0, 0.9], [2, 0.6]]) {
      out.writeInt16LE(Math.round(9000 * share * tone + 800 * (random() - 0.5)), frame * 4 + side);
    }
  }
  return out;
}

/** Returns a picture in PPM format: gradients, discs and noise. */
function picture(random, side) {
  const header = Buffer.from(`P6\n${side} ${side}\n255\n`);
  const discs = Array.from({ length: 12 }, () => [random() * side, random() * side, random() * side * 0.2, Math.floor(random() * 256)]);
  const pixels = Buffer.alloc(side * side * 3);
  for (let y = 0, at = 0; y < side; y++) {
    for (let x = 0; x < side; x++, at += 3) {
      const disc = discs.find(([cx, cy, radius]) => (x - cx) ** 2 + (y - cy) ** 2 < radius ** 2);
      const noise = random() < 0.2 ? Math.floor(random() * 24) : 0;
      pixels[at] = disc ? disc[3] : (x * 255) / side;
      pixels[at + 1] = (disc ? 255 - disc[3] : (y * 200) / side) + noise;
      pixels[at + 2] = ((x + y) * 120) / side;
    }
  }
  return Buffer.concat([header, pixels]);
}

function graph(random, nodes) {
  const edges = Array.from({ length: nodes * 2 }, () => `  n${Math.floor(random() * nodes)} -> n${Math.floor(random() * nodes)};`);
  return `digraph g {\n${edges.join('\n')}\n}\n`;
}

function html(random, bytes) {
  const dictionary = words(random, 800);
  const phrase = () => Array.from({ length: 3 + skewed(random, 12) }, () => pick(random, dictionary)).join(' ');
  const out = [];
  for (let length = 0; length < bytes; ) {
    out.push(pick(random, [() => `<h2>${phrase()}</h2>`, () => `<p class=${pick(random, dictionary)}>${phrase()} <b>${phrase()}</i> &amp; ${phrase()}`,
      () => `<ul><li>${phrase()}<li>${phrase()}</ul>`, () => `<table><tr><td>${phrase()}<td>${phrase()}</table>`])());
    length += out.at(-1).length + 1;
  }
  return `<html><head><title>${phrase()}</title></head><body>\n${out.join('\n')}\n</body></html>\n`;
}

/** Returns compilable C: functions with loops, switches and arithmetic. */
function code(random, functions) {
  const one = (number) => {
    const statements = Array.from({ length: 8 }, () => pick(random, [
      () => `  for (int i = 0; i < n; i++) t[i & 63] += s * ${Math.floor(random() * 90)} + i;`,
      () => `  if (s > ${Math.floor(random() * 900)}) s -= t[${Math.floor(random() * 64)}]; else s ^= n << ${Math.floor(random() * 8)};`,
      () => `  switch (s & 3) { case 0: s += n; break; case 1: s -= ${Math.floor(random() * 70)}; break; case 2: s *= 3; default: t[n & 63] = s; }`,
      () => `  while (s > n * ${1 + Math.floor(random() * 9)}) s = s / 2 - t[s & 63];`,
    ])());
    const call = number > 0 ? `f${Math.floor(random() * number)}(n - 1, s)` : '0';
    return `static int f${number}(int n, int s) {\n  static int t[64];\n${statements.join('\n')}\n  return n > 0 ? s + ${call} : s;\n}\n`;
  };
  return `${Array.from({ length: functions }, (_, number) => one(number)).join('\n')}\nint entry(int n) { return f${functions - 1}(n, 1); }\n`;
}

/** Returns a random formula over bit vectors, and a pigeonhole problem. */
function formula(random, variables) {
  const name = () => `x${Math.floor(random() * variables)}`;
  const term = (depth) => (depth === 0 ? pick(random, [name(), name(), `#x${Math.floor(random() * 256).toString(16).padStart(2, '0')}`]) : `(${pick(random, ['bvadd', 'bvxor', 'bvand', 'bvor', 'bvmul'])} ${term(depth - 1)} ${term(depth - 1)})`);
  const declared = Array.from({ length: variables }, (_, i) => `(declare-const x${i} (_ BitVec 8))`);
  const asserted = Array.from({ length: variables }, () => `(assert (${pick(random, ['bvult', 'bvule', 'bvsle'])} ${term(2)} ${term(1)}))`);
  return `(push)\n${declared.join('\n')}\n${asserted.join('\n')}\n(check-sat)\n(pop)\n`;
}

/** Returns JSON: one array of objects with numbers, names and lists. */
function objects(random, count) {
  const names = words(random, 200);
  const one = (id) => ({ id, name: `${pick(random, names)} n${id}`, values: Array.from({ length: 1 + skewed(random, 20) }, () => Math.floor(random() * 1000)), nested: { kind: pick(random, names), score: random() } });
  return `${JSON.stringify(Array.from({ length: count }, (_, id) => one(id)))}\n`;
}

const files = {
  'page.txt': (random) => text(random, 60e3),
  'chapter.txt': (random) => text(random, 250e3),
  'book.txt': (random) => text(random, 1.5e6),
  'records-small.bin': (random) => records(random, 300e3),
  'page.xml': (random) => xml(random, 700e3),
  'page.html': (random) => html(random, 150e3),
  'page.json': (random) => json(random, 200e3),
  'objects.json': (random) => objects(random, 1500),
  'sound.raw': (random) => sound(random, 5),
  'picture.ppm': (random) => picture(random, 160),
  'graph.dot': (random) => graph(random, 40),
  'code.c': (random) => code(random, 40),
  'formula.smt2': (random) => formula(random, 24),
};

/** Makes the inputs that are missing in the folder. */
export const makePassInputs = (folder) => makeInputs(folder, files);
