// Processes that the benches talk to line by line, including the C helpers, and the resources that a process has used.

import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Stop, target, top } from '../step.mjs';

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Builds `scripts/bench/NAME.c` if it is newer than the built program. */
function compiled(name, program, options) {
  const [folder, source] = [join(top, 'scripts/bench'), join(top, 'scripts/bench', `${name}.c`)];
  mkdirSync(join(target, 'bench'), { recursive: true });
  const built = statSync(program, { throwIfNoEntry: false });
  const newest = Math.max(...[source, join(folder, 'turns.h')].map((file) => statSync(file).mtimeMs));
  if (!built || built.mtimeMs < newest) {
    const { status, stderr } = spawnSync('gcc', ['-O2', '-Wall', ...options, '-o', program, source], { encoding: 'utf8' });
    if (status !== 0) throw new Stop(`gcc ${source}: ${stderr.trim()}`);
  }
  return program;
}

/** Builds a C program that helps to measure. */
export const helper = (name) => compiled(name, join(target, 'bench', name), []);

/** Builds a library that is preloaded into the measured program. */
export const library = (name) => compiled(name, join(target, 'bench', `${name}.so`), ['-shared', '-fPIC']);

/** Ids of processes that must not outlive this one; negative for a whole group. */
const ours = new Set();
process.on('exit', () => {
  for (const pid of ours) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It had ended already.
    }
  }
});
for (const [signal, number] of Object.entries({ SIGINT: 2, SIGTERM: 15, SIGHUP: 1 })) {
  // A process that handles the signal itself also ends by itself.
  process.on(signal, () => process.listenerCount(signal) > 1 || process.exit(128 + number));
}

/** Makes a process or group end with this process, in whatever way it ends; returns a function that cancels that. */
export function endsWithUs(pid) {
  ours.add(pid);
  return () => ours.delete(pid);
}

/** A process that answers lines with lines. */
export class Talker {
  #waiting = [];
  #lines = [];
  #stderr = '';
  #hasDied = false;

  constructor(command, options = {}) {
    this.command = command;
    this.child = spawn(command[0], command.slice(1), { stdio: ['pipe', 'pipe', 'pipe'], ...options });
    this.child.stderr.on('data', (chunk) => (this.#stderr = (this.#stderr + chunk).slice(-2000)));
    createInterface({ input: this.child.stdout }).on('line', (line) => this.#take(line));
    const ended = this.child.pid ? endsWithUs(this.child.pid) : () => {};
    this.child.on('close', ended);
    this.closed = new Promise((resolve) => {
      this.child.on('error', (error) => resolve((this.#stderr += error.message)));
      this.child.on('close', resolve);
    });
    this.closed.then(() => {
      this.#hasDied = true;
      this.#waiting.splice(0).forEach(({ reject }) => reject(this.#died()));
    });
    this.child.stdin.on('error', () => {});
  }

  get pid() {
    return this.child.pid;
  }

  get stderr() {
    return this.#stderr;
  }

  #died() {
    return new Stop(`${this.command.join(' ')} ended: ${this.#stderr.trim()}`);
  }

  #take(line) {
    const waiting = this.#waiting.shift();
    if (waiting) waiting.resolve(line);
    else this.#lines.push(line);
  }

  /** Waits for the next line and returns it. */
  line() {
    if (this.#lines.length > 0) return Promise.resolve(this.#lines.shift());
    if (this.#hasDied) return Promise.reject(this.#died());
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Returns all lines that have not been read yet. */
  takeLines() {
    return this.#lines.splice(0);
  }

  ask(text) {
    this.child.stdin.write(`${text}\n`);
    return this.line();
  }

  async end(signal) {
    if (signal) this.child.kill(signal);
    this.child.stdin.end();
    await this.closed;
  }
}

/** Returns the CPU time of all threads of a process, in ms. */
export function cpuMs(pid) {
  let sum = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    sum += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]);
  }
  return sum / 1e6;
}

/** Returns the resident bytes of a process: all, and by kind. */
export function residentBytes(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const field = (name) => Number(status.match(new RegExp(`^${name}:\\s+(\\d+)`, 'm'))?.[1] ?? 0) * 1024;
  return { all: field('VmRSS'), peak: field('VmHWM'), anonymous: field('RssAnon'), file: field('RssFile'), shared: field('RssShmem') };
}

export function bytesBelow(path) {
  const status = statSync(path, { throwIfNoEntry: false });
  if (!status) return 0; // A compaction removed it after the folder was listed.
  return status.isDirectory() ? readdirSync(path).reduce((sum, name) => sum + bytesBelow(join(path, name)), 0) : status.size;
}
