// Makes recordings of the programs like a user, with the `dwell` binary: it starts a command, attaches to a running process, or
// uses the daemon.
//
// Enters: a row of `programs.mjs` and how long to run it. Leaves: a database, and which part of the run was recorded
// (`Recorded`). Options are Dwell's defaults, so the results are those of every user; only the ways `count-…` ask for exact counts.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Stop } from '../../step.mjs';

/** @typedef {{ passes: number, share: number, database: string, told: string }} Recorded share: recorded share of the passes; told: output of dwell */

/**
 * The ways, by name. `seconds` is CPU time of the program, `options` are those of `dwell record` or
 * `dwell daemon`. Ways that take hours for all programs run only if they are named (`isLong`).
 * @type {Record<string, { how: 'own'|'attach'|'daemon', seconds: number, options?: string[], isLong?: boolean }>}
 */
export const ways = {
  'own-2': { how: 'own', seconds: 2 },
  'own-10': { how: 'own', seconds: 10 },
  'own-40': { how: 'own', seconds: 40 },
  'count-2': { how: 'own', seconds: 2, options: ['--count=always'] },
  'count-10': { how: 'own', seconds: 10, options: ['--count=always'] },
  'windows-10': { how: 'own', seconds: 10, options: ['--count'] },
  'attach-10': { how: 'attach', seconds: 10 },
  'daemon-30': { how: 'daemon', seconds: 30 },
  'daemon-paths-60': { how: 'daemon', seconds: 60, options: ['--paths', '5'], isLong: true },
  'daemon-paths-300': { how: 'daemon', seconds: 300, options: ['--paths', '1'], isLong: true },
};

const environment = (program) => ({ ...process.env, ...program.env });

/** Returns the number of passes that take the program this long. */
export const passesFor = ({ startup_ns, pass_ns }, seconds) => Math.max(1, Math.round((seconds * 1e9 - startup_ns) / pass_ns));

/** Returns the recording, and makes it if it does not exist. @returns {Promise<Recorded>} */
export async function recordingOf(program, way, { truth, at, dwell, folder, anew }) {
  const database = `${folder}/${way}.dwell`;
  const file = `${folder}/${way}.json`;
  if (anew) for (const path of [database, file]) rmSync(path, { recursive: true, force: true });
  if (!existsSync(file)) {
    rmSync(database, { recursive: true, force: true });
    mkdirSync(dirname(file), { recursive: true });
    const { how, seconds, options = [] } = ways[way];
    const passes = passesFor(truth, seconds);
    const recorded = await { own, attach }[how](program, program.command(passes, at), { dwell, database, options });
    writeFileSync(file, JSON.stringify({ passes, share: 1, ...recorded }));
  }
  return { ...JSON.parse(readFileSync(file, 'utf8')), database };
}

function own(program, command, { dwell, database, options }) {
  const { status, stderr, error } = spawnSync(dwell, ['--db', database, 'record', ...options, '--', ...command], { encoding: 'utf8', stdio: ['ignore', 'ignore', 'pipe'], maxBuffer: 2 ** 28, env: environment(program) });
  if (error || (status !== 0 && status !== program.status)) throw new Stop(`${program.name}: dwell record ended with ${status}: ${error?.message ?? stderr.trim().split('\n').pop()}`);
  return { told: ownLines(stderr) };
}

const ownLines = (stderr) => stderr.split('\n').filter((line) => line.startsWith('dwell:')).join('\n');

/**
 * Attaches to the program soon after its start and records until its end. Its CPU time before that shows how much
 * was missed.
 */
async function attach(program, command, { dwell, database }) {
  const target = spawn(command[0], command.slice(1), { stdio: 'ignore', env: environment(program) });
  const ended = new Promise((resolve) => target.on('close', resolve));
  const recorder = spawn(dwell, ['--db', database, 'record', '-p', String(target.pid)], { stdio: ['ignore', 'ignore', 'pipe'] });
  let told = '';
  recorder.stderr.on('data', (chunk) => (told += chunk));
  const recorded = new Promise((resolve) => recorder.on('close', resolve));
  const seen = await watchTime(target.pid, 1500);
  await ended;
  const status = await recorded;
  if (status !== 0) throw new Stop(`${program.name}: dwell record -p ended with ${status}: ${told.trim().split('\n').pop()}`);
  const { start, sampled_ns } = epochOf(dwell, database);
  const missed_ns = seen.findLast(({ time }) => time <= start)?.cpu_ns ?? 0;
  return { told: ownLines(told), share: sampled_ns / (sampled_ns + missed_ns) };
}

/** Measures the CPU time of a process repeatedly, for this long. */
async function watchTime(pid, duration_ms) {
  const seen = [];
  for (const start = Date.now(); Date.now() < start + duration_ms; await sleep(5)) {
    const cpu_ns = timeOf(pid);
    if (cpu_ns === null) break;
    seen.push({ time: Date.now(), cpu_ns });
  }
  return seen;
}

function timeOf(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').pop().split(' ');
    return (Number(fields[11]) + Number(fields[12])) * 1e7;
  } catch {
    return null; // The process has ended.
  }
}

/** Returns the start of the epoch (ms since 1970) and the time that was sampled in it. */
function epochOf(dwell, database) {
  const { stdout } = spawnSync(dwell, ['--db', database, 'epoch', 'list', '--json'], { encoding: 'utf8' });
  const epoch = JSON.parse(stdout).epochs.at(-1);
  const sampled = Object.values(epoch.events).find(({ unit, samples }) => unit === 'ns' && samples > 0);
  if (!sampled) throw new Stop(`${database}: no samples of time in ns`);
  return { start: Date.parse(epoch.start), sampled_ns: sampled.samples * sampled.period };
}

/**
 * Records all `runs` one after another in one recording of the daemon.
 * @returns {Promise<Map<string, Recorded>>} by program
 */
export async function daemonRecording(runs, way, { dwell, folder, anew }) {
  const database = `${folder}/${way}.dwell`;
  const file = `${folder}/${way}.json`;
  if (anew) rmSync(file, { force: true });
  if (!existsSync(file)) {
    mkdirSync(folder, { recursive: true });
    rmSync(database, { recursive: true, force: true });
    const passes = await recordAll(runs, ways[way], { dwell, database, log: `${folder}/${way}.log` });
    writeFileSync(file, JSON.stringify(passes));
  }
  const passes = JSON.parse(readFileSync(file, 'utf8'));
  return new Map(Object.entries(passes).map(([name, number]) => [name, { passes: number, share: 1, database, told: '' }]));
}

async function recordAll(runs, { seconds, options = [] }, { dwell, database, log }) {
  const output = openSync(log, 'w');
  const daemon = spawn(dwell, ['--db', database, 'daemon', ...options], { stdio: ['ignore', output, output] });
  closeSync(output);
  const ended = new Promise((resolve) => daemon.on('close', resolve));
  const passes = {};
  try {
    await sleep(3000); // The daemon prints nothing when it is ready; it needs less than a second.
    if (daemon.exitCode !== null) throw new Stop(`dwell daemon ended: ${readFileSync(log, 'utf8').trim().split('\n').pop()}`);
    for (const { program, truth, at } of runs) {
      passes[program.name] = passesFor(truth, seconds);
      const command = program.command(passes[program.name], at);
      spawnSync(command[0], command.slice(1), { stdio: 'ignore', env: environment(program) });
    }
    await sleep(1000);
  } finally {
    daemon.kill('SIGTERM');
    await ended;
  }
  return passes;
}
