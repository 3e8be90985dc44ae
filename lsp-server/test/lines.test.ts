/** Lines traced through differences and edits. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tracking, type TrackedDocument } from '../src/documents';
import { lineDifference, splitLines } from '../src/lineMap';

/** A small generator, so that a failure can be repeated: its seed is in the message. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

test('a difference pairs as many equal lines as possible, in order', () => {
  const check = (before: string, after: string, expected: number[]): void => {
    assert.deepEqual(lineDifference(before.split(''), after.split('')), expected, `${before} → ${after}`);
  };
  check('', '', []);
  check('abc', 'abc', [0, 1, 2]);
  check('abc', '', []);
  check('', 'abc', [-1, -1, -1]);
  check('abc', 'axbc', [0, -1, 1, 2]);
  check('abc', 'ac', [0, 2]);
  check('abc', 'xbz', [-1, 1, -1]);
  check('abcdef', 'bcxef', [1, 2, -1, 4, 5]);
  for (let seed = 1; seed <= 300; seed++) {
    const random = randomFrom(seed);
    const letters = (): string[] => Array.from({ length: random(12) }, () => 'abcd'.charAt(random(4)));
    const before = letters();
    const after = letters();
    const origins = lineDifference(before, after);
    const pairs = origins.flatMap((from, line) => (from < 0 ? [] : [{ from, line }]));
    assert.ok(pairs.every(({ from, line }) => before[from] === after[line]), `seed ${seed}`);
    assert.ok(pairs.every(({ from }, i) => i === 0 || from > (pairs[i - 1]?.from ?? -1)), `seed ${seed}`);
    assert.equal(pairs.length, longestCommon(before, after), `seed ${seed}: ${before.join('')} → ${after.join('')}`);
  }
});

/** The textbook's table. */
function longestCommon(a: readonly string[], b: readonly string[]): number {
  let row = new Array<number>(b.length + 1).fill(0);
  for (const x of a) {
    const next = [0];
    b.forEach((y, j) => next.push(x === y ? (row[j] ?? 0) + 1 : Math.max(row[j + 1] ?? 0, next[j] ?? 0)));
    row = next;
  }
  return row[b.length] ?? 0;
}

test('the comparison of two unrelated texts ends early', () => {
  const many = (letter: string): string[] => Array.from({ length: 20_000 }, (_, line) => `${letter}${line}`);
  const start = performance.now();
  assert.ok(lineDifference(many('a'), many('b')).every((from) => from === -1));
  assert.ok(performance.now() - start < 1000);
});

function edit(document: TrackedDocument, start: [number, number], end: [number, number], text: string): void {
  const range = { start: { line: start[0], character: start[1] }, end: { line: end[0], character: end[1] } };
  tracking.update(document, [{ range, text }], document.version + 1);
}

test('a copy of a line pasted above it does not take its number', () => {
  const text = 'a\nhot\nb\n';
  const document = tracking.create('file:///x', 'c', 1, text);
  edit(document, [1, 0], [1, 0], 'hot\n');
  assert.deepEqual([...document.placesOf(text).same], [[0, 0], [1, 1], [2, 3], [3, 4]]);
});

test('a split line loses its number, and gets it back when joined', () => {
  const text = 'a\nfoo(bar);\nb\n';
  const document = tracking.create('file:///x', 'c', 1, text);
  edit(document, [1, 4], [1, 4], '\n');
  assert.equal(document.placesOf(text).same.has(1), false);
  assert.equal(document.placesOf(text).same.get(2), 3);
  edit(document, [1, 4], [2, 0], '');
  assert.equal(document.placesOf(text).same.get(2), 2);
});

test('a line that is cut and restored, or reverted with its neighbour, gets its number back', () => {
  const text = 'a\nhot\nb\nhot\n';
  const document = tracking.create('file:///x', 'c', 1, text);
  edit(document, [1, 0], [2, 0], '');
  assert.equal(document.placesOf(text).same.has(1), false);
  edit(document, [1, 0], [1, 0], 'hot\n');
  assert.deepEqual([...document.placesOf(text).same], [[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]]);
  edit(document, [1, 3], [1, 3], ' edited');
  edit(document, [1, 0], [2, 0], 'hot\n');
  assert.equal(document.placesOf(text).same.get(1), 1);
});

test('a replaced text and one that differs from the disk are compared', () => {
  const text = 'a\nb\nc\nd';
  const document = tracking.create('file:///x', 'c', 1, text);
  tracking.update(document, [{ text: 'new\na\nb\n  d' }], 2);
  assert.deepEqual([...document.placesOf(text).same], [[0, 1], [1, 2]]);
  assert.deepEqual([...document.placesOf('b\nc\n  d').same], [[0, 2], [2, 3]]);
  document.saved();
  assert.deepEqual([...document.placesOf('new\na\nb\n  d').same], [[0, 0], [1, 1], [2, 2], [3, 3]]);
});

test('after any edits, a line with a number still has its text', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const random = randomFrom(seed);
    const ending = random(2) === 0 ? '\n' : '\r\n';
    const text = Array.from({ length: 1 + random(12) }, (_, line) => `line ${line}`).join(ending);
    const document = tracking.create('file:///x', 'c', 1, text);
    for (let edits = random(8); edits > 0; edits--) {
      const first = random(document.lineCount);
      const last = Math.min(document.lineCount - 1, first + random(3));
      const from = random(8);
      edit(document, [first, from], [last, first === last ? from + random(4) : random(8)], ['', 'x', ending, `a${ending}b${ending}`][random(4)] ?? '');
    }
    const disk = splitLines(text);
    const places = [...document.placesOf(text).same];
    for (const [from, line] of places) assert.equal(document.lineText(line).trim(), disk[from]?.trim(), `seed ${seed}`);
    assert.equal(new Set(places.map(([, line]) => line)).size, places.length, `seed ${seed}`);
  }
});
