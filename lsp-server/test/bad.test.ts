/** What is wrong with a profile, tried on the built server with the real core: it stays quiet, correct and usable. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmod, copyFile, cp, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { CancellationTokenSource, type InlayHint } from 'vscode-languageserver/node';
import type { EpochsResult, FileCostsResult, HotProceduresResult } from '../src/protocol';
import { open, startProgram, stop, type Started } from './client';
import { fixtureOf, server, top } from './fixture';

const { skip, given } = fixtureOf('what is wrong with a profile');

/** A copy of the database to spoil. */
async function copyOfDatabase(): Promise<string> {
  const { folder, database } = given();
  const copy = join(folder, 'spoiled');
  await rm(copy, { recursive: true, force: true });
  await cp(database, copy, { recursive: true });
  return copy;
}

async function filesIn(database: string, end: string): Promise<string[]> {
  const names = await readdir(database, { recursive: true });
  return names.filter((name) => name.endsWith(end)).map((name) => join(database, name));
}

/** Adds a segment, one of test-fixtures/profiles, to every epoch. */
async function addSegment(database: string, name: string): Promise<void> {
  const epochs = new Set((await filesIn(database, '.parquet')).map((segment) => dirname(segment)));
  for (const epoch of epochs) await copyFile(join(top, 'test-fixtures/profiles', name), join(epoch, 'segment-000099.parquet'));
}

interface Answers {
  hints: InlayHint[];
  costs: FileCostsResult;
  hot: HotProceduresResult;
  epochs: EpochsResult;
}

/** All that an editor asks for, as it types; nothing of it may fail or open a window. */
async function answersOf(started: Started): Promise<Answers> {
  const { client } = started;
  const { source, text } = given();
  const uri = await open(client, source, text);
  const range = { start: { line: 0, character: 0 }, end: { line: 100, character: 0 } };
  const hints = await client.sendRequest<InlayHint[]>('textDocument/inlayHint', { textDocument: { uri }, range });
  const costs = await client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  const hot = await client.sendRequest<HotProceduresResult>('dwell/hotProcedures', {});
  const epochs = await client.sendRequest<EpochsResult>('dwell/epochs', {});
  await client.sendRequest('textDocument/codeLens', { textDocument: { uri } });
  await client.sendRequest('textDocument/hover', { textDocument: { uri }, position: { line: given().hotLine, character: 4 } });
  const told = started.received.filter(({ method }) => method === 'window/showMessage' || method === 'window/showMessageRequest');
  assert.deepEqual(told, [], 'no window over the work');
  const logged = started.received.filter(({ method }) => method === 'window/logMessage').map(({ params }) => JSON.stringify(params));
  assert.equal(new Set(logged).size, logged.length, 'each thing is logged once');
  return { hints, costs, hot, epochs };
}

async function answersWith(database: string): Promise<Answers> {
  const started = await startProgram(server, { database, hints: 'all' });
  const answers = await answersOf(started);
  await stop(started);
  return answers;
}

test('an unreadable segment is named, and the others are counted', { skip, timeout: 120_000 }, async () => {
  for (const name of ['truncated.parquet', 'newer.parquet', 'flipped-bit.parquet', 'foreign.parquet', 'empty.parquet', 'endless-list.parquet', 'huge-page.parquet']) {
    const database = await copyOfDatabase();
    await addSegment(database, name);
    const { hints, hot } = await answersWith(database);
    assert.ok(hints.length > 0, `${name}: costs of the other segments`);
    assert.ok(hot.notes.some((note) => note.includes('segment-000099')), `${name}: ${JSON.stringify(hot.notes)}`);
  }
});

