// Runs llvm-mca on the hot blocks of a capture: cycles of one iteration in the steady state, as a simple estimator for
// comparison.
//
// Enters: a capture's program, samples, truth and machine. Leaves: `mca.tsv` beside them. The truth is only used to find where
// blocks begin. `node scripts/accuracy/mca.mjs CAPTURE…` does this for captures from elsewhere.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Stop } from '../step.mjs';
import { disassemble } from './disassembly.mjs';
import { readCounts, readJson, writeTable } from './tables.mjs';

/** The hottest blocks are measured, up to this share of the samples. */
const share_of_samples = 0.995;
/** Number of iterations after which the pipeline of a block is full, and number of iterations until the end of measuring. */
const turns = [100, 300];

/** llvm-mca's names for our machine models. Other models use the nearest core. */
const x86 = (cpu) => ['-mtriple=x86_64-linux-gnu', `-mcpu=${cpu}`];
const cores = {
  'amd-zen2': x86('znver2'),
  'amd-zen3': x86('znver3'),
  'amd-zen4': x86('znver4'),
  'intel-skylake': x86('skylake'),
  'intel-golden-cove': x86('alderlake'),
  'generic-x86-64': x86('x86-64-v3'),
  aarch64: ['-mtriple=aarch64-linux-gnu', '-mcpu=cortex-a53'],
  riscv64: ['-mtriple=riscv64-linux-gnu', '-mcpu=sifive-u74'],
};

/** e_machine of an ELF file, which identifies simulated cores. */
function coreOf(machine, program) {
  const named = { 62: 'generic-x86-64', 183: 'aarch64', 243: 'riscv64' };
  return cores[machine] ?? cores[named[readFileSync(program).readUInt16LE(18)]];
}

/**
 * Returns straight-line code: from a place that control enters to a place that it may leave.
 * @returns {import('./disassembly.mjs').Instruction[][]}
 */
function blocks(instructions, executions, entered) {
  const found = [];
  let block = null;
  for (const instruction of instructions.values()) {
    const goesOn = block?.at(-1).next === instruction.address && block.at(-1).kind === 'plain' && !entered.has(instruction.address);
    if (!executions.has(instruction.address)) block = null;
    else if (goesOn) block.push(instruction);
    else found.push((block = [instruction]));
  }
  return found;
}

/** Returns the blocks with the most samples, up to the required share. */
function hottest(all, samples) {
  const counted = all.map((block) => ({ block, count: block.reduce((sum, { address }) => sum + (samples.get(address) ?? 0), 0) }));
  const enough = counted.reduce((sum, { count }) => sum + count, 0) * share_of_samples;
  let seen = 0;
  const wanted = [];
  for (const { block, count } of counted.toSorted((a, b) => b.count - a.count)) {
    if (seen >= enough) break;
    seen += count;
    wanted.push(block);
  }
  return wanted;
}

/**
 * Rewrites instructions for an assembler. The target of a branch or an address does not matter, but may be too far to
 * encode.
 */
const assembled = ({ text }) => text.replace(/0x[0-9a-f]+$/, 'elsewhere');

/**
 * Returns the cycles of this many iterations of each block, by its first address. Instructions that llvm-mca does not know
 * count as free.
 */
function totalCycles(regions, options, iterations) {
  const text = regions.map((block) => {
    const name = `b${block[0].address.toString(16)}`;
    return [`# LLVM-MCA-BEGIN ${name}`, ...block.map(assembled), `# LLVM-MCA-END`, ''].join('\n');
  }).join('\n');
  const command = [...options, '-json', `-iterations=${iterations}`, '-skip-unsupported-instructions=any'];
  const { status, stdout, stderr, error } = spawnSync('llvm-mca-19', command, { input: text, encoding: 'utf8', maxBuffer: 2 ** 30 });
  if (status !== 0) throw new Stop(`llvm-mca-19: ${error?.message ?? stderr.trim().split('\n').slice(0, 3).join('; ')}`);
  const regionsOut = JSON.parse(stdout).CodeRegions;
  return new Map(regionsOut.map(({ Name, SummaryView }) => [parseInt(Name.slice(1), 16), SummaryView.TotalCycles]));
}

/** Writes `mca.tsv`: first address of the block, instructions, cycles. @returns {number} blocks written */
export function measureBlocks(folder) {
  const program = join(folder, 'program');
  const core = coreOf(readJson(folder, 'meta.json').machine, program);
  const executions = readCounts(folder, 'executions.tsv');
  const edges = readFileSync(join(folder, 'edges.tsv'), 'utf8').split('\n').filter((line) => line && !line.startsWith('#'));
  const entered = new Set(edges.map((line) => parseInt(line.split('\t')[1], 16)));
  const wanted = hottest(blocks(disassemble(program), executions, entered), readCounts(folder, 'samples.tsv'));
  const [early, late] = turns.map((count) => totalCycles(wanted, core, count));
  const rows = wanted.filter(([{ address }]) => early.has(address) && late.has(address)).map((block) => {
    const [{ address }] = block;
    return [address, block.length, ((late.get(address) - early.get(address)) / (turns[1] - turns[0])).toFixed(3)];
  });
  writeTable(folder, 'mca.tsv', rows);
  return rows.length;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  for (const folder of process.argv.slice(2)) {
    if (!existsSync(join(folder, 'program'))) throw new Stop(`${folder}: not a capture`);
    console.log(`${folder}: ${measureBlocks(folder)} blocks`);
  }
}
