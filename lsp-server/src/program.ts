/**
 * Runs the `dwell` program, which alone collects. Its last words on standard error are the error.
 */
import { spawn } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

export interface Finished {
  status: number | null;
  stdout: string;
  stderr: string;
}

/** What is kept of a stream: its end. */
const outputKept = 1 << 20;

/** The program's path: as set, beside the server, or in PATH; undefined where there is none. */
export async function findDwell(configured: string | null, serverFolder: string, path = process.env.PATH ?? ''): Promise<string | undefined> {
  const candidates = configured === null ? [serverFolder, ...path.split(delimiter)].map((folder) => join(folder, 'dwell')) : [configured];
  for (const candidate of candidates) {
    if (await isExecutable(candidate)) return candidate;
  }
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** Runs to the end; `signal` interrupts it as a terminal would (it then stores what it has). */
export function run(program: string, args: readonly string[], cwd: string | undefined, signal: AbortSignal): Promise<Finished> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { ...(cwd === undefined ? {} : { cwd }), stdio: ['ignore', 'pipe', 'pipe'] });
    const interrupt = (): void => void child.kill('SIGINT');
    signal.addEventListener('abort', interrupt, { once: true });
    const output = { stdout: '', stderr: '' };
    for (const stream of ['stdout', 'stderr'] as const) {
      child[stream].setEncoding('utf8').on('data', (text: string) => {
        output[stream] = (output[stream] + text).slice(-outputKept);
      });
    }
    child.on('error', (error) => {
      signal.removeEventListener('abort', interrupt);
      reject(error);
    });
    child.on('close', (status) => {
      signal.removeEventListener('abort', interrupt);
      resolve({ status, ...output });
    });
    if (signal.aborted) interrupt();
  });
}

/** One clear line of what a failed run said. */
export function failureLine({ status, stderr }: Finished): string {
  const lines = stderr.split('\n').filter((line) => line.trim() !== '');
  const own = lines.filter((line) => line.startsWith('dwell:'));
  return (own.at(-1) ?? lines.at(-1) ?? `dwell: ended with status ${status ?? 'unknown'} and said nothing`).replace(/^dwell: /, '');
}

/** More than the program's own answers nest. */
const bracesMax = 1000;

/** The JSON object that a text ends with, and what stands before it: a recorded command writes there too. */
export function endingJson(text: string): { answer: unknown; before: string } {
  let start = text.length;
  for (let attempts = 0; start > 0 && attempts < bracesMax; attempts++) {
    start = text.lastIndexOf('{', start - 1);
    if (start < 0) break;
    try {
      return { answer: JSON.parse(text.slice(start)), before: text.slice(0, start) };
    } catch {
      // An inner object: the outer one begins further up.
    }
  }
  return { answer: undefined, before: text };
}
