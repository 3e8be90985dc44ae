/**
 * Calls that are counted while a program runs: numbers, lenses, hints at the lines that call, and the end.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { CodeLens, InlayHint } from 'vscode-languageserver';
import { callsText, namesAt } from '../src/countedCalls';
import type { CallCount, CallPathsResult } from '../src/protocol';
import { open, startInProcess, stop, until, type Started } from './client';
import { fakeBinding } from './fake';
import { builtDwell } from './fixture';

const text = `#include <unistd.h>
__attribute__((noinline)) int work(int n) {
  usleep(100);
  return n + 1;
}
__attribute__((noinline)) int often(int n) {
  return work(n) * 2;
}
__attribute__((noinline)) int seldom(int n) {
  return work(n) * 3;
}
int main(void) {
  int sum = 0;
  for (int n = 0;; n++)
    sum += n % 4 ? often(n) : seldom(n);
}
`;
const folder = mkdtempSync(join(tmpdir(), 'dwell-call-paths-'));
const source = join(folder, 'work.c');
let program: ChildProcess;
let started: Started;
let uri = '';
const dwell = builtDwell();
const skip = dwell === undefined ? 'the dwell program is not built' : process.getuid?.() === 0 ? false : 'tracing another process needs root here';

before(async () => {
  if (skip !== false) return;
  writeFileSync(source, text);
  execFileSync('gcc', ['-O1', '-g', '-o', join(folder, 'work'), source]);
  program = spawn(join(folder, 'work'), { stdio: 'ignore' });
  const { binding } = fakeBinding({});
  const workspace = { inlayHint: { refreshSupport: true }, codeLens: { refreshSupport: true } };
  started = await startInProcess(binding, { dwellPath: dwell }, { workspace, experimental: { dwell: { callsDidChange: true } } });
  uri = await open(started.client, source, text);
});

after(async () => {
  if (skip !== false) return;
  program.kill('SIGKILL');
  await stop(started);
  rmSync(folder, { recursive: true, force: true });
});

const run = <T>(command: string, argument: unknown): Promise<T> => started.client.sendRequest('workspace/executeCommand', { command: `dwell.server.${command}`, arguments: [argument] });
const result = (): Promise<CallPathsResult> => started.client.sendRequest('dwell/callPaths', {});
const lenses = (): Promise<CodeLens[]> => started.client.sendRequest('textDocument/codeLens', { textDocument: { uri } });

test('calls of the function at the cursor are counted until they are stopped', { skip }, async () => {
  const inWork = { textDocument: { uri }, position: { line: 3, character: 4 } };
  const begun = await run<CallCount>('countCalls', { pids: [program.pid], ...inWork });
  assert.equal(begun.state, 'counting');
  const [work] = begun.functions;
  assert.ok(work !== undefined && work.calls > 100 && work.missed === 0, JSON.stringify(work));
  assert.deepEqual([work.function, work.image, work.place], ['work', 'work', { uri, line: 1 }]);
  assert.ok(work.wall?.mean != null && work.wall.mean > 100_000, 'it sleeps for 100 µs');
  assert.ok(work.blockedShare !== null && work.blockedShare > 0.5);
  const [first, second] = work.paths;
  assert.deepEqual([first, second].map((path) => path?.frames.slice(0, 2).map((frame) => [frame.function, frame.place?.line])), [[['often', 6], ['main', 14]], [['seldom', 9], ['main', 14]]]);
  assert.ok(first !== undefined && first.complete && Math.abs(first.share - 0.75) < 0.02);

  await until('the numbers to change', () => started.received.filter(({ method }) => method === 'dwell/callsDidChange').length > 1);
  const { sites } = await result();
  assert.deepEqual(sites.map(({ place, label }) => [place.line, label.replace(/\d+ %/, 'N %')]), [[6, '← N % of the calls of work'], [9, '← N % of the calls of work']]);
  const [told, end] = (await lenses()).filter(({ range }) => range.start.line === 1);
  assert.match(told?.command?.title ?? '', /^[\d.]+ k? ?calls\/s · mean \d+ µs · p99 [\d.]+ [µm]s · \d+ % of it blocked$/);
  assert.deepEqual([told?.command?.command, told?.command?.arguments], ['dwell.showCallPaths', [begun.id]]);
  assert.deepEqual([end?.command?.title, end?.command?.command], ['Stop counting', 'dwell.server.stopCounting']);

  // The lines move with the text.
  const range = { start: { line: 0, character: 0 }, end: { line: 0, character: 0 } };
  await started.client.sendNotification('textDocument/didChange', { textDocument: { uri, version: 2 }, contentChanges: [{ range, text: '\n\n' }] });
  const whole = { start: { line: 0, character: 0 }, end: { line: 99, character: 0 } };
  const hints: InlayHint[] = await started.client.sendRequest('textDocument/inlayHint', { textDocument: { uri }, range: whole });
  assert.deepEqual(hints.map(({ position, label }) => [position.line, JSON.stringify(label).includes('of work')]), [[8, true], [11, true]]);

  // A second function of the program is counted beside the first, which begins anew.
  const both = await run<CallCount>('countCalls', { pids: [program.pid], function: 'often' });
  assert.deepEqual([both.id, both.functions.map((each) => each.function)], [begun.id, ['work', 'often']]);
  await run('stopCounting', begun.id);
  const [ended] = (await result()).counts;
  assert.deepEqual([ended?.state, ended?.problem], ['ended', null]);
  assert.match(ended?.functions[0]?.label ?? '', /^[\d,]+ calls in \d+ s · mean/);
  await run('stopCounting', begun.id);
  assert.deepEqual(await result(), { counts: [], sites: [] });
  assert.equal(program.exitCode, null, 'the program goes on');
});

test('what cannot be counted is refused in one line', { skip }, async () => {
  const refused = (argument: object, message: RegExp): Promise<void> => assert.rejects(run('countCalls', argument), { message });
  await refused({ pids: [program.pid], function: 'no_such_function' }, /^no function no_such_function in the process/);
  await refused({ pids: [2 ** 22 + 1], function: 'work' }, /process/);
  await refused({ pids: [], function: 'work' }, /'pids' must be a list of processes/);
  await refused({ pids: [1] }, /must name a 'function', or a 'position' in a 'textDocument'/);
  assert.deepEqual((await result()).counts, []);
});

test('what is at a position is named by its line, then by the word', () => {
  assert.deepEqual(namesAt('/src/a.cc', 7, '  x = ns::parse(y);', 10), ['/src/a.cc:7', 'parse']);
  assert.deepEqual(namesAt('/src/a.cc', 7, '  }', 3), ['/src/a.cc:7']);
});

test('numbers are said in a few words', () => {
  const wall = { sum: 32_000, mean: 3200, p50: 3000, p99: 12_000_000, max: 9e9 };
  const some = { function: 'f', image: 'a', place: null, calls: 12_345, perSecond: 1234.5, missed: 2, wall, blockedShare: 0.4, paths: [], omittedPaths: 0 };
  assert.equal(callsText(some, undefined), '1.2 k calls/s · mean 3.2 µs · p99 12 ms · 40 % of it blocked · 2 calls not counted');
  assert.equal(callsText({ ...some, wall: { ...wall, mean: null, p99: null }, blockedShare: null, missed: 0 }, 12.3), '12,345 calls in 12 s');
});
