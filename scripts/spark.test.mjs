// Tests fleet/dwell_spark.py on a real cluster (a master, two workers) with a real store over s3a: what it makes must equal what one machine
// computes, row by row, and what Spark itself, ClickHouse and Trino sum up. It takes minutes: `npm run test:spark`, in `npm run check:full`.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { forSpark, forTrino } from './needs.mjs';
import { job, startCluster } from './spark.mjs';
import { target, top } from './step.mjs';
import { startTrino } from './trino.mjs';

const dwell = process.env.DWELL ?? [join(target, 'release/dwell'), join(target, 'debug/dwell')].find(existsSync);
const scratch = mkdtempSync(join(tmpdir(), 'dwell-spark-'));
const place = 's3://fleet/prod';
let cluster;

before(async () => {
  await forSpark();
  cluster = await startCluster({ folder: scratch, workers: 2 });
});
after(() => {
  cluster?.stop();
  rmSync(scratch, { recursive: true, force: true });
});

function told(words, env = {}) {
  const { status, stdout, stderr } = spawnSync(dwell, words, { env: { ...cluster.env, ...env }, encoding: 'utf8', maxBuffer: 2 ** 28 });
  assert.equal(status, 0, `dwell ${words.join(' ')}: ${stderr}`);
  return stdout;
}

/** Recordings of a program that is compiled here, and of gzip, by tables of counts. */
function database(recordings) {
  const program = join(scratch, 'spin');
  writeFileSync(`${program}.c`, `${Array.from({ length: 9 }, (_, n) => `__attribute__((noinline)) long spin${n}(long n) { long s = ${n}; while (n--) s += n ^ (s >> ${n + 1}); return s; }`).join('\n')}\nint main(int n, char **v) { return spin0(n)+spin1(n)+spin2(n)+spin3(n)+spin4(n)+spin5(n)+spin6(n)+spin7(n)+spin8(n) == 1; }\n`);
  assert.equal(spawnSync('gcc', ['-O1', '-o', program, `${program}.c`]).status, 0);
  const symbols = [...spawnSync('nm', [program], { encoding: 'utf8' }).stdout.matchAll(/([0-9a-f]+) T spin(\d)/g)];
  const db = join(scratch, 'db');
  for (let n = 1; n <= recordings; n++) {
    const rows = symbols.flatMap(([, address, number]) => [4, 8, 12].map((more) => `${program}\t${(parseInt(address, 16) + more).toString(16)}\t${100 * n + Number(number)}\n`));
    const gzip = Array.from({ length: 40 * n }, (_, row) => `/usr/bin/gzip\t${(0x4000 + 16 * row).toString(16)}\t${row + n}\n`);
    writeFileSync(join(scratch, 'counts.tsv'), [...rows, ...gzip].join(''));
    told(['import', '--db', db, '--counts', join(scratch, 'counts.tsv'), '--image', program, '--image', '/usr/bin/gzip', '--machine', 'amd-zen4', '--event', 'cycles', '--period', '1000', '--unit', 'cycles']);
  }
  return db;
}

/** A part of docs/fleet.md, about this store. */
const documented = (pattern) => readFileSync(join(top, 'docs/fleet.md'), 'utf8').match(pattern)[0].trim().replaceAll('profiles/production', 'fleet/prod').replaceAll('cpu-clock', 'cycles');

async function run(program, words) {
  const { status, stdout, stderr } = await cluster.submit(program, words);
  assert.equal(status, 0, stderr.split('\n').filter((line) => !/ (INFO|WARN) /.test(line)).slice(-30).join('\n'));
  return JSON.parse(stdout.trim().split('\n').at(-1));
}

const tables = ['instructions', 'stalls', 'blocks', 'edges', 'analyses'];
const rows = (table, where, env) => told(['sql', '--db', where, '--format', 'csv', `SELECT * FROM ${table} ORDER BY ALL`], env);

