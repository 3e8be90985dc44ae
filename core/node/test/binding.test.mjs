// The native module over a database that is empty, absent. What it answers about profiles is
// core/query's matter; here: promises, codes, cancellation, and that nothing crashes.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createRequire } from 'node:module';

const { Cancel, Dwell } = createRequire(import.meta.url)('../index.js');
/** DuckDB's library is looked for above it. */
const program = import.meta.filename;
const folder = mkdtempSync(join(tmpdir(), 'dwell-core-'));
after(() => rmSync(folder, { recursive: true }));

/** What an asynchronous call fails with. */
const failure = (promise) => promise.then(() => assert.fail('it did not fail'), (error) => error);

test('an empty database has no epochs, and nothing to rank', async () => {
  const dwell = Dwell.open({ database: folder });
  assert.deepEqual(await dwell.epochs(), { schema: 1, epochs: [], warnings: [] });
  const error = await failure(dwell.top({ epochs: ['latest'] }));
  assert.ok(error instanceof Error);
  assert.match(error.code, /^[a-z]+(-[a-z]+)*$/);
  assert.notEqual(error.message, '');
});

test('a call that was cancelled before it began rejects with its code', async () => {
  const dwell = Dwell.open({ database: folder });
  const cancel = new Cancel();
  cancel.cancel();
  const calls = [dwell.epochs(cancel), dwell.top({ epochs: [] }, cancel), dwell.listing([], 'x', cancel), dwell.fileCosts([], '/x', cancel),
    dwell.lineDetail([], '/x', 1, cancel), dwell.diff({ a: [], b: [] }, cancel), dwell.fileChanges({ a: [], b: [] }, '/x', cancel),
    dwell.summary({ epochs: [] }, cancel), dwell.stats({ epochs: [] }, cancel), dwell.callers({ epochs: [], function: 'x' }, cancel),
    dwell.inclusive([], 1, cancel), dwell.sql({ query: 'SELECT 1', program }, cancel), dwell.hottestPaths([], 1, 8, cancel), dwell.fileFunctions([], '/x', cancel)];
  // All are listened to at once: a rejection that nobody hears yet is an error of the test's.
  const errors = await Promise.all(calls.map(failure));
  assert.deepEqual(errors.map(({ code }) => code), Array(calls.length).fill('cancelled'));
});

test('what is not there cannot be compared, named or removed, and the error says why', async () => {
  const dwell = Dwell.open({ database: folder, sourceMap: [['/build', '/home']], debugDirs: ['/nowhere'] });
  const calls = [dwell.diff({ a: ['x'], b: ['latest'] }), dwell.summary({ epochs: [] }), dwell.renameEpoch('x', 'y'), dwell.removeEpochs(['latest']), dwell.removeEpochs(['..'])];
  for (const { code, message } of await Promise.all(calls.map(failure))) {
    assert.match(code, /^(empty-database|no-epoch|database)$/);
    assert.notEqual(message, '');
  }
  assert.deepEqual(await dwell.removeEpochs([]), []);
});

test('wrong arguments throw; they do not crash', () => {
  const dwell = Dwell.open({ database: folder });
  assert.throws(() => dwell.top({ epochs: [], by: 'colour' }), { code: 'bad-request', message: /colour/ });
  assert.throws(() => dwell.top(7));
  assert.throws(() => dwell.listing('latest', 4));
  assert.throws(() => dwell.fileCosts(['latest'], '/x', {}));
  assert.throws(() => Dwell.open({}));
});

test('many calls at once are all answered, off the main thread', async () => {
  const dwell = Dwell.open({ database: folder });
  const answers = await Promise.all(Array.from({ length: 200 }, () => dwell.epochs()));
  assert.equal(answers.length, 200);
});

const endless = 'SELECT sum(hash(range) % 7) FROM range(100000000000000)';

test('a query in SQL has rows, a limit and a time, and is cancelled; nothing but the tables can be read', async (t) => {
  const dwell = Dwell.open({ database: folder });
  const sql = (query, more = {}, cancel = undefined) => dwell.sql({ query, program, ...more }, cancel);
  const first = await sql("SELECT 1 AS one, 9007199254740993 AS large, 'x' AS text, NULL AS nothing").catch((error) => error);
  if (first.code === 'no-duckdb') {
    console.log(`SKIPPED binding sql: ${first.message}`);
    t.skip();
    return;
  }
  assert.deepEqual(first.columns, [['one', 'INTEGER'], ['large', 'BIGINT'], ['text', 'VARCHAR'], ['nothing', 'INTEGER']].map(([name, type]) => ({ name, type })));
  assert.deepEqual(first.rows, [[1, '9007199254740993', 'x', null]]);
  assert.deepEqual([first.more, first.notes.length], [false, 1], 'the note says that the database is empty');
  const some = await sql('FROM range(5000)');
  assert.deepEqual([some.rows.length, some.rows.at(-1), some.more], [1000, [999], true]);
  for (const [query, code] of [["SELECT * FROM read_text('/etc/passwd')", 'sql'], ["COPY samples TO '/tmp/x'", 'not-a-query'], ["ATTACH '/tmp/x'", 'not-a-query'], ['INSTALL httpfs', 'not-a-query'], ['LOAD httpfs', 'not-a-query'], ['SELEC 1', 'sql']]) {
    const error = await failure(sql(query));
    assert.deepEqual([error.code, error.message.includes('LINE 1')], [code, false], query);
  }
  const late = await failure(sql(endless, { seconds: 1 }));
  assert.match(late.message, /^the query took more than 1 s: /);
  const cancel = new Cancel();
  const cancelled = failure(sql(endless, {}, cancel));
  // The main thread is free meanwhile, and other questions are answered.
  assert.deepEqual((await dwell.epochs()).epochs, []);
  cancel.cancel();
  assert.equal((await cancelled).code, 'cancelled');
});

test('without the library a query fails with one line that says what to do', async () => {
  const { HOME, DWELL_DUCKDB } = process.env;
  Object.assign(process.env, { HOME: folder, DWELL_DUCKDB: '' });
  const error = await failure(Dwell.open({ database: folder }).sql({ query: 'SELECT 1', program: join(folder, 'dwell-core.node') }));
  process.env.HOME = HOME ?? '';
  process.env.DWELL_DUCKDB = DWELL_DUCKDB ?? '';
  assert.equal(error.code, 'no-duckdb');
  assert.match(error.message, /^no usable DuckDB: run `npm install --prefix ~ @duckdb\/node-bindings@[^\n]*$/);
});
