// What the suites of the fleet have in common: a real S3 server, moto, behind a proxy that fails as networks and stores do; runs of dwell whose output
// is searched for secrets; small databases.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { after } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { target } from './step.mjs';

export const dwell = process.env.DWELL ?? [join(target, 'release/dwell'), join(target, 'debug/dwell')].find(existsSync);
const moto = join(target, 'moto/bin/moto_server');
export const scratch = mkdtempSync(join(tmpdir(), 'dwell-fleet-'));
export const secret = 'se/cret+that-nobody-may-see';
export const skip = existsSync(moto) ? false : `no moto at ${moto}`;
after(() => rmSync(scratch, { recursive: true, force: true }));

/** A store, and a proxy before it whose requests fail with a probability, in one of three ways, or are denied. */
let store;
let proxy;
export const faults = { probability: 0, denies: () => false, damages: undefined, seen: [] };

export const listening = (server) => new Promise((done) => server.listen(0, '127.0.0.1', () => done(server.address().port)));

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

export function forward(asked, answer) {
  const chance = Math.random();
  faults.seen.push(`${asked.method} ${asked.url}`);
  if (faults.denies(decodeURIComponent(asked.url))) {
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

const url = () => (proxy ? `http://127.0.0.1:${proxy.port}` : '');
/** A request to the store itself. It wants to know who asks, and verifies no signature. */
export const ask = (method, path, body) => fetch(`http://127.0.0.1:${store.port}${path}`, { method, body, headers: { authorization: 'AWS4-HMAC-SHA256 Credential=key/20261127/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0' } });
export async function remove(key) {
  const { status } = await ask('DELETE', `/fleet/${key}`);
  assert.equal(status, 204, `DELETE ${key}`);
}

/** Starts the store and the proxy; tests of receivers need neither. */
export async function startStore() {
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
}
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
export function run(words, { env = {}, killAfter } = {}) {
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

export async function told(words, options) {
  const done = await run(words, options);
  assert.equal(done.status, 0, `dwell ${words.join(' ')}: ${done.stderr}`);
  return done.stdout;
}
export const json = async (words, options) => JSON.parse(await told([...words, '--json'], options));

export async function refused(words, pattern, options) {
  const { status, stderr } = await run(words, options);
  assert.equal(status, words.includes('record') ? 125 : 1, `dwell ${words.join(' ')}: ${stderr}`);
  assert.match(stderr, pattern);
  assert.equal(stderr.trim().split('\n').length, 1, stderr);
}

export const machine = ['--machine', 'amd-zen4', '--event', 'cycles', '--period', '1000', '--unit', 'cycles'];

/** A database with some recordings of gzip by a table of counts, for machines that let nobody sample. */
export async function database(name, recordings = 3) {
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
export async function samples(place, options) {
  const query = 'SELECT epoch, image, event, "offset", app, instance, sum(count) AS n FROM samples GROUP BY ALL ORDER BY ALL';
  return told(['sql', '--db', place, '--format', 'csv', query], options);
}

export const objects = async (prefix) => [...(await (await ask('GET', `/fleet?list-type=2&max-keys=1000&prefix=${prefix}`)).text()).matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key]) => key);
