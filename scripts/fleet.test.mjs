// Tests `dwell push` and `--db s3://…` with a real S3 server, moto, behind a proxy that fails as networks and stores do. Counts must be
// those of the database that was sent, one by one. `DWELL_KILLS=200` kills so often (12 by default): `npm run test:fleet`.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { target, top } from './step.mjs';

const dwell = process.env.DWELL ?? [join(target, 'release/dwell'), join(target, 'debug/dwell')].find(existsSync);
const moto = join(target, 'moto/bin/moto_server');
const kills = Number(process.env.DWELL_KILLS ?? 12);
const scratch = mkdtempSync(join(tmpdir(), 'dwell-fleet-'));
const secret = 'se/cret+that-nobody-may-see';
const skip = existsSync(moto) ? false : `no moto at ${moto}`;
after(() => rmSync(scratch, { recursive: true, force: true }));

/** A store, and a proxy before it whose requests fail with a probability, in one of three ways. */
let store;
let proxy;
const faults = { probability: 0, denies: false, damages: undefined, seen: [] };

const listening = (server) => new Promise((done) => server.listen(0, '127.0.0.1', () => done(server.address().port)));

/** Passes bytes on, with the 21st changed. */
const damaged = (stream) => {
  let at = 0;
  return stream.pipe(new Transform({
    transform(bytes, _, done) {
      if (at <= 20 && at + bytes.length > 20) bytes[20 - at] ^= 255;
      at += bytes.length;
      done(null, bytes);
    },
  }));
};

function forward(asked, answer) {
  const chance = Math.random();
  faults.seen.push(`${asked.method} ${asked.url}`);
  if (faults.denies) {
    answer.writeHead(403).end('<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>');
    return;
  }
  if (chance < faults.probability / 3) {
    asked.resume();
    answer.writeHead(503).end('<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>');
    return;
  }
  if (chance < (faults.probability * 2) / 3) {
    asked.socket.destroy();
    return;
  }
  const { method, url, headers } = asked;
  const inner = request({ host: '127.0.0.1', port: store.port, method, path: url, headers }, (got) => {
    // The store has done it, and nobody learns of it.
    if (chance < faults.probability) asked.socket.destroy();
    else if (faults.damages && method === 'GET' && decodeURIComponent(url).includes(faults.damages)) damaged(got).pipe(answer.writeHead(got.statusCode, got.headers));
    else got.pipe(answer.writeHead(got.statusCode, got.headers));
  });
  inner.on('error', () => asked.socket.destroy());
  asked.pipe(inner);
}

const url = () => `http://127.0.0.1:${proxy.port}`;
/** A request to the store itself. It wants to know who asks, and verifies no signature. */
const ask = (method, path, body) => fetch(`http://127.0.0.1:${store.port}${path}`, { method, body, headers: { authorization: 'AWS4-HMAC-SHA256 Credential=key/20261127/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0' } });
async function remove(key) {
  const { status } = await ask('DELETE', `/fleet/${key}`);
  assert.equal(status, 204, `DELETE ${key}`);
}

before(async () => {
  if (skip) return;
  const free = createServer();
  const port = await listening(free);
  await new Promise((done) => free.close(done));
  const child = spawn(moto, ['-H', '127.0.0.1', '-p', String(port)], { stdio: 'ignore' });
  store = { port, child };
  const server = createServer(forward);
  proxy = { port: await listening(server), server };
  for (let tries = 0; ; tries++) {
    const status = await ask('PUT', '/fleet').then(({ status }) => status, () => 0);
    if (status === 200) break;
    assert.ok(tries < 300, `moto does not answer: ${status}`);
    await pause(100);
  }
});
after(() => {
  store?.child.kill();
  proxy?.server.close();
  proxy?.server.closeAllConnections();
});

const environment = (more = {}) => ({
  PATH: process.env.PATH,
  HOME: scratch,
  AWS_ENDPOINT_URL: url(),
  AWS_ACCESS_KEY_ID: 'key',
  AWS_SECRET_ACCESS_KEY: secret,
  AWS_REGION: 'us-east-1',
  ...more,
});

