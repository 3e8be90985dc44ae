// Tests the judge of the absolute table with answers whose score was computed by hand.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { procedureOf } from './absolute/answers.mjs';
import { bestFactor, impossible, score } from './absolute/score.mjs';
import { claimsOf, meanOf, objectOf, tableOf } from './absolute/table.mjs';
import { executionsAt, lineThrough } from './absolute/truth.mjs';
import { readObjects } from './callgrind.mjs';

/**
 * A listing in the form of `dwell annotate --json --raw`: one block for each [address, text, samples, executions, min,
 * max, relative].
 */
const listing = (name, kind, rows) => ({
  image: { path: '/bin/program' },
  procedure: { name, demangled: name },
  ...(kind && { scale: { kind, evidence: ['a word that counts'] } }),
  blocks: rows.map(([address, , , executions]) => ({ address, executions, cpi: executions && 1, ...(kind && { cpi_min: executions && 0.9 }) })),
  instructions: rows.map(([address, text, samples, executions, min, max, relative]) => ({
    address, text, samples: samples ? { 'cpu-clock': samples } : {}, executions,
    ...(kind && { executions_min: min, executions_max: max, executions_relative: relative }),
  })),
});

const procedure = (name, kind, rows, more = {}) => {
  const samples = rows.reduce((sum, row) => sum + row[2], 0);
  return { ...procedureOf(listing(name, kind, rows), 'cpu-clock'), samples, own: samples, cpi: null, cpi_min: null, ...more };
};

const answer = (procedures, more = {}) => ({ samples: procedures.reduce((sum, { own }) => sum + own, 0), period_cycles: 4e6, width: 8, knows_scale: true, procedures, ...more });
const truths = { 0x10: 1000, 0x20: 1000, 0x30: 1000, 0x40: 1000, 0x50: 400 };
const truthAt = (image, address) => (image === '/bin/program' ? (truths[address] ?? null) : null);
const rounded = (value) => JSON.parse(JSON.stringify(value, (_, each) => (typeof each === 'number' ? Number(each.toFixed(3)) : each)));

const claims = procedure('claims', 'absolute', [
  [0x10, 'mov eax, 1', 50, 1040, 950, 1150, 520], // within 5 %, covered, narrow
  [0x20, 'mov eax, 1', 30, 1100, 1050, 1200, 550], // exactly 10 %; its interval is narrow and wrong
  [0x30, 'mov eax, 1', 20, 1300, 900, 1700, 650], // off by 30 %, covered, wide
]);
const relates = procedure('relates', 'procedure', [
  [0x40, 'mov eax, 1', 60, null, null, null, 5],
  [0x50, 'mov eax, 1', 40, null, null, null, 2],
]);

test('shares of claims, intervals and factors match those computed by hand', () => {
  const { samples, truth, claimed, absolute, covered, narrow, program, procedure: each, impossible: never, unfounded } = score(answer([claims, relates]), truthAt);
  assert.deepEqual(rounded({ samples, truth, claimed, absolute, covered, narrow, never, unfounded }), {
    samples: 200, truth: 1, claimed: 0.5, absolute: [0.5, 0.8, 0.8], covered: 0.7, narrow: [0.8, 0.8], never: [], unfounded: 0,
  });
  // A factor of 1.83 to 1.91 brings the first two within 5 %; a procedure with a scale of its own is wrong.
  assert.deepEqual(rounded(program), [0.4, 0.4, 0.4]);
  assert.deepEqual(rounded(each), [0.9, 0.9, 0.9]);
});

test('procedures that share a factor are right up to one scale per program', () => {
  const both = [['first', 0x10, 100], ['second', 0x50, 40]].map(([name, address, relative]) => procedure(name, 'program', [[address, 'nop', 10, null, null, null, relative]]));
  assert.deepEqual(score(answer(both), truthAt).program, [1, 1, 1]);
});

test('without the field `scale` nothing is claimed, and executions are relative', () => {
  const today = procedure('today', undefined, [[0x10, 'nop', 10, 2000], [0x50, 'nop', 10, 800]]);
  const { claimed, absolute, program, unclaimed, unfounded } = score(answer([today], { knows_scale: false }), truthAt);
  assert.deepEqual({ claimed, absolute, program, unclaimed, unfounded }, { claimed: 0, absolute: [null, null, null], program: [1, 1, 1], unclaimed: [0, 0, 0], unfounded: 0 });
});

test('instructions without a truth and those of other programs are not judged', () => {
  const stranger = procedure('stranger', 'absolute', [[0x99, 'nop', 30, 5, 4, 6, 5]]);
  const shared = procedure('shared', 'absolute', [[0x10, 'nop', 30, 5, 4, 6, 5]], { own: 20 });
  const { truth, claimed, absolute } = score(answer([stranger, shared]), truthAt);
  assert.deepEqual({ truth, claimed, absolute }, { truth: 0, claimed: 1, absolute: [null, null, null] });
});

test('a repeated instruction has the truth of its block', () => {
  const copied = procedureOf({ ...listing('copied', 'absolute', [[0x10, 'mov ecx, 9', 0, 1000, 900, 1100, 1], [0x11, 'rep movsb', 10, 1000, 900, 1100, 1]]), blocks: [{ address: 0x10, executions: 1000, cpi: 1 }] }, 'cpu-clock');
  const each = { ...copied, samples: 10, own: 10, cpi: null, cpi_min: null };
  assert.deepEqual(score(answer([each]), (image, address) => ({ 0x10: 1000, 0x11: 9000 })[address]).absolute, [1, 1, 1]);
});

