/**
 * A profile for tests: a small program is compiled, and `dwell import` makes an epoch of counts that are made up. What
 * the machine lacks for it is said as a reason to skip.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after } from 'node:test';
import { killPrograms } from './client';

export const top = resolve(__dirname, '../..');
export const server = join(top, 'lsp-server/dist/server.js');

export interface Fixture {
  folder: string;
  database: string;
  source: string;
  text: string;
  program: string;
  dwell: string;
  /** The line of the load that stalls, from 0. */
  hotLine: number;
  /** The line `chase` begins at, from 0. */
  procedureLine: number;
  /** Imports the counts once more, as a new epoch. */
  importAgain(name: string): string;
}

const text = `#include <stdlib.h>
#include <stdio.h>
__attribute__((noinline)) long chase(const long *next, long at, long n) {
  while (n-- > 0)
    at = next[at] ^ (at & 1); /* é𝄞 */
  return at;
}
int main(void) {
  long size = 1 << 20, *next = malloc(size * sizeof *next);
  for (long i = 0; i < size; i++) next[i] = (i * 65539 + 7) & (size - 1);
  printf("%ld\\n", chase(next, 0, 1000));
}
`;

/** The program, from the build that is newest; undefined where there is none. */
export function builtDwell(): string | undefined {
  const target = process.env.CARGO_TARGET_DIR ?? join(top, 'target');
  const candidates = [process.env.DWELL, join(target, 'release/dwell'), join(target, 'debug/dwell')];
  return candidates.find((path) => path !== undefined && existsSync(path));
}

/** The fixture, or why there is none. */
export function makeFixture(): Fixture | string {
  const dwell = builtDwell();
  if (dwell === undefined) return 'the dwell program is not built';
  if (!existsSync(server)) return 'lsp-server is not built';
  const folder = mkdtempSync(join(tmpdir(), 'dwell-lsp-fixture-'));
  const path = (name: string): string => join(folder, name);
  writeFileSync(path('chase.c'), text);
  const run = (program: string, ...args: string[]): string => execFileSync(program, args, { cwd: folder, encoding: 'utf8' });
  let assembly: string;
  try {
    run('gcc', '-O2', '-g', '-o', path('chase'), path('chase.c'));
    assembly = run('objdump', '-d', '--no-show-raw-insn', '--disassemble=chase', path('chase'));
  } catch (error) {
    return `gcc and objdump cannot make the program: ${error instanceof Error ? (error.message.split('\n')[0] ?? '') : ''}`;
  }
  writeFileSync(path('counts.tsv'), countsOf(assembly, path('chase')));
  const importAgain = (name: string): string => {
    const kind = ['--event', 'cpu-clock', '--period', '1000000', '--unit', 'ns', '--clock-hz', '3e9', '--machine', 'amd-zen4'];
    const out = run(dwell, '--db', path('db'), '--json', 'import', '--counts', path('counts.tsv'), '--image', path('chase'), '--name', name, ...kind);
    return (JSON.parse(out) as { epoch: string }).epoch;
  };
  importAgain('first');
  return {
    folder,
    database: path('db'),
    source: path('chase.c'),
    text,
    program: path('chase'),
    dwell,
    hotLine: lineOf('next[at]'),
    procedureLine: lineOf('chase(const'),
    importAgain,
  };
}

/**
 * The fixture of a file of tests, which goes when they are done and `close` has ended what else they began; why they are
 * skipped where there is none.
 */
export function fixtureOf(what: string, close?: () => Promise<unknown>): { skip: string | false; given: () => Fixture } {
  const made = makeFixture();
  const skip = typeof made === 'string' ? `${what}: ${made}` : false;
  if (skip !== false) console.log(`SKIPPED ${skip}`);
  after(async () => {
    await close?.();
    killPrograms();
    if (typeof made !== 'string') rmSync(made.folder, { recursive: true });
  });
  const given = (): Fixture => {
    assert.ok(typeof made !== 'string');
    return made;
  };
  return { skip, given };
}

function lineOf(part: string): number {
  return text.split('\n').findIndex((line) => line.includes(part));
}

/** A few samples on each instruction, most on the one after the load, where a timer finds it waiting. */
function countsOf(assembly: string, image: string): string {
  const instructions = [...assembly.matchAll(/^\s*([0-9a-f]+):\s+(.*)$/gm)].map(([, address, words]) => ({ address, words }));
  const load = instructions.findIndex(({ words }) => (words ?? '').includes('(%rdi'));
  const rows = instructions.map(({ address }, i) => `${image}\t${address ?? ''}\t${i === load + 1 ? 9000 : 100}`);
  return `${rows.join('\n')}\n`;
}