/** Runs dwell without blocking the proxy; returns its output and how it ended. Secrets are nowhere in it. */
function run(words, { env = {}, killAfter } = {}) {
  const child = spawn(dwell, words, { env: environment(env), stdio: ['ignore', 'pipe', 'pipe'] });
  const told = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr']) child[stream].on('data', (bytes) => (told[stream] += bytes));
  const timer = killAfter === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), killAfter);
  return new Promise((done) => {
    child.on('close', (status) => {
      clearTimeout(timer);
      assert.ok(!`${told.stdout}${told.stderr}`.includes(secret) && !told.stderr.includes('X-Amz'), told.stderr);
      done({ status, ...told });
    });
  });
}

async function told(words, options) {
  const done = await run(words, options);
  assert.equal(done.status, 0, `dwell ${words.join(' ')}: ${done.stderr}`);
  return done.stdout;
}
const json = async (words, options) => JSON.parse(await told([...words, '--json'], options));

async function refused(words, pattern, options) {
  const { status, stderr } = await run(words, options);
  assert.equal(status, words.includes('record') ? 125 : 1, `dwell ${words.join(' ')}: ${stderr}`);
  assert.match(stderr, pattern);
  assert.equal(stderr.trim().split('\n').length, 1, stderr);
}

const machine = ['--machine', 'amd-zen4', '--event', 'cycles', '--period', '1000', '--unit', 'cycles'];

/** A database with some recordings of gzip by a table of counts, for machines that let nobody sample. */
async function database(name, recordings = 3) {
  const folder = join(scratch, name);
  for (let n = 1; n <= recordings; n++) {
    const table = join(scratch, 'counts.tsv');
    const rows = Array.from({ length: 50 * n }, (_, row) => `/usr/bin/gzip\t${(0x4000 + 16 * row).toString(16)}\t${row + n}\n`);
    writeFileSync(table, rows.join(''));
    await told(['import', '--db', folder, '--counts', table, '--image', '/usr/bin/gzip', ...machine, '--name', `r${n}`]);
  }
  return folder;
}

/** All samples of a database by recording, binary and place. */
async function samples(place, options) {
  const query = 'SELECT epoch, image, event, "offset", app, instance, sum(count) AS n FROM samples GROUP BY ALL ORDER BY ALL';
  return told(['sql', '--db', place, '--format', 'csv', query], options);
}

const objects = async (prefix) => [...(await (await ask('GET', `/fleet?list-type=2&max-keys=1000&prefix=${prefix}`)).text()).matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key]) => key);

test('what is sent is what is read', { skip }, async () => {
  const folder = await database('plain');
  const state = { env: { XDG_STATE_HOME: join(scratch, 'state') } };
  const first = await json(['push', '--db', folder, '--to', 's3://fleet/plain'], state);
  assert.equal(first.epochs.length, 3);
  assert.equal((await json(['push', '--db', folder, '--to', 's3://fleet/plain'], state)).objects, 0);
  // What was sent is forgotten: the store is asked, and nothing is sent again.
  rmSync(join(scratch, 'state'), { recursive: true });
  const again = await json(['push', '--db', folder, '--to', 's3://fleet/plain'], state);
  assert.deepEqual([again.known, again.objects], [3, 0]);
  assert.equal(await samples('s3://fleet/plain'), await samples(folder));
  for (const words of [['top', '-n', '0', '--epoch', 'all'], ['top', '--by', 'image'], ['annotate'], ['epoch', 'list'], ['diff', 'r1', 'r3']]) {
    assert.deepEqual(await json([...words, '--db', 's3://fleet/plain']), await json([...words, '--db', folder]), words.join(' '));
  }
  // From the cache alone, but for the list.
  faults.seen = [];
  await json(['top', '--db', 's3://fleet/plain', '--epoch', 'all']);
  assert.deepEqual(faults.seen.map((line) => line.split('?')[0]), ['GET /fleet/plain/FORMAT', 'GET /fleet/', 'GET /fleet/']);
});

