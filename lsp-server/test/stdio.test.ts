/** The built server over its standard input and output, with the real core and a database. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cp, readFile, rename, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { CodeLens, Hover, InlayHint } from 'vscode-languageserver/node';
import { CancellationTokenSource } from 'vscode-languageserver/node';
import type {
  DiffResult, EpochsResult, FileCostsResult, HotProceduresResult, LineResult, ListingResult, RecordResult, StatsResult, SummaryResult,
} from '../src/protocol';
import { open, startProgram, stop, until } from './client';
import { fixtureOf, server } from './fixture';

const { skip, given } = fixtureOf('the server over stdio');

test('the command line is parsed', { skip }, () => {
  const run = (...args: string[]): ReturnType<typeof spawnSync> => spawnSync(process.execPath, [server, ...args], { encoding: 'utf8' });
  assert.match(String(run('--version').stdout), /^dwell-lsp \d+\.\d+\.\d+\n$/);
  assert.match(String(run('--help').stdout), /--stdio/);
  for (const args of [['--wrong'], []]) {
    const { status, stderr } = run(...args);
    assert.equal(status, 2);
    assert.match(String(stderr), /^dwell-lsp: [^\n]*\n$/);
  }
});

test('the stalled line carries the cost, from the real core', { skip }, async () => {
  const { database, source, text, hotLine, procedureLine } = given();
  const started = await startProgram(server, { database });
  const { client } = started;
  const uri = await open(client, source, text);
  const range = { start: { line: 0, character: 0 }, end: { line: 100, character: 0 } };
  const hints = await client.sendRequest<InlayHint[]>('textDocument/inlayHint', { textDocument: { uri }, range });
  const share = ({ label }: InlayHint): number => (typeof label === 'string' ? parseFloat(label) : NaN);
  const hottest = [...hints].sort((a, b) => share(b) - share(a))[0];
  assert.equal(hottest?.position.line, hotLine);
  assert.equal(hottest.position.character, text.split('\n')[hotLine]?.length);
  const lenses = await client.sendRequest<CodeLens[]>('textDocument/codeLens', { textDocument: { uri } });
  assert.deepEqual(lenses.map((lens) => lens.range.start.line), [procedureLine]);
  const hover = await client.sendRequest<Hover>('textDocument/hover', { textDocument: { uri }, position: { line: hotLine, character: 6 } });
  assert.match((hover.contents as { value: string }).value, /of all time/);
  const hot = await client.sendRequest<HotProceduresResult>('dwell/hotProcedures', {});
  assert.equal(hot.rows[0]?.label, 'chase');
  const procedure = String(lenses[0]?.command?.arguments?.[0]);
  assert.equal(hot.rows[0].id, procedure, 'one id for one procedure');
  for (const name of [hot.rows[0].id, procedure]) {
    const listing = await client.sendRequest<ListingResult>('dwell/listing', { procedure: name });
    assert.match(listing.text, /\*\*\* best case/);
    assert.ok(listing.lines.some((line) => line.source?.uri === uri && line.source.line === hotLine));
    assert.equal((listing.listing as { schema: number }).schema, 1);
  }
  const costs = await client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  assert.ok(costs.lines.every((cost) => cost.label.length <= 42));
  await stop(started);
});

test('a source that changed since it was built never shows a number on the wrong line', { skip }, async () => {
  const { database, source, text, hotLine } = given();
  const changed = `// one\n// two\n${text}`;
  const started = await startProgram(server, { database, hints: 'all' });
  const before = await stat(source);
  await writeFile(source, changed);
  const uri = await open(started.client, source, changed);
  const { source: state, lines } = await started.client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  await writeFile(source, text);
  await utimes(source, before.atime, before.mtime);
  const hottest = [...lines].sort((a, b) => b.share - a.share)[0];
  assert.ok(state === 'mapped' ? hottest?.line === hotLine + 2 : lines.length === 0, `${state}: ${JSON.stringify(hottest)}`);
  await stop(started);
});

test('a new epoch is noticed and announced', { skip }, async () => {
  const fixture = given();
  const { database, source, text } = fixture;
  const started = await startProgram(server, { database });
  await open(started.client, source, text);
  const before = await started.client.sendRequest<EpochsResult>('dwell/epochs', {});
  const id = fixture.importAgain('second');
  await until('the news', () => started.received.some(({ method }) => method === 'dwell/profileDidChange'));
  const { epochs } = await started.client.sendRequest<EpochsResult>('dwell/epochs', {});
  assert.equal(epochs.length, before.epochs.length + 1);
  assert.equal(epochs.at(-1)?.id, id);
  assert.equal(epochs.at(-1)?.name, 'second');
  await stop(started);
});

test('a database that appears later is found', { skip }, async () => {
  const { folder, database, source, text } = given();
  const started = await startProgram(server, { database: join(folder, 'not-yet') });
  const uri = await open(started.client, source, text);
  const { lines, notes } = await started.client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  assert.deepEqual(lines, []);
  assert.equal(notes.length, 1);
  // At once, as a collector's first epoch appears.
  await cp(database, join(folder, 'coming'), { recursive: true });
  await rename(join(folder, 'coming'), join(folder, 'not-yet'));
  await until('the news', () => started.received.some(({ method }) => method === 'dwell/profileDidChange'));
  const later = await started.client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  assert.ok(later.lines.length > 0);
  await stop(started);
});

test('a command is recorded with progress, and its epoch is shown', { skip }, async () => {
  const { folder, program, dwell } = given();
  const started = await startProgram(server, { database: join(folder, 'recorded'), dwellPath: dwell });
  const record = { command: 'dwell.server.record', arguments: [{ command: [program], cwd: folder, name: 'run' }], workDoneToken: 'w' };
  const result = await started.client.sendRequest<RecordResult>('workspace/executeCommand', record);
  const { selected, epochs } = await started.client.sendRequest<EpochsResult>('dwell/epochs', {});
  assert.deepEqual(selected, [result.epoch]);
  assert.equal(epochs.at(-1)?.name, 'run');
  const kinds = started.received.filter(({ method }) => method === '$/progress').map(({ params }) => (params as { kind: string }).kind);
  assert.deepEqual(kinds, ['begin', 'end']);
  assert.match(result.output, /^\d+\n/, 'what the command wrote');
  // A client that brings no token lets the server begin, and may cancel there.
  const slow = { command: 'dwell.server.record', arguments: [{ command: ['sleep', '60'] }] };
  const cancelled = assert.rejects(started.client.sendRequest('workspace/executeCommand', slow), { code: -32800 });
  const create = await until('a progress', () => started.received.find(({ method }) => method === 'window/workDoneProgress/create'));
  await until('its beginning', () => started.received.filter(({ method }) => method === '$/progress').length === 3);
  await started.client.sendNotification('window/workDoneProgress/cancel', create.params as object);
  await cancelled;
  await stop(started);
});

test('selectors name epochs as the command line does', { skip }, async () => {
  const { database } = given();
  const ids = [given().importAgain('one'), given().importAgain('two'), given().importAgain('three')];
  const [first = '', second = '', third = ''] = ids;
  const started = await startProgram(server, { database });
  const cases: [string[], string[]][] = [
    [['latest'], [third]], [['latest~1'], [second]], [['latest~99'], []], [[second, first], [first, second]],
    [['two'], [second]], [['latest', third], [third]], [['gone'], []],
  ];
  for (const [selectors, shown] of cases) {
    await started.client.sendRequest('workspace/executeCommand', { command: 'dwell.server.selectEpochs', arguments: [selectors] });
    const answer = await started.client.sendRequest<EpochsResult>('dwell/epochs', {});
    assert.deepEqual(answer.epochs.filter((epoch) => epoch.shown).map(({ id }) => id), shown, selectors.join(' '));
  }
  await stop(started);
});

test('a failed recording is reported in one line, and a cancelled one stops', { skip }, async () => {
  const { folder, dwell } = given();
  const started = await startProgram(server, { database: join(folder, 'recorded'), dwellPath: dwell });
  const record = (...command: string[]): object => ({ command: 'dwell.server.record', arguments: [{ command }] });
  await assert.rejects(started.client.sendRequest('workspace/executeCommand', record('/no/such/program')), ({ message }: Error) => {
    assert.match(message, /no\/such\/program/);
    assert.equal(message.includes('\n'), false);
    return true;
  });
  const source = new CancellationTokenSource();
  const start = performance.now();
  const long = started.client.sendRequest('workspace/executeCommand', record('sleep', '60'), source.token);
  setTimeout(() => {
    source.cancel();
  }, 1000);
  await assert.rejects(long, { code: -32800 });
  assert.ok(performance.now() - start < 20_000);
  await stop(started);

  const lost = await startProgram(server, { database: join(folder, 'recorded'), dwellPath: join(folder, 'absent') });
  await assert.rejects(lost.client.sendRequest('workspace/executeCommand', record('true')), { message: /the dwell program is missing/ });
  await stop(lost);
});

test('the server ends when its client does', { skip }, async () => {
  const { database } = given();
  const { child, client } = await startProgram(server, { database });
  client.dispose();
  child.stdin?.end();
  const [status] = (await once(child, 'exit')) as [number | null];
  assert.notEqual(status, null);
  const polite = await startProgram(server, { database });
  await polite.client.sendRequest('shutdown');
  await polite.client.sendNotification('exit');
  assert.deepEqual((await once(polite.child, 'exit')).slice(0, 1), [0]);
});

test('a killed server leaves nothing behind; the next one serves', { skip }, async () => {
  const { database } = given();
  const { child, client } = await startProgram(server, { database });
  child.kill('SIGKILL');
  await once(child, 'exit');
  client.dispose();
  const next = await startProgram(server, { database });
  assert.equal((await next.client.sendRequest<HotProceduresResult>('dwell/hotProcedures', {})).rows.length > 0, true);
  await stop(next);
});

test('runs are compared, named and removed by the real core', { skip }, async () => {
  const { database, source, text, hotLine, dwell } = given();
  given().importAgain('faster');
  const started = await startProgram(server, { database, dwellPath: dwell, epochs: ['faster'] });
  const { client } = started;
  const uri = await open(client, source, text);
  const run = <T>(command: string, argument: unknown): Promise<T> => client.sendRequest<T>('workspace/executeCommand', { command, arguments: [argument] });
  const diff = await client.sendRequest<DiffResult>('dwell/diff', { before: ['first'], all: true });
  assert.deepEqual(diff.procedures.map(({ name, verdict, ratio }) => [name, verdict, ratio]), [['chase', 'noise', 1]], 'the same counts twice');
  const one = await client.sendRequest<DiffResult>('dwell/diff', { before: ['first'], procedure: 'chase' });
  assert.ok(one.instructions.length > 3 && one.instructions.every(({ kind, verdict }) => kind === 'same' && verdict === 'noise'));
  const line = await client.sendRequest<LineResult>('dwell/line', { textDocument: { uri }, line: hotLine });
  assert.ok(line.places[0]?.instructions.some(({ stalls }) => stalls.length > 0), JSON.stringify(line));
  const summary = await client.sendRequest<SummaryResult>('dwell/summary', { procedure: 'chase' });
  assert.deepEqual([summary.scale, summary.execution, summary.netSamplingError], ['procedure', null, null], 'time alone tells no executions');
  assert.ok(summary.executionMin + summary.totalStallMin <= 1.000001 && summary.executionMax + summary.totalStallMax >= 0.999999);
  const stats = await client.sendRequest<StatsResult>('dwell/stats', { epochs: ['first', 'faster'] });
  assert.equal(stats.rows[0]?.n, 2);
  assert.match((await client.sendRequest<{ svg: string }>('dwell/cfg', { procedure: 'chase' })).svg, /^<svg [^]*class="edge"/);
  const page = join(given().folder, 'report.html');
  await run('dwell.server.report', { path: page });
  assert.match(await readFile(page, 'utf8'), /^<!doctype html>[^]*chase/i);
  await assert.rejects(run('dwell.server.report', { path: '/no/such/report.html' }), /report\.html|no such|No such/);
  await run('dwell.server.renameEpoch', { epoch: 'faster', name: 'another' });
  await run('dwell.server.compare', { before: ['first'], after: ['another'] });
  const named = await client.sendRequest<EpochsResult>('dwell/epochs', {});
  assert.deepEqual([named.selected, named.baseline], [['another'], ['first']]);
  assert.ok(named.epochs.some(({ name }) => name === 'another') && !named.epochs.some(({ name }) => name === 'faster'));
  const { removed } = await run<{ removed: string[] }>('dwell.server.removeEpochs', ['another']);
  assert.equal(removed.length, 1);
  const left = await client.sendRequest<EpochsResult>('dwell/epochs', {});
  assert.ok(!left.epochs.some(({ id }) => removed.includes(id)));
  await assert.rejects(run('dwell.server.importPerf', { path: '/no/such/perf.data' }), /no such|No such|perf\.data/);
  await stop(started);
});
