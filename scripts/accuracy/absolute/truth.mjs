// Determines with callgrind how often each instruction of a program is executed, for any number of passes.
//
// Enters: a row of `programs.mjs`. Leaves: two numbers for each object (program or library) and address: `fixed`, the executions
// outside of passes, and `each`, the executions in each pass. So executions = fixed + each × passes. callgrind counts runs with
// one, two and four times a number of passes. If the increase per pass differs between them by more than `linear_max`, the
// instruction has no truth. Never here: samples.

import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, readSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { Stop } from '../../step.mjs';
import { readObjects } from '../callgrind.mjs';

/** Allowed relative difference between the work of the first passes and of later ones. */
const linear_max = 0.02;
/**
 * Least native time of the passes that are counted together. With less, noise of the first pass dominates; with more,
 * callgrind takes minutes.
 */
const counted_ns_min = 40e6;
const passes_max = 4096;

/** @typedef {{ fixed: number, each: number }} Line executions = fixed + each × passes; `each` NaN: not linear */
/** @typedef {{ startup_ns: number, pass_ns: number, unit: number, objects: Map<string, Map<number, Line>> }} Truth */

/** Reads a file line by line, because it may be larger than the largest string. */
function* linesOf(path) {
  const file = openSync(path, 'r');
  const decoder = new StringDecoder('latin1');
  const buffer = Buffer.alloc(1 << 22);
  let rest = '';
  for (let read = readSync(file, buffer); read > 0; read = readSync(file, buffer)) {
    const lines = (rest + decoder.write(buffer.subarray(0, read))).split('\n');
    rest = lines.pop();
    yield* lines;
  }
  closeSync(file);
  yield rest;
}

/** Runs a command and discards its output. @returns CPU time of the command and its children, in ns */
export function runFor(program, command, options = {}) {
  const before = childTime();
  const { status, stderr, error } = spawnSync(command[0], command.slice(1), { encoding: 'utf8', maxBuffer: 2 ** 28, stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...program.env }, ...options });
  if (error || (status !== 0 && status !== program.status)) throw new Stop(`${program.name}: ${command.slice(0, 4).join(' ')} …: ${error?.message ?? `exit status ${status}: ${stderr.trim().split('\n').pop()}`}`);
  return childTime() - before;
}

/** Returns the CPU time of the ended children of this process, in ns. */
function childTime() {
  const [, fields] = readFileSync('/proc/self/stat', 'latin1').split(/\) (.*)$/s);
  const [user, system] = fields.split(' ').slice(13, 15).map(Number);
  return (user + system) * 1e7;
}

/**
 * Finds a number of passes such that four times as many take long enough to be counted, and the time of a pass and of
 * the start.
 */
function calibrate(program, at) {
  const time = (passes) => runFor(program, program.command(passes, at));
  for (let unit = 1; ; unit *= 2) {
    const all = time(unit * 16);
    if (all >= counted_ns_min * 4 || unit >= passes_max) {
      const few = time(unit);
      return { unit, pass_ns: Math.max(1, (all - few) / (15 * unit)), startup_ns: Math.max(0, few - (all - few) / 15) };
    }
  }
}

/** Counts executions by object and address, over all processes of one run. */
function count(program, passes, at, folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const options = ['-q', '--tool=callgrind', '--trace-children=yes', '--dump-instr=yes', '--skip-plt=no', `--callgrind-out-file=${join(folder, '%p')}`];
  runFor(program, ['nice', 'valgrind', ...options, ...program.command(passes, at)]);
  const sums = new Map();
  for (const name of readdirSync(folder)) addObjects(sums, readObjects(linesOf(join(folder, name))));
  rmSync(folder, { recursive: true, force: true });
  return sums;
}

const real = (path) => (existsSync(path) ? realpathSync(path) : path);

function addObjects(sums, objects) {
  for (const [object, { executions }] of objects) {
    const path = real(object);
    const into = sums.get(path) ?? new Map();
    for (const [address, number] of executions) into.set(address, (into.get(address) ?? 0) + number);
    sums.set(path, into);
  }
}

/**
 * Returns the line through the counts of `unit`, 2 `unit` and 4 `unit` passes.
 * @returns {Line}
 */
export function lineThrough(one, two, four, unit) {
  const each = (four - two) / (2 * unit);
  const early = (two - one) / unit;
  const off = Math.abs(early - each);
  if (each < 0 || off > linear_max * Math.max(each, early)) return { fixed: 0, each: NaN };
  return { fixed: Math.max(0, four - 4 * unit * each), each };
}

function linesThrough(counts, unit) {
  const objects = new Map();
  for (const path of counts[2].keys()) {
    const at = (address) => counts.map((sums) => sums.get(path)?.get(address) ?? 0);
    objects.set(path, new Map([...counts[2].get(path).keys()].map((address) => [address, lineThrough(...at(address), unit)])));
  }
  return objects;
}

/** Returns the truth of a program, from `file` if it was counted before. @returns {Truth} */
export function truthOf(program, at, file) {
  if (!existsSync(file)) makeTruth(program, at, file);
  const { objects, ...others } = JSON.parse(readFileSync(file, 'utf8'));
  const lines = (rows) => new Map(rows.map(([address, fixed, each]) => [address, { fixed, each: each ?? NaN }]));
  return { ...others, objects: new Map(Object.entries(objects).map(([path, rows]) => [path, lines(rows)])) };
}

function makeTruth(program, at, file) {
  const { unit, ...times } = calibrate(program, at);
  const counts = [1, 2, 4].map((factor) => count(program, factor * unit, at, `${file}.dumps`));
  const objects = linesThrough(counts, unit);
  const rows = (lines) => [...lines].map(([address, { fixed, each }]) => [address, fixed, each]);
  mkdirSync(dirname(file), { recursive: true });
  const text = JSON.stringify({ unit, ...times, linear: linearShare(objects), objects: Object.fromEntries([...objects].map(([path, lines]) => [path, rows(lines)])) });
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}

/** Returns the share of the instructions of `objects` whose counts grow linearly. */
function linearShare(objects) {
  const all = [...objects.values()].flatMap((lines) => [...lines.values()]);
  return all.filter(({ each }) => !Number.isNaN(each)).length / Math.max(1, all.length);
}

/** Returns the executions of an instruction in this many passes, scaled if only a part was recorded; null: no truth. */
export function executionsAt(lines, address, { passes, share = 1 }) {
  const line = lines?.get(address);
  if (!line || Number.isNaN(line.each)) return null;
  return share === 1 ? line.fixed + line.each * passes : line.each * passes * share;
}