test('other engines read the samples as docs/fleet.md says', { skip }, async () => {
  const folder = await database('engines');
  await told(['push', '--db', folder, '--to', 's3://fleet/engines']);
  const env = { XDG_CACHE_HOME: join(scratch, 'cache-engines') };
  await samples('s3://fleet/engines', { env });
  // A copy of the bucket, made of the cache; in one folder with a segment that another one contains.
  const [cache] = readdirSync(join(env.XDG_CACHE_HOME, 'dwell/fleet'));
  const epochs = join(env.XDG_CACHE_HOME, 'dwell/fleet', cache, 'epochs');
  const ids = readdirSync(epochs);
  for (const id of ids) cpSync(join(epochs, id), join(scratch, 'copy/epochs/date=2026-11-27/host=a', id), { recursive: true });
  const segment = join(scratch, 'copy/epochs/date=2026-11-27/host=a', ids[0], 'segment-000001');
  cpSync(`${segment}.parquet`, `${segment}-000002.parquet`);
  const documented = readFileSync(join(top, 'docs/fleet.md'), 'utf8').match(/^ {4}WITH rows AS[^]*?LIMIT 10$/m)[0];
  const query = documented.replace("'copy/", `'${scratch}/copy/`).replace('cpu-clock', 'cycles');
  const duckdb = createRequire(import.meta.url)('@duckdb/node-bindings');
  const connection = await duckdb.connect(await duckdb.open(':memory:'));
  const chunk = await duckdb.fetch_chunk(await duckdb.query(connection, `SELECT sum(samples)::BIGINT FROM (${query})`));
  const data = duckdb.vector_get_data(duckdb.data_chunk_get_vector(chunk, 0), 8);
  const sum = new DataView(data.buffer, data.byteOffset).getBigInt64(0, true);
  const ours = await told(['sql', '--db', folder, '--format', 'csv', "SELECT sum(count)::BIGINT FROM samples WHERE event = 'cycles'"]);
  assert.equal(String(sum), ours.trim().split('\n')[1]);
});

test('hosts and dates choose', { skip }, async () => {
  const folder = await database('chosen', 1);
  await told(['push', '--db', folder, '--to', 's3://fleet/chosen']);
  const count = async (place, ...more) => (await json(['epoch', 'list', '--db', place, ...more])).epochs.length;
  const today = new Date().toISOString().slice(0, 10);
  const host = (await json(['epoch', 'list', '--db', folder])).epochs[0].host;
  assert.equal(await count('s3://fleet/chosen', '--host', `${host},other`), 1);
  assert.equal(await count('s3://fleet/chosen', '--host', 'other'), 0);
  assert.equal(await count(`s3://fleet/chosen?host=${host}&since=${today}&until=${today}`), 1);
  assert.equal(await count('s3://fleet/chosen?since=2999-01-01'), 0);
  assert.equal(await count('s3://fleet/chosen?until=2000-01-01'), 0);
  await refused(['top', '--db', folder, '--host', 'a'], /--host selects among the recordings in a bucket/);
  await refused(['top', '--db', 's3://fleet/chosen', '--host', 'other'], /host=other: no recordings are there; `dwell push`/);
});

