/** `dwell/sql`: whose turn it is, over a fake core; and what a query can do, in the built server over the real core. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFileSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { CancellationTokenSource, type MessageConnection } from 'vscode-languageserver/node';
import type { SqlResult } from '../src/protocol';
import { startInProcess, startProgram, stop, until } from './client';
import { fakeBinding } from './fake';
import { fixtureOf, server } from './fixture';

const endless = 'SELECT sum(hash(range) % 7) FROM range(100000000000000)';
const { skip, given } = fixtureOf('SQL over stdio');

function ask(client: MessageConnection, query: string, limit?: number): Promise<SqlResult> {
  return client.sendRequest<SqlResult>('dwell/sql', { query, limit });
}

test('queries run one after another, and a failed one does not stop the next', async () => {
  const { binding, core } = fakeBinding({});
  let open = (): void => undefined;
  core.gate = new Promise((resolve) => {
    open = resolve;
  });
  const started = await startInProcess(binding, { database: '/db' });
  const wrong = assert.rejects(ask(started.client, 'wrong'), { code: -32803, message: /syntax error at or near "wrong"/ });
  const right = ask(started.client, 'right');
  await until('the first query', () => core.done.length > 0);
  assert.deepEqual(core.done, ['begins wrong /nowhere/dwell-core.node']);
  open();
  await wrong;
  assert.deepEqual(await right, { columns: [{ name: 'n', type: 'BIGINT' }], rows: [[1]], more: false, notes: [] });
  assert.deepEqual(core.done.slice(1), ['ends wrong', 'begins right /nowhere/dwell-core.node', 'ends right']);
  await assert.rejects(ask(started.client, ''), { code: -32602, message: "dwell/sql: 'query' must be a query" });
  await stop(started);
});

test('a query reads the tables and nothing else, and is cancelled', { skip, timeout: 120_000 }, async (t) => {
  const started = await startProgram(server, { database: given().database });
  const { client } = started;
  const first = await ask(client, 'SELECT 1 AS one').catch((error: unknown) => error);
  if (first instanceof Error && first.message.includes('no usable DuckDB')) {
    console.log(`SKIPPED dwell/sql: ${first.message}`);
    t.skip();
    return;
  }
  assert.deepEqual(first, { columns: [{ name: 'one', type: 'INTEGER' }], rows: [[1]], more: false, notes: [] });
  const top = await ask(client, "SELECT demangled, count FROM procedure_samples WHERE epoch = dwell_epoch('first') ORDER BY count DESC");
  assert.deepEqual(top.columns, [{ name: 'demangled', type: 'VARCHAR' }, { name: 'count', type: 'BIGINT' }]);
  assert.equal(top.rows[0]?.[0], 'chase');
  assert.ok(Number(top.rows[0][1]) > 9000);
  const few = await ask(client, 'FROM range(10)', 3);
  assert.deepEqual([few.rows, few.more], [[[0], [1], [2]], true]);
  const refused = ["SELECT * FROM read_text('/etc/passwd')", "COPY samples TO '/tmp/x'", "ATTACH '/tmp/x'", 'INSTALL httpfs', 'LOAD httpfs', "SELECT * FROM 'https://localhost/x.parquet'", 'SET threads = 1'];
  for (const query of refused) await assert.rejects(ask(client, query), { code: -32803, message: /only queries can be run|disabled/ }, query);
  await assert.rejects(ask(client, 'SELECT nothing FROM samples'), { message: /^Binder Error: Referenced column "nothing" not found[^^]*$/ });
  const source = new CancellationTokenSource();
  const long = client.sendRequest('dwell/sql', { query: endless }, source.token);
  // The event loop and other questions are free meanwhile.
  assert.ok((await client.sendRequest<{ epochs: unknown[] }>('dwell/epochs', {})).epochs.length > 0);
  setTimeout(() => {
    source.cancel();
  }, 500);
  await assert.rejects(long, { code: -32800 });
  assert.deepEqual((await ask(client, 'SELECT 2')).rows, [[2]]);
  // A query that nobody waits for any more does not keep the server.
  ask(client, endless).catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 500));
  const ended = once(started.child, 'exit');
  await stop(started);
  assert.deepEqual((await ended).slice(0, 1), [0]);
});

test('without the library the error is one line that says what to do', { skip }, async () => {
  const { folder, database } = given();
  // As in a package: the server and its core alone, with no node_modules above them.
  const alone = join(folder, 'alone');
  mkdirSync(alone);
  for (const name of ['server.js', 'dwell-core.node']) copyFileSync(join(dirname(server), name), join(alone, name));
  const env = { ...process.env, HOME: alone, DWELL_DUCKDB: '' };
  const started = await startProgram(join(alone, 'server.js'), { database }, undefined, { env });
  await assert.rejects(ask(started.client, 'SELECT 1'), {
    code: -32803, message: /^no usable DuckDB: run `npm install --prefix ~ @duckdb\/node-bindings@[^\n]*DWELL_DUCKDB[^\n]*$/, data: { code: 'no-duckdb' },
  });
  await stop(started);
});
