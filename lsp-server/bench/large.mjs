// The server on a large epoch (see largeEpoch.mjs), against the targets of docs/benchmarks.md: hints cold and warm, the event loop
// while it works and while somebody types, switching epochs, a hot list of 10,000 procedures, memory. It measures what
// users get: the release build of the core (`npm run build` makes it); with --debug whatever lies in dist/.
//
// node --import tsx bench/large.mjs [--debug]
import { mkdtempSync, existsSync, readFileSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { startProgram, stop } from '../test/client.ts';
import { server, top } from '../test/fixture.ts';
import { makeLargeEpoch } from './largeEpoch.mjs';

const coldRuns = 5;
const warmRuns = 50;
const typed = 200;
const switches = 20;
/** As many as a client has in sight, or asks for at once of a list of all. */
const rowsInSight = 100;
const rowsAtOnce = 1000;

const quantile = (times, share) => times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor(share * times.length))];

async function timed(work) {
  const start = performance.now();
  const answer = await work();
  return { elapsed: performance.now() - start, answer };
}

/** Which build of the core lies beside the server: a figure means nothing without. */
function builtAs() {
  const beside = readFileSync(join(dirname(server), 'dwell-core.node'));
  const target = process.env.CARGO_TARGET_DIR ?? join(top, 'target');
  const is = (profile) => {
    const library = join(target, profile, 'libdwell_node.so');
    return existsSync(library) && beside.equals(readFileSync(library));
  };
  return ['release', 'debug'].find(is) ?? `unknown (none of those in ${target})`;
}

class Session {
  static async start(subject, folder) {
    process.env.NODE_OPTIONS = `--require=${join(import.meta.dirname, 'loopDelay.js')}`;
    process.env.DWELL_LOOP_DELAY = join(folder, 'delay.json');
    const session = new Session();
    session.started = await startProgram(server, { database: subject.database, epochs: ['second'], hints: 'all' }, {});
    session.client = session.started.client;
    session.uri = pathToFileURL(subject.file).href;
    session.text = readFileSync(subject.file, 'utf8');
    // Loading the server is no turn of its loop that anybody types in.
    await session.loopDelay();
    return session;
  }

  open() {
    return this.client.sendNotification('textDocument/didOpen', { textDocument: { uri: this.uri, languageId: 'c', version: 1, text: this.text } });
  }

  close() {
    return this.client.sendNotification('textDocument/didClose', { textDocument: { uri: this.uri } });
  }

  hints() {
    const range = { start: { line: 0, character: 0 }, end: { line: 5000, character: 0 } };
    return this.client.sendRequest('textDocument/inlayHint', { textDocument: { uri: this.uri }, range });
  }

  hot(params) {
    return this.client.sendRequest('dwell/hotProcedures', params);
  }

  select(epoch) {
    return this.client.sendRequest('workspace/executeCommand', { command: 'dwell.server.selectEpochs', arguments: [[epoch]] });
  }

  /** How the loop was held up since it was asked last. */
  async loopDelay() {
    const file = process.env.DWELL_LOOP_DELAY;
    rmSync(file, { force: true });
    this.started.child.kill('SIGUSR2');
    while (!existsSync(file) || readFileSync(file, 'utf8') === '') await new Promise((resolve) => setTimeout(resolve, 5));
    return JSON.parse(readFileSync(file, 'utf8'));
  }