test('roll-ups give the answers of their recordings, and are read in place of them', { skip }, async () => {
  const folder = await database('summed', 4);
  const place = 's3://fleet/summed';
  const fresh = (name) => ({ env: { XDG_CACHE_HOME: join(scratch, `cache-summed-${name}`) } });
  await told(['push', '--db', folder, '--to', place]);
  const all = ['--epoch', 'all', '-n', '0'];
  const rows = ({ rows }) => rows.map(({ image, procedure, file, line, app, samples }) => ({ image, procedure, file, line, app, samples }));
  const questions = [['top', ...all], ['top', '--by', 'image', ...all], ['top', '--by', 'app', ...all], ['top', '--by', 'line', ...all]];
  const totals = (db, options) => told(['sql', '--db', db, '--format', 'csv', 'SELECT * FROM totals ORDER BY ALL'], options);
  const before = [];
  for (const words of questions) before.push(await json([...words, '--db', folder]));
  // Recordings of today wait for the end of the day. A plan changes nothing.
  assert.equal((await json(['roll-up', '--db', place])).roll_ups.length, 0);
  const { groups } = await json(['roll-up', '--db', place, '--today', '--plan']);
  assert.deepEqual(groups.map((ids) => ids.length), [4]);
  assert.equal((await objects('summed/rollups/')).length, 0);
  // Part of the plan; what is left of it, in roll-ups of three at most; and then there is nothing to do.
  const [made] = (await json(['roll-up', '--db', place, '--only', groups[0].slice(0, 2).join()])).roll_ups;
  assert.equal(made.recordings, 2);
  assert.equal((await json(['roll-up', '--db', place, '--today', '--recordings', '3'])).roll_ups[0].recordings, 2);
  assert.equal((await json(['roll-up', '--db', place, '--today'])).roll_ups.length, 0);
  faults.seen = [];
  for (const [at, words] of questions.entries()) {
    const answer = await json([...words, '--db', place], fresh('answers'));
    assert.deepEqual(rows(answer), rows(before[at]), words.join(' '));
    assert.deepEqual(answer.total, before[at].total);
    assert.equal(answer.epochs.length, 2, 'two roll-ups are read');
  }
  assert.equal(await totals(place, fresh('answers')), await totals(folder));
  assert.ok(!faults.seen.some((line) => line.includes('/summed/epochs/')), 'no recording was fetched');
  // Single recordings are there as before, and so are questions that roll-ups cannot answer.
  assert.deepEqual(await json(['epoch', 'list', '--db', place]), await json(['epoch', 'list', '--db', folder]));
  assert.deepEqual(await json(['top', '--by', 'instance', ...all, '--db', place]), await json(['top', '--by', 'instance', ...all, '--db', folder]));
  assert.equal(await samples(place), await samples(folder));
  // A later recording is read beside the roll-ups.
  const table = join(scratch, 'late.tsv');
  writeFileSync(table, '/usr/bin/gzip\t4000\t1000\n');
  await told(['import', '--db', folder, '--counts', table, '--image', '/usr/bin/gzip', ...machine, '--name', 'late']);
  await told(['push', '--db', folder, '--to', place]);
  const later = await json(['top', ...all, '--db', place]);
  assert.deepEqual([later.total, later.epochs.length], [(await json(['top', ...all, '--db', folder])).total, 3]);
  assert.equal(await totals(place), await totals(folder));
  // A damaged roll-up is left out and said; the recordings are read.
  faults.damages = `${made.epoch}/recordings`;
  const damaged = await json(['top', ...all, '--db', place], fresh('damaged'));
  assert.deepEqual([damaged.total, damaged.epochs.length], [later.total, 4]);
  assert.match((await json(['epoch', 'list', '--db', place], fresh('damaged'))).warnings.join('\n'), new RegExp(`the roll-up ${made.epoch}: `));
  faults.damages = undefined;
  // Rules of the store remove recordings: their roll-up outlives them.
  for (const key of await objects('summed/epochs/')) if (key.includes(groups[0][0])) await remove(key);
  const outlived = await json(['top', ...all, '--db', place], fresh('outlived'));
  assert.deepEqual([outlived.total, outlived.epochs.length], [later.total, 3]);
  assert.equal((await json(['epoch', 'list', '--db', place], fresh('outlived'))).epochs.length, 4);
  await refused(['roll-up', '--db', folder], /only recordings in an object store are summed up/);
  await refused(['roll-up', '--db', place, '--host', 'a'], /only since and until can choose/);
});

test(`nothing is lost or doubled by ${kills} kills and one failure in ten`, { skip, timeout: 1_800_000 }, async () => {
  const folder = await database('killed', 6);
  const local = await samples(folder);
  const env = { XDG_STATE_HOME: join(scratch, 'killed-state') };
  const words = ['push', '--db', folder, '--to', 's3://fleet/killed', '--rate', '60K'];
  faults.probability = 0.1;
  const sums = (place, options) => run(['sql', '--db', place, '--format', 'csv', 'SELECT epoch, sum(count) AS n FROM samples GROUP BY ALL ORDER BY ALL'], options);
  const here = (await sums(folder)).stdout;
  for (let killed = 0; killed < kills; ) {
    // A push takes about 250 ms. One that comes to its end is done anew, and now and then the host forgets what it sent.
    const { status } = await run(words, { env, killAfter: 5 + Math.random() * 250 });
    if (status === 0) for (const key of await objects('killed/')) await remove(key);
    else killed++;
    if (status === 0 || killed % 5 === 0) rmSync(env.XDG_STATE_HOME, { recursive: true, force: true });
    if (killed % 4 > 0) continue;
    // Whatever is there is whole.
    const there = (await sums('s3://fleet/killed', { env: { XDG_CACHE_HOME: join(scratch, `cache-${killed}`) } })).stdout;
    for (const line of there.trim().split('\n')) assert.ok(here.includes(line), `after kill ${killed}: ${line}`);
  }
  const last = await json(words, { env });
  assert.equal(last.epochs.length + last.known, 6);
  assert.equal(await samples('s3://fleet/killed'), local);
  faults.probability = 0;
  assert.equal(await samples('s3://fleet/killed', { env: { XDG_CACHE_HOME: join(scratch, 'cache-last') } }), local);
});

