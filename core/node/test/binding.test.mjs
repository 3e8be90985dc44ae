// The native module over a database that is empty, absent. What it answers about profiles is
// core/query's matter; here: promises, codes, cancellation, and that nothing crashes.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createRequire } from 'node:module';

const { Cancel, Dwell } = createRequire(import.meta.url)('../index.js');
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
    dwell.inclusive([], 1, cancel), dwell.hottestPaths([], 1, 8, cancel), dwell.fileFunctions([], '/x', cancel)];
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
