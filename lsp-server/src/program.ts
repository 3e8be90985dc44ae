/**
 * Runs the `dwell` program, which alone collects. Its last words on standard error are the error.
 */
import { spawn } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import type { Readable } from 'node:stream';

export interface Finished {
  status: number | null;
  stdout: string;
  stderr: string;
  /** What came out of `reportFd`. */
  report: string;
}

/** The file descriptor that `dwell record` reports to, beside the standard streams. */
export const reportFd = 3;

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
    const child = spawn(program, args, { ...(cwd === undefined ? {} : { cwd }), stdio: ['ignore', 'pipe', 'pipe', 'pipe'] });
    const interrupt = (): void => void child.kill('SIGINT');
    signal.addEventListener('abort', interrupt, { once: true });
    const output = { stdout: '', stderr: '', report: '' };
    for (const [fd, name] of [[1, 'stdout'], [2, 'stderr'], [reportFd, 'report']] as const) {
      (child.stdio[fd] as Readable).setEncoding('utf8').on('data', (text: string) => {
        output[name] = (output[name] + text).slice(-outputKept);
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