test('symbols go along, and binaries when they are asked for', { skip }, async () => {
  const folder = join(scratch, 'binary');
  const program = join(scratch, 'spin');
  writeFileSync(join(scratch, 'spin.c'), '__attribute__((noinline)) long spin(long n) { long s = 0; while (n--) s += n ^ s; return s; }\nint main(void) { return spin(3000000) == 1; }\n');
  assert.equal(spawnSync('gcc', ['-O1', '-o', program, join(scratch, 'spin.c')]).status, 0);
  const nm = spawnSync('nm', [program], { encoding: 'utf8' }).stdout;
  const address = nm.match(/([0-9a-f]+) T spin/)[1];
  writeFileSync(join(scratch, 'spin.tsv'), `${program}\t${address}\t100\n`);
  await told(['import', '--db', folder, '--counts', join(scratch, 'spin.tsv'), '--image', program, ...machine]);
  assert.equal((await json(['push', '--db', folder, '--to', 's3://fleet/nameless', '--no-symbols'])).symbols, 0);
  assert.equal((await json(['push', '--db', folder, '--to', 's3://fleet/symbols'])).symbols, 1);
  const sent = await json(['push', '--db', folder, '--to', 's3://fleet/named', '--binaries']);
  assert.deepEqual([sent.binaries, sent.symbols], [[program], 1]);
  const other = join(scratch, 'other');
  cpSync(folder, other, { recursive: true });
  assert.deepEqual((await json(['push', '--db', other, '--to', 's3://fleet/named', '--binaries'], { env: { XDG_STATE_HOME: join(scratch, 'none') } })).binaries, []);
  renameSync(program, `${program}.gone`);
  const names = async (place) => (await json(['top', '--db', place])).rows.map((row) => row.procedure ?? row.name);
  assert.deepEqual(await names('s3://fleet/named'), ['spin']);
  assert.doesNotMatch((await names('s3://fleet/nameless')).join(), /spin/);
  // Symbols give names, and no listing.
  assert.deepEqual(await names('s3://fleet/symbols'), ['spin']);
  assert.match((await json(['top', '--db', 's3://fleet/symbols'])).notes.join(), /spin.*: names are those that were sent along/);
  assert.match(await told(['sql', '--db', 's3://fleet/symbols', "SELECT procedure FROM procedure_samples"]), /spin/);
  await refused(['annotate', '--db', 's3://fleet/symbols', 'spin'], /'spin' has no listing: cannot read .*spin/);
  faults.damages = 'symbols/symbols/';
  assert.match((await json(['top', '--db', 's3://fleet/symbols'], { env: { XDG_CACHE_HOME: join(scratch, 'cache-symbols') } })).notes.join(), /parquet.*checksum/);
  faults.damages = undefined;
  assert.match(await told(['annotate', '--db', 's3://fleet/named', 'spin']), /lea rdx/);
});

test('a web identity is exchanged for credentials, and an expired one anew', { skip }, async () => {
  const folder = await database('identity', 1);
  const token = join(scratch, 'token');
  writeFileSync(token, 'the-token\n');
  let asked = [];
  const sts = createServer((question, answer) => {
    let body = '';
    question.on('data', (bytes) => (body += bytes));
    question.on('end', () => {
      asked.push(Object.fromEntries(new URLSearchParams(body)));
      answer.end(`<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>x</SubjectFromWebIdentityToken><Credentials><SessionToken>session-${asked.length}</SessionToken><SecretAccessKey>${secret}</SecretAccessKey><Expiration>2099-01-01T00:00:00Z</Expiration><AccessKeyId>role-key</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>`);
    });
  });
  const port = await listening(sts);
  const env = { AWS_ACCESS_KEY_ID: '', AWS_WEB_IDENTITY_TOKEN_FILE: token, AWS_ROLE_ARN: 'arn:aws:iam::1:role/dwell', AWS_ENDPOINT_URL_STS: `http://127.0.0.1:${port}/` };
  faults.seen = [];
  await told(['push', '--db', folder, '--to', 's3://fleet/identity'], { env });
  assert.deepEqual(asked.map(({ Action, RoleArn, WebIdentityToken }) => [Action, RoleArn, WebIdentityToken]), [['AssumeRoleWithWebIdentity', env.AWS_ROLE_ARN, 'the-token']]);
  assert.ok(faults.seen.every((line) => line.includes('X-Amz-Credential=role-key%2F') || line.includes('X-Amz-Credential=role-key/')), faults.seen[0]);
  assert.ok(faults.seen.every((line) => line.includes('session-1')));
  sts.close();
  await refused(['push', '--db', folder, '--to', 's3://fleet/identity'], /token: No such file/, { env: { ...env, AWS_WEB_IDENTITY_TOKEN_FILE: join(scratch, 'no-token') } });
});

