// What the benches of import share: a recording of compilers, and commands measured beside each other.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { Stop, target, top } from '../step.mjs';
import { median, spread, table } from './figures.mjs';

const folder = join(target, 'bench');
export const samplesMin = 1_000_000;

/** Seconds, seconds of CPU and peak MiB of a command; its output too. */
export function measure(command, scratch) {
  const times = join(scratch, 'times');
  const start = performance.now();
  const { status, stdout, stderr } = spawnSync('/usr/bin/time', ['-q', '-o', times, '-f', '%U %S %M', ...command], {
    encoding: 'utf8',
    maxBuffer: 1 << 30,
    cwd: top,
  });
  const wall = (performance.now() - start) / 1000;
  if (status !== 0) throw new Stop(`${command.join(' ')}: status ${status}: ${stderr.trim().split('\n').pop()}`);
  const [user, system, peak] = readFileSync(times, 'utf8').trim().split(' ').map(Number);
  return { wall, cpu: user + system, peak: peak / 1024, stdout };
}

/** How many samples a file of perf's has. */
export function samplesOf(file) {
  const { stdout } = spawnSync('perf', ['report', '-i', file, '--stats', '--stdio'], { encoding: 'utf8', maxBuffer: 1 << 28 });
  return Number(stdout.match(/SAMPLE events:\s+(\d+)/)?.[1] ?? 0);
}

/** A recording of compilers on every CPU with a million samples, made once and kept below target/. */
export function recording() {
  const file = join(folder, 'compilers.data');
  if (existsSync(file)) return file;
  mkdirSync(folder, { recursive: true });
  const build = 'while :; do cargo build -q -p dwell-query -p dwell-exchange; rm -rf "$CARGO_TARGET_DIR"; done';
  const env = { ...process.env, CARGO_TARGET_DIR: join(folder, 'compilers') };
  const made = `${file}.new`;
  console.log('recording compilers until there are a million samples: about three minutes …');
  // 10,000 samples a second on two CPUs.
  const record = ['record', '-q', '-B', '-a', '-e', 'cpu-clock', '-F', '4999', '-o', made, '--', 'timeout', '-k', '1', '125', 'bash', '-c', build];
  spawnSync('perf', record, { env, cwd: top, stdio: 'ignore' });
  const found = samplesOf(made);
  if (found < samplesMin) throw new Stop(`perf record left ${found} samples in ${made}`);
  renameSync(made, file);
  return file;
}

/** Our commands, whose times add up, beside the peer's; alternating. */
export function beside({ title, ours, theirs, rounds, scratch, faster, smaller }) {
  const results = { ours: [], theirs: [] };
  for (let round = 0; round < rounds; round++) {
    const all = ours(round).map((command) => measure(command, scratch));
    const sum = (key) => all.reduce((total, one) => total + one[key], 0);
    results.ours.push({ wall: sum('wall'), cpu: sum('cpu'), peak: Math.max(...all.map((one) => one.peak)) });
    results.theirs.push(measure(theirs, scratch));
  }
  const ratio = (key) => median(results.theirs.map((one, round) => one[key] / results.ours[round][key]));
  const row = (name, of) => [name, ...[['wall', 2, 's'], ['cpu', 2, 's'], ['peak', 0, 'MiB']].map(([key, digits, unit]) => spread(of.map((one) => one[key]), digits, unit))];
  const mark = (value, bar) => `${value.toFixed(1)}× ${bar === undefined ? '' : value >= bar ? `✓ ≥ ${bar}` : `✗ ≥ ${bar}`}`;
  table(title, [
    ['', 'wall', 'CPU', 'peak memory'],
    row('dwell', results.ours),
    row(theirs.slice(0, 2).join(' '), results.theirs),
    ['ratio', mark(ratio('wall'), faster), mark(ratio('cpu'), faster), mark(ratio('peak'), smaller)],
  ]);
}