test('roll-ups and analyses of a cluster are those of one machine', async () => {
  const db = database(6);
  told(['push', '--db', db, '--to', place, '--binaries']);
  told(['push', '--db', db, '--to', 's3://fleet/alone', '--binaries']);
  const words = ['--db', place, '--dwell', dwell, '--today', '--recordings', '3', '--tables', tables.join(), '--share', '1'];
  const done = await run(job, words);
  assert.deepEqual([done.roll_ups.made, done.roll_ups.recordings], [2, 6]);
  // The same by one machine alone.
  const alone = JSON.parse(told(['roll-up', '--db', 's3://fleet/alone', '--today', '--recordings', '3', '--json']));
  assert.equal(alone.roll_ups.length, 2);
  const elsewhere = { XDG_CACHE_HOME: join(scratch, 'another-cache') };
  for (const table of tables) {
    const computed = rows(table, 's3://fleet/alone?rollups=shown', elsewhere);
    assert.equal(rows(table, `${place}?rollups=shown`, elsewhere), computed, table);
    assert.equal(done[table].rows, computed.trim().split('\n').length - 1, `${table}: all of them were stored`);
    assert.equal(done[table].images, 4, 'two binaries in two roll-ups');
  }
  // What is done is not done again.
  const again = await run(job, words);
  assert.deepEqual([again.roll_ups.made, ...tables.map((table) => again[table].images)], [0, 0, 0, 0, 0, 0]);
  // Another machine without the binary answers as the one with it, from what Spark stored.
  const program = join(scratch, 'spin');
  const question = ['annotate', 'spin3', '--db', `${place}?rollups=shown`, '--json'];
  const before = JSON.parse(told(question, elsewhere));
  const authorization = 'AWS4-HMAC-SHA256 Credential=key/20261127/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0';
  const removed = await fetch(`${cluster.env.AWS_ENDPOINT_URL}/fleet/prod/images/${before.image.build_id}.zst`, { method: 'DELETE', headers: { authorization } });
  assert.equal(removed.status, 204);
  renameSync(program, `${program}-away`);
  const after = JSON.parse(told(question, { XDG_CACHE_HOME: join(scratch, 'third-cache') }));
  renameSync(`${program}-away`, program);
  assert.match(after.notes.join(), /was stored beside the recordings/);
  assert.deepEqual(after.blocks, before.blocks);
  assert.deepEqual(after.instructions, before.instructions.map((i) => ({ ...i, operands: [] })));
});

test("Spark's own sums of the raw segments are those of dwell's roll-ups, count by count", async () => {
  const sums = join(scratch, 'sums.py');
  writeFileSync(sums, `
import json, sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.config("spark.hadoop.fs.s3a.endpoint", sys.argv[1]).config("spark.hadoop.fs.s3a.path.style.access", "true").getOrCreate()
spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
${documented(/^ {4}segments = .*$/m)}
assert dict(segments.dtypes)["offset"] == dict(segments.dtypes)["count"] == "bigint", segments.dtypes
rows = segments.groupBy("image", "event", "offset", "app").agg(F.sum("count").alias("count")).collect()
hosts = segments.groupBy("host", "image").agg(F.sum("count").alias("count")).collect()
print(json.dumps({"rows": sorted([r.image, r.event, r.offset, r.app, r["count"]] for r in rows), "hosts": sorted([r.host, r.image, r["count"]] for r in hosts)}))
`);
  const spark = await run(sums, [cluster.env.AWS_ENDPOINT_URL]);
  const ours = (query, where) => JSON.parse(told(['sql', '--db', where, '--json', query])).rows.map(Object.values);
  const sorted = (all) => all.map((row) => JSON.stringify(row)).sort();
  const shown = `${place}?rollups=shown`;
  assert.deepEqual(sorted(ours('SELECT image, event, "offset", app, sum(count)::BIGINT AS n FROM samples GROUP BY ALL', shown)), sorted(spark.rows));
  assert.deepEqual(sorted(ours('SELECT host, image, sum(count)::BIGINT AS n FROM totals GROUP BY ALL', place)), sorted(spark.hosts));
});