test('an unreadable database leaves the editor without costs', { skip, timeout: 120_000 }, async () => {
  const { folder } = given();
  const empty = join(folder, 'empty');
  await mkdir(empty);
  const spoils: [string, (database: string) => Promise<string>][] = [
    ['none', () => Promise.resolve(join(folder, 'absent'))],
    ['empty', () => Promise.resolve(empty)],
    ['a file', () => Promise.resolve(given().program)],
    ['no description', async (database) => {
      for (const file of await filesIn(database, 'epoch.json')) await rm(file);
      return database;
    }],
    ['no segment', async (database) => {
      for (const file of await filesIn(database, '.parquet')) await copyFile(join(top, 'test-fixtures/profiles/truncated.parquet'), file);
      return database;
    }],
  ];
  for (const [name, spoil] of spoils) {
    const { hints, costs, hot } = await answersWith(await spoil(await copyOfDatabase()));
    assert.deepEqual([hints, costs.lines, hot.rows], [[], [], []], name);
    assert.ok(hot.notes.length > 0, `${name}: why is told`);
  }
});

test("a database of another user is reported", { skip, timeout: 60_000 }, async (t) => {
  const as = { uid: 65534, gid: 65534 };
  if (process.getuid?.() !== 0 || spawnSync(process.execPath, [server, '--version'], as).status !== 0) {
    const why = "another user's database: not root, or nobody may not run node here";
    console.log(`SKIPPED ${why}`);
    t.skip(why);
    return;
  }
  const database = await copyOfDatabase();
  await chmod(given().folder, 0o755);
  await chmod(database, 0o700);
  const started = await startProgram(server, { database, hints: 'all' }, undefined, as);
  const { hints, hot } = await answersOf(started);
  assert.deepEqual([hints, hot.rows], [[], []]);
  assert.ok(hot.notes.some((note) => /denied|permission/i.test(note)), JSON.stringify(hot.notes));
  await stop(started);
});

test('a missing program is named; its counts are still shown', { skip }, async () => {
  const { program, database } = given();
  await rename(program, `${program}.away`);
  try {
    const { hints, hot } = await answersWith(database);
    assert.deepEqual(hints, [], 'without the program no line is known');
    assert.ok(hot.rows.length > 0);
    assert.ok(hot.notes.some((note) => note.includes(program)), JSON.stringify(hot.notes));
  } finally {
    await rename(`${program}.away`, program);
  }
});

test('a missing source gets no numbers', { skip }, async () => {
  const { source, database } = given();
  await rename(source, `${source}.away`);
  try {
    const { hints, costs, hot } = await answersWith(database);
    assert.deepEqual([hints, costs.lines], [[], []], 'nothing tells which line of the buffer is which');
    assert.equal(hot.rows[0]?.label, 'chase');
  } finally {
    await rename(`${source}.away`, source);
  }
});

test('the editor works after the database disappears, and shows it when it is back', { skip }, async () => {
  const database = await copyOfDatabase();
  const started = await startProgram(server, { database, hints: 'all' });
  assert.ok((await answersOf(started)).hints.length > 0);
  await rename(database, `${database}.away`);
  const hot = (): Promise<HotProceduresResult> => started.client.sendRequest<HotProceduresResult>('dwell/hotProcedures', { by: 'image' });
  const gone = await hot();
  assert.ok(gone.rows.length === 0 && gone.notes.length > 0, JSON.stringify(gone));
  await rename(`${database}.away`, database);
  for (const end = Date.now() + 20_000; (await hot()).rows.length === 0; await new Promise((resolve) => setTimeout(resolve, 100))) {
    assert.ok(Date.now() < end, 'it came back');
  }
  await stop(started);
});

test('cancelled requests are reported as cancelled, and later ones are answered', { skip }, async () => {
  const { source, text, database } = given();
  const started = await startProgram(server, { database });
  const { client } = started;
  const uri = await open(client, source, text);
  const asked = (['dwell/hotProcedures', 'dwell/fileCosts', 'dwell/summary', 'textDocument/codeLens'] as const).map((method) => {
    const cancel = new CancellationTokenSource();
    const answer = client.sendRequest(method, { textDocument: { uri } }, cancel.token);
    cancel.cancel();
    return answer.then(() => 'answered before', (error: unknown) => (error as { code: number }).code);
  });
  for (const outcome of await Promise.all(asked)) assert.ok(outcome === -32800 || outcome === 'answered before', String(outcome));
  assert.ok((await client.sendRequest<HotProceduresResult>('dwell/hotProcedures', {})).rows.length > 0);
  await stop(started);
});
