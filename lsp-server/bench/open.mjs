// From opening a file to its inlay hints, in the built server over its stdio.
//
// node --import tsx bench/open.mjs [--db DIR --file SOURCE]
//
// Without a database it records the hash join of test-fixtures/programs. Cold: a new server, whose first question this
// is (the kernel's file cache stays warm). Warm: the same server, the file closed and opened again. Edited: a line is
// typed, then hints are asked for. Switched: another selection of epochs, so that all is computed anew.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { startProgram, stop } from '../test/client.ts';
import { builtDwell, server, top } from '../test/fixture.ts';

const coldRuns = 7;
const warmRuns = 50;

function fail(why) {
  console.error(`bench: ${why}`);
  process.exit(1);
}

/** Records the hash join into a folder of its own. */
function recorded(folder) {
  const dwell = builtDwell();
  const program = join(top, 'test-fixtures/programs/build/hashjoin');
  if (dwell === undefined || !existsSync(program)) fail('build dwell and the workloads first: npm run build');
  const { status, stderr } = spawnSync(dwell, ['--db', folder, 'record', '--', program], { encoding: 'utf8' });
  if (status !== 0) fail(`the recording failed: ${stderr.trim()}`);
  return { database: folder, file: join(top, 'test-fixtures/programs/hashjoin.rs') };
}

async function openAndAsk({ client }, file, text) {
  const uri = pathToFileURL(file).href;
  const start = performance.now();
  await client.sendNotification('textDocument/didOpen', { textDocument: { uri, languageId: 'c', version: 1, text } });
  const hints = await ask(client, uri, text);
  return { elapsed: performance.now() - start, hints: hints.length, uri };
}

function ask(client, uri, text) {
  const range = { start: { line: 0, character: 0 }, end: { line: text.split('\n').length, character: 0 } };
  return client.sendRequest('textDocument/inlayHint', { textDocument: { uri }, range });
}

async function measure({ database, file }) {
  const text = readFileSync(file, 'utf8');
  const times = { start: [], cold: [], warm: [], edited: [], switched: [] };
  const settings = { database, hints: 'all' };
  let hints = 0;
  for (let run = 0; run < coldRuns; run++) {
    const start = performance.now();
    const started = await startProgram(server, settings, {});
    times.start.push(performance.now() - start);
    const answer = await openAndAsk(started, file, text);
    times.cold.push(answer.elapsed);
    hints = answer.hints;
    if (run === coldRuns - 1) await measureWarm(started, file, text, times);
    await stop(started);
  }
  return { times, hints };
}

async function measureWarm(started, file, text, times) {
  const { client } = started;
  const uri = pathToFileURL(file).href;
  for (let run = 0; run < warmRuns; run++) {
    await client.sendNotification('textDocument/didClose', { textDocument: { uri } });
    times.warm.push((await openAndAsk(started, file, text)).elapsed);
  }
  const at = { line: 0, character: 0 };
  for (let version = 2; version < warmRuns + 2; version++) {
    const start = performance.now();
    await client.sendNotification('textDocument/didChange', { textDocument: { uri, version }, contentChanges: [{ range: { start: at, end: at }, text: '\n' }] });
    await ask(client, uri, text);
    times.edited.push(performance.now() - start);
  }
  for (let run = 0; run < coldRuns; run++) {
    const start = performance.now();
    await client.sendRequest('workspace/executeCommand', { command: 'dwell.server.selectEpochs', arguments: [[run % 2 === 0 ? 'latest~0' : 'latest']] });
    await ask(client, uri, text);
    times.switched.push(performance.now() - start);
  }
}

/** `12.3 ms (10.1 to 20.4, p95 19.0, n 50)`. */
function summary(times) {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))].toFixed(1);
  return `${at(0.5).padStart(8)} ms   (${at(0)} to ${at(1)}, p95 ${at(0.95)}, n ${sorted.length})`;
}

const { values } = parseArgs({ options: { db: { type: 'string' }, file: { type: 'string' } } });
if ((values.db === undefined) !== (values.file === undefined)) fail('give both --db and --file, or neither');
if (!existsSync(server)) fail('build the server first: npm run build');
const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-'));
try {
  const subject = values.db === undefined ? recorded(folder) : { database: resolve(values.db), file: resolve(values.file) };
  const { times, hints } = await measure(subject);
  console.log(`${subject.file}: ${hints} hints; medians`);
  for (const [name, list] of Object.entries(times)) console.log(`${name.padEnd(9)}${summary(list)}`);
} finally {
  rmSync(folder, { recursive: true });
}
