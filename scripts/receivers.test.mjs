// Tests `dwell push --otlp` and `--pprof` with receivers that answer as real ones do: each recording comes once, with every count.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { database, json, listening, refused, run, scratch, secret, told } from './fleet-store.mjs';

test('receivers of OpenTelemetry get each recording once', async () => {
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

test('a Pyroscope server gets each recording once, with every count', async (context) => {
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
