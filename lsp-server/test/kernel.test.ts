/**
 * A procedure of the kernel by instruction, through the built server and the real core. This machine's kernel is sampled; its code is
 * made up: a vmlinux of the same build, which has a loop in place of the procedure.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { addressOf, hex } from '../src/address';
import type { CfgResult, HotProceduresResult, ListingResult } from '../src/protocol';
import { killPrograms, startProgram, stop } from './client';
import { builtDwell, server } from './fixture';

/** Where x86-64 kernels are linked to. */
const linked = 0xffffffff81000000n;
const folder = mkdtempSync(join(tmpdir(), 'dwell-lsp-kernel-'));
after(() => {
  killPrograms();
  rmSync(folder, { recursive: true });
});

const dwell = builtDwell();
const symbols = kernelSymbols();
const skip = whySkipped();
if (skip !== false) console.log(`SKIPPED ${skip}`);

function whySkipped(): string | false {
  const what = 'kernel procedures by instruction';
  if (process.arch !== 'x64') return `${what}: the made-up kernel is for x86-64`;
  if (dwell === undefined || !existsSync(server)) return `${what}: dwell or the server is not built`;
  if ((symbols.get('_text') ?? 0n) === 0n) return `${what}: the addresses of the kernel's symbols are hidden`;
  const build = runningBuild();
  const installed = [`.build-id/${build.slice(0, 2)}/${build.slice(2)}.debug`, `boot/vmlinux-${release()}`].some((file) => existsSync(join('/usr/lib/debug', file)));
  return installed ? `${what}: the real vmlinux is installed` : false;
}

/** The running kernel's symbols, without those of modules; all at 0 where they are hidden. */
function kernelSymbols(): Map<string, bigint> {
  const lines = readFileSync('/proc/kallsyms', 'utf8').split('\n');
  return new Map(lines.flatMap((line) => {
    const [address = '', , name, module] = line.split(/\s/);
    return name === undefined || module !== undefined ? [] : [[name, BigInt(`0x${address}`)]];
  }));
}

/** The running kernel's build ID: the one note of type 3 of `GNU`. */
function runningBuild(): string {
  const notes = readFileSync('/sys/kernel/notes');
  const head = notes.indexOf(Buffer.from([3, 0, 0, 0, 0x47, 0x4e, 0x55, 0]));
  return notes.subarray(head + 8, head + 8 + notes.readUInt32LE(head - 4)).toString('hex');
}

/** Makes a vmlinux of the running build with a loop in place of a procedure of `size` bytes at `offset`. */
function makeKernel(path: string, name: string, offset: bigint, size: number): void {
  const body = ['.Ltop: mov (%rax), %rbx', 'add %rbx, %rcx', `.fill ${size - 16}, 1, 0x90`, 'jne .Ltop', 'call _text', 'ret'];
  const assembly = ['.globl _text', '.type _text, @function', '_text: ret', '.size _text, 1', `.org ${offset}`, `.type ${name}, @function`, `${name}:`, ...body, `.size ${name}, . - ${name}`, ''];
  writeFileSync(join(folder, 'kernel.s'), assembly.join('\n'));
  const options = ['-nostdlib', '-static', '-no-pie', `-Wl,--build-id=0x${runningBuild()}`, '-Wl,-e,_text', `-Wl,-Ttext=0x${linked.toString(16)}`];
  execFileSync('gcc', [...options, '-o', path, join(folder, 'kernel.s')]);
}

test('a procedure of the kernel is listed with exact addresses', { skip }, async () => {
  const database = join(folder, 'db');
  const run = (...args: string[]): string => execFileSync(String(dwell), ['--db', database, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  run('record', '--', 'dd', 'if=/dev/zero', 'of=/dev/null', 'bs=64k', 'count=20000');
  const { rows } = JSON.parse(run('--json', 'top', '--image', 'kernel')) as { rows: { procedure: string }[] };
  const [{ procedure: label } = assert.fail('no samples in the kernel')] = rows;
  const start = symbols.get(label) ?? assert.fail(label);
  const next = [...symbols.values()].reduce((least, address) => (address > start && address < least ? address : least), 2n ** 64n);
  const offset = start - (symbols.get('_text') ?? 0n);
  const debug = join(folder, 'debug');
  mkdirSync(debug);
  makeKernel(join(debug, 'vmlinux'), label, offset, Number(next - start));
  const started = await startProgram(server, { database, debugDirs: [debug] });
  const { client } = started;
  const { rows: shown } = await client.sendRequest<HotProceduresResult>('dwell/hotProcedures', {});
  const { id } = shown.find((row) => row.label === label) ?? assert.fail(label);
  const { text, lines, listing } = await client.sendRequest<ListingResult>('dwell/listing', { procedure: id });
  const first = lines.findIndex(({ address }) => address !== null);
  const base = lines[first]?.address ?? assert.fail(text);
  assert.equal(hex(base), (linked + offset).toString(16));
  assert.match(text.split('\n')[first] ?? '', new RegExp(`^${hex(base)}  mov rbx, `));
  const branch = lines.find(({ target }) => target === base);
  assert.ok(branch?.address, 'the loop goes back to its first instruction');
  assert.ok(lines.some(({ target }) => target === addressOf(linked.toString(16))), 'the call');
  assert.equal((listing as { procedure: { address: number } }).procedure.address, base);
  const { blocks } = await client.sendRequest<CfgResult>('dwell/cfg', { procedure: id });
  assert.equal(blocks[0]?.address, base);
  assert.ok(blocks[0].successors.some(({ to }) => to === base));
  const called = await client.sendRequest<ListingResult>('dwell/listing', { procedure: `kernel:0x${hex(base)}` });
  assert.equal(called.text, text, 'a procedure is also named by its address');
  await stop(started);
});