test('impossible figures are found', () => {
  const rows = [[0x10, 'cmp eax, 1', 10, 4e8, 4e8, 4e8, 1], [0x12, 'jne 0x10', 0, 4e8, 4e8, 4e8, 1]];
  const block = (cpi, cpi_min = cpi) => ({ ...procedureOf({ ...listing('loop', 'absolute', rows), blocks: [{ address: 0x10, executions: 4e8, cpi, cpi_min }] }, 'cpu-clock'), samples: 10, own: 10, cpi: null, cpi_min: null });
  const check = (each) => impossible(answer([each])).map((line) => line.replace(/^loop: /, ''));
  // A fused pair takes one place at retirement, so 1/16 cycle for each of the two is possible, and so are 4e8 of them
  // in 5e7 cycles.
  assert.deepEqual(check(block(0.0625)), []);
  assert.deepEqual(check(block(0.06)), ['CPI of the block 10 0.0600 < 0.0625', 'least CPI of the block 10 0.0600 < 0.0625']);
  assert.deepEqual(check(block(0.07, 0.05)), ['least CPI of the block 10 0.0500 < 0.0625']);
  assert.deepEqual(check({ ...block(1), cpi: 0.01, cpi_min: 0 }), ['CPI in top 0.0100 < 0.0625', 'least CPI in top 0.0000 < 0.0625']);
  // The limit is one sample and three standard deviations of it: 7 periods of 4e6 cycles.
  assert.deepEqual(check({ ...block(1), samples: 1 }), ['5.00e+7 cycles at least, 2.80e+7 sampled']);
  // Each of two procedures may have had more time than it was sampled in, but hardly both.
  const short = { ...block(1), samples: 4 };
  assert.deepEqual(check(short), []);
  assert.deepEqual(impossible(answer([short, short])), ['all procedures: 1.00e+8 cycles at least, 7.79e+7 sampled']);
});

test('numbers without a scale are counted', () => {
  const bare = procedure('bare', 'program', [[0x10, 'nop', 10, 900, 800, 1000, 1]]);
  assert.equal(score(answer([bare, relates]), truthAt).unfounded, 1);
});

test('a kernel is judged by its hot loop', () => {
  const { hot } = score(answer([claims]), truthAt, { hot: 'claims' });
  assert.deepEqual(hot, { kind: 'absolute', ratio: 1.04, min: 0.95, max: 1.15, relative: 0.52 });
});

test('the best factor brings most within 10 %, then most within 5 %', () => {
  const point = (estimate, truth, weight = 1) => ({ estimate, truth, weight });
  assert.equal(bestFactor([]), 1);
  assert.ok(Math.abs(bestFactor([point(1, 3), point(2, 6), point(1, 300, 0.5)]) - 3) < 0.01);
});

test('executions are linear in passes, or have no truth', () => {
  assert.deepEqual(lineThrough(15, 25, 45, 1), { fixed: 5, each: 10 });
  assert.deepEqual(lineThrough(7, 7, 7, 2), { fixed: 7, each: 0 });
  assert.ok(Number.isNaN(lineThrough(10, 20, 80, 1).each));
  assert.ok(Number.isNaN(lineThrough(30, 20, 10, 1).each));
  const lines = new Map([[1, { fixed: 5, each: 10 }], [2, { fixed: 0, each: NaN }]]);
  assert.deepEqual([1, 2, 3].map((address) => executionsAt(lines, address, { passes: 4 })), [45, null, null]);
  assert.equal(executionsAt(lines, 1, { passes: 4, share: 0.5 }), 20);
});

test('callgrind counts each object separately', () => {
  const dump = ['positions: instr', 'events: Ir', 'ob=(1) /bin/program', 'fn=(1) main', '0x10 3', 'cob=(2) /lib/library.so', 'cfn=(2) f', 'calls=3 0x10', '0x14 30', '+4 3', '', 'ob=(2)', 'fn=(2)', '0x10 30', 'ob=(3) ???', '0x99 7'];
  const counts = [...readObjects(dump)].map(([path, { executions }]) => [path, [...executions]]);
  assert.deepEqual(counts, [['/bin/program', [[0x10, 3], [0x18, 3]]], ['/lib/library.so', [[0x10, 30]]]]);
});

test('the table and the object have the same content', () => {
  const result = { way: 'own-2', role: 'judge', name: 'program', language: 'c', score: score(answer([claims, relates]), truthAt) };
  const lines = tableOf([result]).split('\n').map((line) => line.replace(/ +/g, ' '));
  assert.equal(lines[2], 'program 200 100 50 50 80 80 70 80 80 40 40 40 90 90 90 25 40 40 0 0');
  assert.equal(lines[3], lines[2].replace('program', 'mean'));
  assert.equal(lines[4], 'all claims 50 80 80 70 80 80');
  const means = objectOf([result]).means['own-2/judge'];
  assert.deepEqual(means, meanOf([result.score]));
  const little = { ...result.score, claimed_truth: result.score.claimed_truth / 4, covered: 0.2 };
  assert.ok(Math.abs(claimsOf([result.score, little]).covered - 0.6) < 1e-9);
  assert.deepEqual([means.claimed, means.claiming], [0.5, 1]);
});