test('ClickHouse reads totals as docs/fleet.md says', async () => {
  const query = documented(/^ {4}SELECT host, path[^]*?LIMIT 10$/m).replace(/https:[^']*?production/, `${cluster.env.AWS_ENDPOINT_URL}/fleet/prod`);
  const { status, stdout, stderr } = spawnSync(join(target, 'spark/bin/python'), ['-c', 'import chdb, sys; print(chdb.query(sys.argv[1], "CSV"))', query], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  const ours = told(['sql', '--db', place, '--format', 'csv', "SELECT host, path, sum(count)::BIGINT AS samples FROM totals WHERE event = 'cycles' GROUP BY ALL ORDER BY samples DESC"]);
  assert.deepEqual(stdout.trim().replaceAll('"', '').split('\n').sort(), ours.trim().split('\n').slice(1).sort());
});

test('Trino reads totals as docs/fleet.md says', async () => {
  await forTrino();
  const trino = await startTrino({ folder: join(scratch, 'trino'), store: cluster.env.AWS_ENDPOINT_URL });
  try {
    const [table, call, query] = documented(/^ {4}CREATE TABLE totals[^]*?LIMIT 10$/m).split(/;\s*/);
    await trino.ask('CREATE SCHEMA "default"');
    await trino.ask(table);
    await trino.ask(call);
    const ours = JSON.parse(told(['sql', '--db', place, '--json', "SELECT host, path, sum(count)::BIGINT AS samples FROM totals WHERE event = 'cycles' GROUP BY ALL"])).rows.map(Object.values);
    const sorted = (rows) => rows.map((row) => JSON.stringify(row)).sort();
    assert.ok(ours.length > 1);
    assert.deepEqual(sorted(await trino.ask(query)), sorted(ours));
  } finally {
    trino.stop();
  }
});

test('a worker that dies costs time alone', async () => {
  told(['push', '--db', join(scratch, 'db'), '--to', 's3://fleet/dying', '--binaries']);
  const words = ['--db', 's3://fleet/dying', '--dwell', dwell, '--today', '--recordings', '2', '--tables', 'instructions', '--share', '1'];
  const running = run(job, words);
  // Its executors are there a few seconds after the start; then they are gone.
  await pause(12_000);
  cluster.nodes[0].kill('SIGKILL');
  const done = await running;
  assert.deepEqual([done.roll_ups.recordings, done.instructions.images], [6, 6]);
  const total = (where) => JSON.parse(told(['top', '--db', where, '--epoch', 'all', '--by', 'image', '--json'])).total;
  assert.deepEqual(total('s3://fleet/dying'), total(join(scratch, 'db')));
  const stored = JSON.parse(told(['sql', '--db', 's3://fleet/dying?rollups=shown', '--json', 'SELECT count(*) AS n, count(DISTINCT (epoch, image, procedure, address)) AS d FROM instructions'])).rows[0];
  assert.ok(stored.n > 0 && stored.n === stored.d, `nothing is there twice: ${JSON.stringify(stored)}`);
});

test('what cannot be is one clear line', async () => {
  for (const [words, pattern] of [
    [['--db', 'prod'], /--db: prod is no place in an object store: expected s3/],
    [['--db', place, '--tables', 'secrets'], /there is no table secrets: expected some of instructions/],
    [['--db', 's3://no-such-bucket/x', '--dwell', dwell], /no-such-bucket.*NoSuchBucket/],
    [['--db', place, '--dwell', '/no/such/dwell'], /\/no\/such\/dwell/],
  ]) {
    // Spark passes the standard error of a Python program on as its standard output.
    const { status, stdout } = await cluster.submit(job, words);
    assert.notEqual(status, 0);
    assert.match(stdout, pattern);
    assert.doesNotMatch(stdout, /Traceback/);
  }
});
