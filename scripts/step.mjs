// Runs one command at a time. On a terminal it shows the last line of the output while the command runs; a log contains all of
// it.

import { spawn } from 'node:child_process';
import { createWriteStream, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const top = fileURLToPath(new URL('..', import.meta.url));
/** cargo's folder for builds. All other temporary files also go below it. */
export const target = process.env.CARGO_TARGET_DIR ?? join(top, 'target');
const logs = join(target, 'logs');
/** Whether a user sees the output of a command while it runs. */
export const terminal = process.stdout.isTTY;

export const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(1)} s`;

/** An error that is reported in one clear line, without a stack. */
export class Stop extends Error {}

function show(text) {
  if (!terminal) return;
  const width = (process.stdout.columns ?? 80) - 1;
  process.stdout.write(`\r\x1b[K${text.slice(0, width)}`);
}

/**
 * Runs a command, and prints its result in one line.
 * @param {string} name for people
 * @param {string[]} command
 * @param {{ env?: Record<string, string>, quiet?: boolean }} options
 * @returns {Promise<{ status: number | null, output: string, log: string, time: string }>} status null: a signal or no such program
 */
export async function run(name, command, { env = {}, quiet = false } = {}) {
  mkdirSync(logs, { recursive: true });
  const log = join(logs, `${name.replace(/[^\w.-]+/g, '-')}.log`);
  const file = createWriteStream(log);
  const start = performance.now();
  const chunks = [];
  if (!terminal && !quiet) console.log(`… ${name}`);
  const status = await new Promise((resolve) => {
    // Both outputs use one pipe, so that cargo's messages on standard error precede the tests that they belong to.
    const child = spawn('bash', ['-c', 'exec "$@" 2>&1', 'bash', ...command], { cwd: top, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
    const collect = (chunk) => {
      chunks.push(chunk);
      file.write(chunk);
      const line = chunk.toString().trimEnd().split(/[\r\n]/).pop().replace(/\x1b\[[0-9;]*[A-Za-z]/g, '').trim();
      show(`… ${name} (${seconds(start)})  ${line}`);
    };
    child.stdout.on('data', collect);
    child.on('error', (error) => {
      collect(Buffer.from(`bash: ${error.message}\n`));
      resolve(null);
    });
    child.on('close', (code) => resolve(code));
  });
  await new Promise((resolve) => file.end(resolve));
  show('');
  const time = seconds(start);
  if (!quiet) console.log(`${status === 0 ? '✓' : '✗'} ${name} (${time})`);
  return { status, output: Buffer.concat(chunks).toString(), log, time };
}

export const indented = (lines) => lines.map((line) => `    ${line}`).join('\n');

/** Prints the end of a failed command's output. */
export function tail({ output, log }, lines = 40) {
  const text = output.replace(/\r/g, '\n').trimEnd().split('\n');
  const cut = text.length > lines ? [`[${text.length - lines} lines more in ${log}]`] : [];
  return indented([...cut, ...text.slice(-lines)]);
}

/** Runs a command that must succeed. */
export async function must(name, command, options) {
  const done = await run(name, command, options);
  if (done.status !== 0) {
    console.log(tail(done));
    throw new Stop(`${name} failed: see above and ${done.log}`);
  }
  return done;
}