test('what cannot be is one clear line', { skip }, async () => {
  const folder = await database('bad', 1);
  const push = (to) => ['push', '--db', folder, '--to', to];
  await refused(push('s3://no-such-bucket/x'), /no-such-bucket.*NoSuchBucket.*there is no such bucket/);
  await refused(push('gs://fleet/x'), /gs:\/\/fleet\/x: it does not begin with s3/);
  await refused(push('s3://fleet/../x'), /`\.\.`/);
  await refused(push('s3://fleet/x?host=a'), /choose what is read/);
  await refused(push('s3://fleet/x'), /no credentials.*AWS_ACCESS_KEY_ID/, { env: { AWS_ACCESS_KEY_ID: '' } });
  for (const words of [['record', '--', 'true'], ['epoch', 'remove', 'latest'], ['import', 'x'], ['daemon']]) {
    await refused(['--db', 's3://fleet/x', ...words], /recordings in a bucket are only read/);
  }
  faults.denies = true;
  await refused(['top', '--db', 's3://fleet/plain'], /AccessDenied.*may not do this here/);
  await refused(push('s3://fleet/denied'), /AccessDenied/);
  faults.denies = false;
  await ask('PUT', '/fleet/newer/FORMAT', 'dwell fleet 9\n');
  await refused(['top', '--db', 's3://fleet/newer'], /version 9.*use a newer dwell/);
  await ask('PUT', '/fleet/foreign/FORMAT', 'something else');
  await refused(['top', '--db', 's3://fleet/foreign'], /not the marker of a fleet/);
  await refused(push('s3://fleet/foreign'), /not the marker of a fleet/);
});

test('foreign, half-sent and damaged objects are left out, and said', { skip }, async () => {
  const folder = await database('mixed', 2);
  await told(['push', '--db', folder, '--to', 's3://fleet/mixed']);
  const keys = await objects('mixed/epochs/');
  const [first, second] = keys.filter((key) => key.endsWith('epoch.json')).map((key) => key.slice(0, -'epoch.json'.length));
  await ask('PUT', '/fleet/mixed/epochs/date=2026-01-01/host=x/notes.txt', 'mine');
  await ask('PUT', '/fleet/mixed/epochs/date=2026-01-01/host=x/20260101T000000Z-000001/segment-000001.parquet', 'half sent');
  await ask('PUT', '/fleet/mixed/epochs/date=2026-01-01/host=%2e%2e/20260101T000000Z-000001/epoch.json', '{}');
  assert.equal(await samples('s3://fleet/mixed'), await samples(folder));
  faults.damages = `${first}segment-000001.parquet`;
  const fresh = { env: { XDG_CACHE_HOME: join(scratch, 'cache-damaged') } };
  const { notes, rows } = await json(['top', '--db', 's3://fleet/mixed', '--epoch', 'all'], fresh);
  assert.match(notes.join('\n'), /segment-000001.parquet: its checksum does not match: the file is damaged; left out/);
  faults.damages = undefined;
  assert.ok(rows.length > 0, 'the other recording is shown');
  // An id that two hosts drew: one of them is shown, whole.
  const id = second.split('/').at(-2);
  const cached = join(scratch, 'cache-damaged/dwell/fleet', readdirSync(join(scratch, 'cache-damaged/dwell/fleet'))[0], 'epochs', id);
  for (const file of readdirSync(cached)) await ask('PUT', `/fleet/mixed/epochs/date=2999-01-01/host=zzz/${id}/${file}`, readFileSync(join(cached, file)));
  const list = await json(['epoch', 'list', '--db', 's3://fleet/mixed']);
  assert.equal(list.epochs.length, 2);
  assert.match(list.warnings.join('\n'), new RegExp(`${id} of zzz, hidden by another host's`));
  // A damaged file of this machine is not sent, and the others are.
  const file = join(folder, 'epochs', readdirSync(join(folder, 'epochs'))[0], 'segment-000001.parquet');
  truncateSync(file, 30);
  const { status, stdout, stderr } = await run(['push', '--db', folder, '--to', 's3://fleet/partly', '--json']);
  assert.equal(status, 1);
  assert.equal(JSON.parse(stdout).epochs.length, 1);
  assert.match(stderr, /segment-000001.parquet cannot be read: not a readable Parquet file/);
});

