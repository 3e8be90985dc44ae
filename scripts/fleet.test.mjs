// Tests `dwell push`, `dwell roll-up` and `--db s3://…` with a real S3 server. Counts must be those of the database that was sent, one by one.
// `DWELL_KILLS=200` kills so often (12 by default): `npm run test:fleet`.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { ask, database, dwell, faults, forward, json, listening, machine, objects, refused, remove, run, samples, scratch, secret, skip, startStore, told } from './fleet-store.mjs';
import { top } from './step.mjs';

const kills = Number(process.env.DWELL_KILLS ?? 12);
before(startStore);

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
  assert.equal(await count('s3://fleet/chosen', '--since', '1d'), 1);
  assert.equal(await count('s3://fleet/chosen', '--since', '2999-01-01'), 0);
  await refused(['sql', '--db', folder, '--since', today, 'SELECT 1'], /--since selects among the recordings in a bucket/);
  await refused(['top', '--db', folder, '--host', 'a'], /--host selects among the recordings in a bucket/);
  await refused(['top', '--db', 's3://fleet/chosen', '--host', 'other'], /host=other: no recordings are there of these hosts/);
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

test('days of many hosts are compared, each host as a run', { skip }, async () => {
  const folder = await database('days', 6);
  // The recordings become those of three hosts on two days.
  const ids = readdirSync(join(folder, 'epochs')).sort();
  for (const [at, id] of ids.entries()) {
    const file = join(folder, 'epochs', id, 'epoch.json');
    const epoch = JSON.parse(readFileSync(file, 'utf8'));
    const day = `2026-11-2${at % 2}`;
    Object.assign(epoch, { name: null, start: `${day}T01:00:0${at}Z`, end: `${day}T02:00:00Z` });
    epoch.host.name = `host-${at % 3}`;
    writeFileSync(file, JSON.stringify(epoch));
  }
  await told(['push', '--db', folder, '--to', 's3://fleet/days']);
  const words = ['diff', '2026-11-20', '2026-11-21', '--normalize', 'samples', '--all'];
  const there = await json([...words, '--db', 's3://fleet/days']);
  assert.deepEqual(there, await json([...words, '--db', folder]));
  assert.deepEqual([there.a.epochs.length, there.b.epochs.length], [3, 3]);
  assert.deepEqual(await json(['top', '--epoch', '2026-11-21', '--db', 's3://fleet/days']), await json(['top', '--epoch', [1, 3, 5].map((at) => ids[at]).join(), '--db', folder]));
  await refused(['top', '--epoch', '2026-11-22', '--db', folder], /no recording '2026-11-22'/);
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

test('analyses that a job stored answer where the binary is missing', { skip }, async () => {
  const program = join(scratch, 'spin');
  writeFileSync(`${program}.c`, '__attribute__((noinline)) long spin(long n, long *of) { long s = 1; while (n--) s += of[s & 255] / (n | 1); return s; }\nint main(int n, char **v) { static long of[256]; return spin(n, of) == 7; }\n');
  assert.equal(spawnSync('gcc', ['-O1', '-g', '-Wl,--build-id', '-o', program, `${program}.c`]).status, 0);
  const [, start] = /([0-9a-f]+) T spin$/m.exec(spawnSync('nm', [program], { encoding: 'utf8' }).stdout);
  const table = join(scratch, 'counts.tsv');
  writeFileSync(table, Array.from({ length: 40 }, (_, n) => `${program}\t${(parseInt(start, 16) + n).toString(16)}\t${1000 + 100 * n}\n`).join(''));
  const folder = join(scratch, 'analysed');
  const place = 's3://fleet/analysed';
  for (const name of ['one', 'two']) await told(['import', '--db', folder, '--counts', table, '--image', program, ...machine, '--name', name]);
  await told(['push', '--db', folder, '--to', place]);
  const questions = [['annotate', 'spin'], ['summary'], ['top', '-n', '0'], ['top', '--by', 'line']];
  const answers = async () => Promise.all(questions.map((words) => json([...words, '--db', place])));
  const before = await answers();
  const [{ epoch, image }] = before;
  const rows = (where) => spawnSync(dwell, ['sql', '--db', folder, '--format', 'parquet', `SELECT * FROM analyses WHERE ${where}`], { maxBuffer: 2 ** 28 }).stdout;
  const stored = (name, bytes) => ask('PUT', `/fleet/analysed/tables/analyses/of_epoch=${epoch}/of_image=${image.build_id}/${name}.parquet`, bytes);
  await stored('part-0', rows(`epoch = '${epoch}'`));
  const foreign = rows("epoch = dwell_epoch('one')");
  // While the binary is here it is read. Now it is gone.
  assert.deepEqual(await answers(), before);
  rmSync(program);
  const after = await answers();
  const plain = ({ operands, ...instruction }) => instruction;
  for (const part of ['scale', 'blocks', 'machine_model', 'procedure', 'source_lines']) assert.deepEqual(after[0][part], before[0][part], part);
  assert.deepEqual(after[0].instructions, before[0].instructions.map((i) => ({ ...plain(i), operands: [] })));
  assert.match(after[0].notes.join(), /this analysis of it was stored beside the recordings/);
  assert.deepEqual(after[1].causes, before[1].causes);
  assert.equal(after[1].cpi, before[1].cpi);
  const cost = (answer) => answer.rows.map(({ procedure, line, samples, cpi, cpi_min, cpi_max }) => ({ procedure, line, samples, cpi, cpi_min, cpi_max }));
  assert.deepEqual(cost(after[2]), cost(before[2]));
  // A table of SQL that has no stored rows is made of the analyses.
  assert.match(await told(['sql', '--db', place, '--format', 'csv', `SELECT count(*) FROM blocks WHERE epoch = '${epoch}'`]), new RegExp(`\\b${before[0].blocks.length}\\b`));
  // They are of one recording, and of all of its samples.
  await refused(['annotate', 'spin', '--epoch', 'all', '--db', place], /analyses are stored of single recordings and roll-ups: name one with --epoch/);
  await refused(['annotate', 'spin', '--epoch', 'one', '--db', place], /No such file/);
  // What is wrong is left out, and said.
  await stored('part-1', foreign);
  await refused(['annotate', 'spin', '--db', place], /stored analyses of recording .*: .*it holds rows of something else/);
  for (const words of [['summary'], ['top', '-n', '0']]) assert.match((await json([...words, '--db', place])).notes.join(), /it holds rows of something else/, words[0]);
  await stored('part-1', 'no Parquet');
  await refused(['annotate', 'spin', '--db', place], /stored analyses of recording .*: not a readable Parquet file/, { env: { XDG_CACHE_HOME: join(scratch, 'cache-analysed') } });
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

test('TLS trusts what it is told to, and nothing else', { skip }, async (context) => {
  const folder = await database('tls', 1);
  const at = (name) => join(scratch, name);
  const openssl = (...words) => assert.equal(spawnSync('openssl', words, { cwd: scratch }).status, 0, words.join(' '));
  openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=a company', '-days', '2');
  openssl('req', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'leaf.key', '-out', 'leaf.csr', '-subj', '/CN=localhost');
  writeFileSync(at('leaf.ext'), 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n');
  openssl('x509', '-req', '-in', 'leaf.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-out', 'leaf.pem', '-days', '2', '-extfile', 'leaf.ext');
  const server = createSecureServer({ key: readFileSync(at('leaf.key')), cert: readFileSync(at('leaf.pem')) }, forward);
  const port = await listening(server);
  context.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const env = { AWS_ENDPOINT_URL: `https://localhost:${port}`, XDG_STATE_HOME: at('tls-state') };
  const push = ['push', '--db', folder, '--to', 's3://fleet/tls'];
  await refused(push, /certificate.*AWS_CA_BUNDLE.*\(1 attempt\)/, { env });
  await refused(push, /no-such.pem: No such file/, { env: { ...env, AWS_CA_BUNDLE: at('no-such.pem') } });
  await refused(push, /leaf.ext: no certificate is in it/, { env: { ...env, AWS_CA_BUNDLE: at('leaf.ext') } });
  assert.equal((await json(push, { env: { ...env, AWS_CA_BUNDLE: at('ca.pem') } })).epochs.length, 1);
});

test('what cannot be is one clear line', { skip }, async () => {
  const folder = await database('bad', 1);
  const push = (to) => ['push', '--db', folder, '--to', to];
  await refused(push('s3://no-such-bucket/x'), /no-such-bucket.*NoSuchBucket.*there is no such bucket/);
  await refused(push('gs://fleet/x'), /gs:\/\/fleet\/x: it does not begin with s3/);
  await refused(push('s3://fleet/../x'), /`\.\.`/);
  await refused(push('s3://fleet/x?host=a'), /chooses what is read/);
  await refused(['push', '--db', join(folder, 'nowhere'), '--to', 's3://fleet/x'], /nowhere: there is no such folder/);
  await refused(['roll-up', '--db', 's3://fleet/plain', '--only', 'nix'], /nix: no such recording is in s3:\/\/fleet\/plain/);
  await refused(['top', '--db', 's3://fleet/plain'], /DWELL_FLEET_CACHE_MIB=much: expected a number of MiB/, { env: { DWELL_FLEET_CACHE_MIB: 'much' } });
  await refused(push('s3://fleet/x'), /no credentials.*AWS_ACCESS_KEY_ID/, { env: { AWS_ACCESS_KEY_ID: '' } });
  for (const words of [['record', '--', 'true'], ['epoch', 'remove', 'latest'], ['import', 'x'], ['daemon']]) {
    await refused(['--db', 's3://fleet/x', ...words], /recordings in a bucket are only read/);
  }
  // Samples that are denied or out of reach are no empty answer.
  faults.denies = (key) => key.includes('segment-');
  for (const words of [['top'], ['diff', 'latest', 'latest'], ['sql', 'SELECT sum(count) FROM samples'], ['annotate', 'walk']]) {
    await refused([...words, '--db', 's3://fleet/plain'], /s3:\/\/fleet\/plain\/epochs\/.*AccessDenied.*may not do this here/, { env: { XDG_CACHE_HOME: join(scratch, 'cache-denied') } });
  }
  faults.denies = () => true;
  await refused(['top', '--db', 's3://fleet/plain'], /AccessDenied.*may not do this here/);
  await refused(push('s3://fleet/denied'), /AccessDenied/);
  faults.denies = () => false;
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
  // Nor is one whose samples are gone.
  rmSync(file);
  const gone = await run(['push', '--db', folder, '--to', 's3://fleet/gone']);
  assert.match(gone.stderr, /its samples are gone: no segment is there/);
  assert.equal(gone.status, 1);
});

test('what is damaged in the cache is fetched anew', { skip }, async () => {
  const folder = await database('kept', 1);
  await told(['push', '--db', folder, '--to', 's3://fleet/kept']);
  const env = { XDG_CACHE_HOME: join(scratch, 'cache-kept') };
  const local = await samples(folder);
  assert.equal(await samples('s3://fleet/kept', { env }), local);
  const cache = join(env.XDG_CACHE_HOME, 'dwell/fleet', readdirSync(join(env.XDG_CACHE_HOME, 'dwell/fleet'))[0], 'epochs');
  const segment = join(cache, readdirSync(cache)[0], 'segment-000001.parquet');
  const bytes = readFileSync(segment);
  truncateSync(segment, 100);
  assert.equal(await samples('s3://fleet/kept', { env }), local);
  assert.deepEqual(readFileSync(segment), bytes);
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
