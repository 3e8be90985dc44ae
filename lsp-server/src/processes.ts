/**
 * `dwell/processes`: what may be recorded now, from /proc. Kernel threads and what ends meanwhile are left out.
 */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { ProcessesResult, ProcessSummary } from './protocol';

/** Clock ticks per second in /proc; the same on every Linux that we run on. */
const ticksPerSecond = 100;

/** Most CPU time first. */
export async function processes(proc = '/proc'): Promise<ProcessesResult> {
  const [names, users] = await Promise.all([readdir(proc).catch(() => []), userNames()]);
  const pids = names.filter((name) => /^\d+$/.test(name));
  const read = await Promise.all(pids.map((pid) => processOf(proc, Number(pid), users)));
  const found = read.filter((each) => each !== undefined).sort((a, b) => b.cpuSeconds - a.cpuSeconds || a.pid - b.pid);
  return { processes: found };
}

async function processOf(proc: string, pid: number, users: ReadonlyMap<number, string>): Promise<ProcessSummary | undefined> {
  if (pid === process.pid) return undefined;
  const text = (name: string): Promise<string> => readFile(join(proc, String(pid), name), 'utf8');
  try {
    const [stat, words, status] = await Promise.all([text('stat'), text('cmdline'), text('status')]);
    const uid = Number(/^Uid:\t(\d+)/m.exec(status)?.[1]);
    const command = words.split('\0').join(' ').trim();
    if (command === '') return undefined;
    // The name stands in parentheses and may hold some itself.
    const name = stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'));
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const ticks = Number(fields[11]) + Number(fields[12]);
    const user = users.get(uid) ?? String(uid);
    return { pid, name, command, user, own: uid === process.getuid?.(), cpuSeconds: ticks / ticksPerSecond };
  } catch {
    return undefined;
  }
}

async function userNames(): Promise<Map<number, string>> {
  const text = await readFile('/etc/passwd', 'utf8').catch(() => '');
  return new Map(text.split('\n').map((line) => line.split(':')).map(([name = '', , uid]) => [Number(uid), name]));
}
