// Tests the simulated in-order core: its cycles against ones computed by hand, its culprits against ones named beforehand, and
// its captures for consistency.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { architectures, buildProgram, buildSimulator, missingForKernels, simulate } from './inorder.mjs';
import { commented, expectations, kernelsFor, otherExpectations } from './kernels.mjs';

/** Share of the cycles beyond an instruction's base that the named culprit must have. */
const culprit_share_min = 0.9;
/** Tolerance for the misses of the first round. It is less than the one cycle by which a wrong rule would differ. */
const head_error_max_cycles = 0.6;

/** A program of calls, recursion, and jumps through tables and registers, in a few million instructions. */
const interpreter = { name: 'interpreter', file: 'interpreter.c', build: '$CC -o $OUT $HERE/interpreter.c', run: ['20'] };

let work;
let plugin;

const rows = (folder, name) => readFileSync(join(folder, name), 'utf8').split('\n').filter(Boolean).map((line) => line.split('\t'));
const sum = (list) => list.reduce((total, value) => total + value, 0);

async function run(program, arch, options = {}) {
  const { binary } = await buildProgram(program, arch, work);
  const folder = mkdtempSync(join(work, 'capture-'));
  const totals = simulate({ binary, arguments: program.run, arch, plugin, folder, options });
  const stalls = rows(folder, 'stalls.tsv').map(([address, cause, culprit, cycles]) => ({ address: parseInt(address, 16), cause, culprit, cycles: Number(cycles) }));
  const executions = new Map(rows(folder, 'executions.tsv').map(([address, count]) => [parseInt(address, 16), Number(count)]));
  return { binary, folder, totals, stalls, executions };
}

function checkHeads({ file }, arch, { binary, stalls, executions }) {
  for (const { address, says } of commented(file, 'head', binary, arch)) {
    const head = sum(stalls.filter((stall) => stall.address === address).map(({ cycles }) => cycles)) / executions.get(address);
    const close = Math.abs(head - Number(says)) <= head_error_max_cycles;
    assert.ok(close, `${address.toString(16)}: ${head} cycles at the head each time, ${says} computed`);
  }
}

function checkCulprits({ file }, arch, { binary, stalls }) {
  for (const { address, cause, culprit } of expectations(file, binary, arch)) {
    const dynamic = stalls.filter((stall) => stall.address === address && stall.cause !== 'base');
    const named = dynamic.filter((stall) => stall.cause === cause && parseInt(stall.culprit, 16) === culprit);
    const share = sum(named.map(({ cycles }) => cycles)) / sum(dynamic.map(({ cycles }) => cycles));
    assert.ok(share >= culprit_share_min, `${address.toString(16)}: ${cause} by ${culprit.toString(16)} has ${share} of ${JSON.stringify(dynamic)}`);
  }
}

/** Checks the time in a kernel that its comment states, and causes of stalls that this core does not have. */
function checkOthers({ file }, arch, { binary, folder, stalls }) {
  const entered = rows(folder, 'events.tsv').filter(([event]) => event === 'kernel-time');
  for (const { address, cause, word } of otherExpectations(file, binary, arch)) {
    const here = entered.filter(([, , at]) => parseInt(at, 16) === address);
    const count = (list) => sum(list.map(([, , , samples]) => Number(samples)));
    if (word === 'kernel') assert.ok(count(here) >= culprit_share_min * count(entered), `${address.toString(16)}: ${count(here)} of ${count(entered)} samples of the kernel's time`);
    else assert.ok(!stalls.some((stall) => stall.address === address && stall.cause === cause), `${address.toString(16)}: ${cause}`);
  }
}

/** Checks that control enters each instruction as often as it is executed: from the previous one, or by a transfer. */
function checkFlow({ folder, executions, binary }, arch) {
  const text = execFileSync(`${arch}-linux-gnu-objdump`, ['-f', '-d', '--no-show-raw-insn', binary], { encoding: 'utf8', maxBuffer: 2 ** 28 });
  const instructions = [...text.matchAll(/^\s*([0-9a-f]+):\s+(\S+)/gm)].map(([, address, name]) => ({ address: parseInt(address, 16), name }));
  const edges = rows(folder, 'edges.tsv').map(([from, to, count]) => ({ from: parseInt(from, 16), to: parseInt(to, 16), count: Number(count) }));
  const entry = parseInt(text.match(/start address:? 0x([0-9a-f]+)/)[1], 16);
  const leaving = new Set(edges.map(({ from }) => from));
  const entering = Map.groupBy ? Map.groupBy(edges, ({ to }) => to) : edges.reduce((map, edge) => map.set(edge.to, [...(map.get(edge.to) ?? []), edge]), new Map());
  let checked = 0;
  for (let i = 1; i < instructions.length; i++) {
    const [before, { address }] = [instructions[i - 1], instructions[i]];
    if (!executions.get(address) || address === entry || leaving.has(before.address) && /bl|jal/.test(before.name) || /ret|br|jr|svc|ecall/.test(before.name)) continue;
    const through = leaving.has(before.address) ? 0 : (executions.get(before.address) ?? 0);
    assert.equal(through + sum((entering.get(address) ?? []).map(({ count }) => count)), executions.get(address), `into ${address.toString(16)}`);
    checked++;
  }
  assert.ok(checked > 100);
}

for (const arch of architectures) {
  const missing = missingForKernels(arch);
  if (missing.length > 0) {
    console.log(`SKIPPED simulated core (${arch}): not installed: ${missing.join(', ')}`);
    continue;
  }
  describe(`simulated core (${arch})`, () => {
    before(async () => {
      work = mkdtempSync(join(tmpdir(), 'dwell-inorder-'));
      plugin = await buildSimulator(work);
    });
    after(() => rmSync(work, { recursive: true, force: true }));

    for (const kernel of kernelsFor(arch))
      test(`${kernel.name}: culprits and cycles`, async () => {
        const done = await run(kernel, arch);
        checkHeads(kernel, arch, done);
        checkCulprits(kernel, arch, done);
        checkOthers(kernel, arch, done);
      });

    test('every cycle and every instruction is accounted for', async () => {
      const done = await run(interpreter, arch);
      assert.equal(sum(done.stalls.map(({ cycles }) => cycles)), done.totals.cycles);
      assert.equal(sum([...done.executions.values()]), done.totals.events.instructions);
      const expected = done.totals.cycles / done.totals.period;
      assert.ok(Math.abs(done.totals.samples - expected) < 5 * Math.sqrt(expected), `${done.totals.samples} samples, ${expected} expected`);
      checkFlow(done, arch);
    });

    test('without dynamic events only the base remains', async () => {
      const { stalls } = await run(interpreter, arch, { ideal: 'on' });
      assert.deepEqual([...new Set(stalls.map(({ cause }) => cause))], ['base']);
    });
  });
}