  /** Seconds of CPU time that the server has used, all threads: what a wait on a busy machine is made of. */
  cpu() {
    const stat = readFileSync(`/proc/${this.started.child.pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
  }

  /** MiB: all that is resident, and of that what is its own (the rest is mapped files, which the kernel may drop). */
  memory() {
    const status = readFileSync(`/proc/${this.started.child.pid}/status`, 'utf8');
    const of = (name) => Math.round(Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]) / 1024);
    return { resident: of('VmRSS'), own: of('RssAnon'), peak: of('VmHWM') };
  }
}

const print = (what, figure, target) => console.log(`${what.padEnd(72)}${figure.padStart(26)}   ${target}`);
const ms = (value) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;

const build = builtAs();
if (build !== 'release' && !process.argv.includes('--debug')) {
  console.error(`bench: the core beside the server is the build '${build}', not a release: npm run build (or give --debug)`);
  process.exit(1);
}
const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-'));
try {
  const subject = makeLargeEpoch(folder);
  console.log(`${(subject.debugBytes / 1e6).toFixed(0)} MB of debug information, ${subject.images} images, ${subject.procedures} procedures; core: ${build} build; load ${loadavg()[0].toFixed(1)}`);
  const cold = [];
  const cpus = [];
  let session;
  for (let run = 0; run < coldRuns; run++) {
    if (session) await stop(session.started);
    session = await Session.start(subject, folder);
    const { elapsed, answer } = await timed(async () => { await session.open(); return session.hints(); });
    if (answer.length < 60) throw new Error(`${answer.length} hints: something is wrong`);
    cold.push(elapsed);
    cpus.push(session.cpu() * 1000);
  }
  print('first hints, cold: median (worst)', `${ms(quantile(cold, 0.5))} (${ms(Math.max(...cold))})`, 'target 1 s');
  print('  CPU time of that, the server\'s start included: median', ms(quantile(cpus, 0.5)), '');
  const coldDelay = await session.loopDelay();
  print('  event loop held up meanwhile: p99 (worst)', `${ms(coldDelay.p99)} (${ms(coldDelay.max)})`, 'typing never waits');
  await measureWarm(session);
  await measureTyping(session);
  await measureSwitches(session);
  await measureHotList(session);
  const memory = session.memory();
  print('memory: own, resident, peak', `${memory.own}, ${memory.resident}, ${memory.peak} MiB`, 'target 300 MiB');
  await stop(session.started);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function measureWarm(session) {
  const warm = [];
  for (let run = 0; run < warmRuns; run++) {
    await session.close();
    warm.push((await timed(async () => { await session.open(); return session.hints(); })).elapsed);
  }
  print('hints, warm: median (p95)', `${ms(quantile(warm, 0.5))} (${ms(quantile(warm, 0.95))})`, 'target p95 30 ms');
}

/** Somebody types while the core works on another epoch. */
async function measureTyping(session) {
  const { client, uri } = session;
  await session.loopDelay();
  await session.select('first');
  const working = (async () => {
    for (let offset = 0; offset < 2000; offset += rowsInSight) await session.hot({ offset, limit: rowsInSight, split: true });
  })();
  const waits = [];
  for (let version = 2; version < typed + 2; version++) {
    const at = { line: 3, character: 0 };
    await client.sendNotification('textDocument/didChange', { textDocument: { uri, version }, contentChanges: [{ range: { start: at, end: at }, text: 'x' }] });
    // Answered by the loop alone: what typing would wait for.
    waits.push((await timed(() => client.sendRequest('workspace/executeCommand', { command: 'dwell.server.compare', arguments: [{}] }).catch(() => null))).elapsed);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await working;
  const { p99, max } = await session.loopDelay();
  print(`a keystroke's turn while the core works: p95 (worst of ${typed})`, `${ms(quantile(waits, 0.95))} (${ms(Math.max(...waits))})`, 'typing never waits');
  print('  event loop held up meanwhile: p99 (worst)', `${ms(p99)} (${ms(max)})`, '');
  await session.close();
  await session.open();
}

async function measureSwitches(session) {
  const times = [];
  for (let run = 0; run < switches; run++) {
    const epoch = run % 2 === 0 ? 'second' : 'first';
    times.push((await timed(async () => { await session.select(epoch); return session.hints(); })).elapsed);
  }
  print('switching epochs, both seen before: median (p95, worst)', `${ms(quantile(times, 0.5))} (${ms(quantile(times, 0.95))}, ${ms(Math.max(...times))})`, 'target 300 ms');
  const merged = await timed(async () => {
    await session.client.sendRequest('workspace/executeCommand', { command: 'dwell.server.selectEpochs', arguments: [['first', 'second']] });
    return session.hints();
  });
  print('switching to one not seen before (both merged)', ms(merged.elapsed), 'target 300 ms');
  await session.select('second');
}

/** As a view does it: all rows bare, in pages; then those in sight with what is dear, here from the top to the end. */
async function measureHotList(session) {
  await session.loopDelay();
  const pages = async (size, more) => {
    const times = [];
    for (let offset = 0; ; offset += size) {
      const { elapsed, answer } = await timed(() => session.hot({ ...more, offset, limit: size }));
      times.push(elapsed);
      if (answer.omittedRows === 0) return times;
    }
  };
  const told = (times) => `${ms(quantile(times, 0.5))} (${ms(quantile(times, 0.95))}, ${ms(Math.max(...times))})`;
  const bare = await pages(rowsAtOnce, { bare: true });
  print(`hot list, all rows, without CPI, ${bare.length} pages of ${rowsAtOnce} together`, ms(bare.reduce((sum, time) => sum + time, 0)), '');
  print(`  ${rowsInSight} rows in sight with CPI and stalls, at first: median (p95, worst)`, told(await pages(rowsInSight, { split: true })), '');
  print('  the same seen before', told(await pages(rowsInSight, { split: true })), 'target 30 ms');
  const { p99, max } = await session.loopDelay();
  print('  event loop held up meanwhile: p99 (worst)', `${ms(p99)} (${ms(max)})`, '');
}