test('receivers of OpenTelemetry get each recording once', { skip }, async () => {
  const folder = await database('otlp', 3);
  const got = [];
  let answers = [];
  const receiver = createServer((question, answer) => {
    const parts = [];
    question.on('data', (bytes) => parts.push(bytes));
    question.on('end', () => {
      const { status = 200, body = '' } = answers.shift() ?? {};
      if (status === 200) got.push({ url: question.url, headers: question.headers, body: gunzipSync(Buffer.concat(parts)) });
      answer.writeHead(status, { 'content-type': 'application/x-protobuf' }).end(body);
    });
  });
  const port = await listening(receiver);
  const env = { OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Basic%20abc', XDG_STATE_HOME: join(scratch, 'otlp-state') };
  const words = ['push', '--db', folder, '--otlp', `http://127.0.0.1:${port}`];
  // The first request is answered by "busy", the second recording is rejected.
  answers = [{ status: 503 }, {}, { body: Buffer.from([0x0a, 0x07, 0x08, 0x01, 0x12, 0x03, ...Buffer.from('bad')]) }];
  const { status, stdout, stderr } = await run([...words, '--json'], { env });
  assert.equal(status, 1);
  assert.equal(JSON.parse(stdout).epochs.length, 2);
  assert.match(stderr, /the receiver rejects it: 1 profiles: bad/);
  assert.equal((await json(words, { env })).epochs.length, 1);
  assert.deepEqual(await json(words, { env }).then(({ epochs, known }) => [epochs.length, known]), [0, 3]);
  assert.equal(got.length, 4);
  assert.ok(got.every(({ url, headers }) => url === '/v1development/profiles' && headers['content-type'] === 'application/x-protobuf' && headers.authorization === 'Basic abc'));
  const file = join(scratch, 'otlp.pb');
  await told(['export', '--db', folder, '--format', 'otlp', '--epoch', 'r1', '-o', file]);
  assert.ok(got.some(({ body }) => body.equals(readFileSync(file))), 'it is what dwell export writes');
  receiver.close();
  receiver.closeAllConnections();
  await refused([...words.slice(0, -1), 'localhost:4318'], /no URL of a receiver \(http:\/\/ or https:\/\/\)$/m, { env });
  await refused([...words.slice(0, -1), `http://me:${encodeURIComponent(secret)}@localhost`], /credentials are not taken from its URL/, { env });
});

/** The fields of a message in protocol buffers, by number: texts and messages as bytes, numbers as they are. */
function fields(bytes) {
  const found = new Map();
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const key = Number(varint());
    assert.ok([0, 2].includes(key & 7), `wire type ${key & 7}`);
    const number = varint();
    const value = (key & 7) === 0 ? number : bytes.subarray(at, (at += Number(number)));
    found.set(key >> 3, [...(found.get(key >> 3) ?? []), value]);
  }
  return (number) => found.get(number) ?? [];
}

/** The numbers of a packed field. */
function packed(bytes) {
  const numbers = [];
  let value = 0n;
  let shift = 0n;
  for (const byte of bytes) {
    value |= BigInt(byte & 0x7f) << shift;
    shift += 7n;
    if (byte >= 0x80) continue;
    numbers.push(Number(value));
    [value, shift] = [0n, 0n];
  }
  return numbers;
}

/** The strings of a pprof profile, and its samples by function: the first value of each. */
function pprofSamples(bytes) {
  const profile = fields(bytes);
  const strings = profile(6).map(String);
  const functions = new Map(profile(5).map(fields).map((named) => [named(1)[0], strings[Number(named(2)[0])]]));
  // The last line of a location is the function itself, and the others were inlined there.
  const locations = new Map(profile(4).map(fields).map((location) => [location(1)[0], functions.get(fields(location(4).at(-1))(1)[0])]));
  const samples = {};
  for (const sample of profile(2).map(fields)) {
    const name = locations.get(BigInt(packed(sample(1)[0])[0]));
    samples[name] = (samples[name] ?? 0) + packed(sample(2)[0])[0];
  }
  return { strings, samples };
}

test('a Pyroscope server gets each recording once, with every count', { skip }, async (context) => {
  const folder = await database('pprof', 3);
  const got = [];
  const answers = [{ status: 503 }, {}, { status: 400, body: '{"code":"invalid_argument","message":"too old"}' }];
  const receiver = createServer((question, answer) => {
    const parts = [];
    question.on('data', (bytes) => parts.push(bytes));
    question.on('end', () => {
      const { status = 200, body = '' } = answers.shift() ?? {};
      if (status === 200) got.push({ url: question.url, headers: question.headers, body: Buffer.concat(parts) });
      answer.writeHead(status, { 'content-type': 'application/proto' }).end(body);
    });
  });
  const port = await listening(receiver);
  context.after(() => {
    receiver.close();
    receiver.closeAllConnections();
  });
  const env = { DWELL_PPROF_HEADERS: 'authorization=Basic%20abc,X-Scope-OrgID=team', XDG_STATE_HOME: join(scratch, 'pprof-state') };
  const words = ['push', '--db', folder, '--pprof', `http://127.0.0.1:${port}/`];
  const { status, stdout, stderr } = await run([...words, '--json'], { env });
  assert.equal(status, 1);
  assert.equal(JSON.parse(stdout).epochs.length, 2);
  assert.match(stderr, /the receiver rejects it: status 400: \{"code":"invalid_argument","message":"too old"\}/);
  assert.equal((await json(words, { env })).epochs.length, 1);
  assert.deepEqual(await json(words, { env }).then(({ epochs, known }) => [epochs.length, known]), [0, 3]);
  assert.equal(got.length, 3);
  const host = (await json(['epoch', 'list', '--db', folder])).epochs[0].host;
  const ids = new Set();
  const sent = got.map(({ url, headers, body }) => {
    assert.equal(url, '/push.v1.PusherService/Push');
    assert.deepEqual([headers['content-type'], headers.authorization, headers['x-scope-orgid']], ['application/proto', 'Basic abc', 'team']);
    const series = fields(fields(body)(1)[0]);
    const labels = Object.fromEntries(series(1).map(fields).map((label) => [1, 2].map((number) => String(label(number)[0]))));
    assert.deepEqual(labels, { __name__: 'process_cpu', service_name: 'dwell', hostname: host });
    const sample = fields(series(2)[0]);
    ids.add(String(sample(2)[0]));
    return pprofSamples(gunzipSync(sample(1)[0]));
  });
  assert.ok(ids.size === 3 && [...ids].every((id) => /^[\da-f]{8}-[\da-f]{4}-8[\da-f]{3}-8[\da-f]{3}-[\da-f]{12}$/.test(id)), [...ids].join());
  const sum = (samples) => Object.values(samples).reduce((total, count) => total + count, 0);
  for (const recording of ['r1', 'r2', 'r3']) {
    const { total, rows } = await json(['top', '--db', folder, '--epoch', recording, '-n', '0']);
    const { strings, samples } = sent.find((profile) => sum(profile.samples) === total.cycles) ?? assert.fail(`${recording}: no profile has ${total.cycles} samples`);
    assert.ok(strings.includes('cycles') && strings.includes(rows[0].build_id), recording);
    assert.deepEqual(samples, Object.fromEntries(rows.map(({ demangled, samples }) => [demangled, samples.cycles])), recording);
  }
  await refused([...words.slice(0, -1), 'localhost:4040'], /no URL of a receiver \(http:\/\/ or https:\/\/\)$/m, { env });
  await refused([...words.slice(0, -1), `http://me:${encodeURIComponent(secret)}@localhost`], /put them into DWELL_PPROF_HEADERS/, { env });
});

test('the cache stays within its limit', { skip }, async () => {
  const folder = await database('cached', 4);
  await told(['push', '--db', folder, '--to', 's3://fleet/cached']);
  const env = { XDG_CACHE_HOME: join(scratch, 'cache-small'), DWELL_FLEET_CACHE_MIB: '0' };
  const local = await samples(folder);
  for (let n = 0; n < 2; n++) assert.equal(await samples('s3://fleet/cached', { env }), local);
  await told(['epoch', 'list', '--db', 's3://fleet/cached'], { env });
  const [cache] = readdirSync(join(env.XDG_CACHE_HOME, 'dwell/fleet'));
  const epochs = readdirSync(join(env.XDG_CACHE_HOME, 'dwell/fleet', cache, 'epochs'));
  assert.ok(epochs.every((id) => readdirSync(join(env.XDG_CACHE_HOME, 'dwell/fleet', cache, 'epochs', id)).join() === 'epoch.json'), 'only what was just read is there');
});
