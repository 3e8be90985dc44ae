/** The server over a connection, with a fake core. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { CodeLens, Hover, InlayHint, MessageConnection } from 'vscode-languageserver/node';
import { CancellationTokenSource } from 'vscode-languageserver/node';
import { legend } from '../src/legend';
import type { EpochsResult, FileCostsResult, HotProceduresResult, LegendResult, ListingResult } from '../src/protocol';
import { open, startInProcess, stop, until } from './client';
import { CoreError, fakeBinding, lineCost, unscaled } from './fake';
import { page as legendPage } from './legendText';

const text = 'void copy(long *c, long *a, int n)\n{\n  for (int i = 0; i < n; i++)\n    c[i] = a[i]; // é𝄞\n}\n';
let folder: string;
let file: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'dwell-lsp-'));
  file = join(folder, 'copy.c');
  await writeFile(file, text);
});
after(() => rm(folder, { recursive: true }));

const missing = { kind: 'dynamic' as const, cause: 'd-cache-miss', label: 'D-cache miss', cycles_min: 1e9, cycles_max: 3e9, share_max: 0.85 };
/** The same as the protocol has it. */
const shownCulprit = { kind: 'dynamic', cause: 'd-cache-miss', label: 'D-cache miss', cyclesMin: 1e9, cyclesMax: 3e9, shareMax: 0.85 };
const tied = { cycles_min: 1e9, cycles_max: 3e9, share_max: 0.85 };
const ties = [{ ...tied, text: 'waits for memory (D-cache or DTLB miss)', culprits: [0, 1] }, { ...tied, text: 'slotting', culprits: [2], share_max: 0.1 }];
function costs(): Parameters<typeof fakeBinding>[0] {
  return {
    lines: [
      lineCost(3, 0.004),
      lineCost(4, 0.312, {
        culprits: [
          { ...missing, file, line: 3 }, { ...missing, cause: 'dtlb-miss', label: 'DTLB miss', file, line: 3 }, { ...missing, kind: 'static', cause: 'slotting', label: 'slotting', file: null, line: null },
        ],
        ties,
      }),
    ],
    procedures: [
      { id: 'copy:copy', demangled: 'copy', line: 1, samples: { 'cpu-clock': 316 }, share: 0.316, seconds: 3.16, cycles: 4.1e9, scale: 'absolute', cpi: 10.8, cpi_min: 10, cpi_max: 12, best_case_cpi: 0.6 },
    ],
  };
}

async function hintsOf(client: MessageConnection, uri: string): Promise<InlayHint[]> {
  const range = { start: { line: 0, character: 0 }, end: { line: 1000, character: 0 } };
  return client.sendRequest('textDocument/inlayHint', { textDocument: { uri }, range });
}

async function change(client: MessageConnection, uri: string, version: number, line: number, character: number, inserted: string): Promise<void> {
  const range = { start: { line, character }, end: { line, character } };
  await client.sendNotification('textDocument/didChange', { textDocument: { uri, version }, contentChanges: [{ range, text: inserted }] });
}

test('hints are at the ends of hot lines and name the culprit', async () => {
  const { binding } = fakeBinding(costs());
  const started = await startInProcess(binding, { database: folder });
  const uri = await open(started.client, file, text);
  const hints = await hintsOf(started.client, uri);
  assert.equal(hints.length, 1);
  const [hint] = hints;
  assert.deepEqual(hint?.position, { line: 3, character: 23 });
  assert.equal(hint.label, '31 % · memory (D-cache or DTLB miss) ← :3');
  assert.equal(hint.paddingLeft, true);
  await stop(started);
});

test('hints are shown on all lines or on none, by the settings', async () => {
  for (const [hints, expected] of [['all', 2], ['off', 0]] as const) {
    const { binding } = fakeBinding(costs());
    const started = await startInProcess(binding, { database: folder, hints });
    const uri = await open(started.client, file, text);
    assert.equal((await hintsOf(started.client, uri)).length, expected);
    await stop(started);
  }
});

test('hints move with their lines, are replaced by "edited" after an edit, and come back', async () => {
  const { binding, core } = fakeBinding(costs());
  const started = await startInProcess(binding, { database: folder, hints: 'all' });
  const { client } = started;
  const uri = await open(client, file, text);
  const said = ({ position, label }: InlayHint): number | string => (typeof label === 'string' && label.startsWith('edited') ? `${position.line} ${label}` : position.line);
  const lines = async (): Promise<(number | string)[]> => (await hintsOf(client, uri)).map(said);
  assert.deepEqual(await lines(), [2, 3]);
  await change(client, uri, 2, 0, 0, '// one\n// two\n');
  assert.deepEqual(await lines(), [4, 5]);
  await change(client, uri, 3, 5, 4, 'x');
  assert.deepEqual(await lines(), [4, '5 edited · was 31 %']);
  const { lines: costly, stale } = await client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  assert.deepEqual([costly.map(({ line }) => line), stale], [[4], [{ line: 5, share: 0.312 }]]);
  const range = { start: { line: 5, character: 4 }, end: { line: 5, character: 5 } };
  await client.sendNotification('textDocument/didChange', { textDocument: { uri, version: 4 }, contentChanges: [{ range, text: '' }] });
  assert.deepEqual(await lines(), [4, 5]);
  assert.equal(core.asked.fileCosts, 1, 'typing asks the core nothing');
  await stop(started);
});

test('a newer file and a rebuilt program are reported above the first line', async () => {
  for (const [source, words] of [['mapped', /newer than the program: lines found again/], ['stale', /newer than the program, of which no copy/]] as const) {
    const { binding } = fakeBinding({ ...costs(), source, stale: [{ line: 5, share: 0.1 }], programs: [{ path: '/build/copy', rebuilt: true }] });
    const started = await startInProcess(binding, { database: folder });
    const uri = await open(started.client, file, text);
    const lenses = await started.client.sendRequest<CodeLens[]>('textDocument/codeLens', { textDocument: { uri } });
    assert.match(lenses[0]?.command?.title ?? '', words);
    assert.equal(lenses[1]?.command?.title, 'Dwell: copy was rebuilt and not sampled since: numbers are of the earlier build');
    assert.deepEqual((await hintsOf(started.client, uri)).map(({ position, label }) => [position.line, label])[1], [4, 'edited · was 10 %']);
    await stop(started);
  }
});

test('one query serves hints, lenses and hovers', async () => {
  const { binding, core } = fakeBinding(costs());
  const started = await startInProcess(binding, { database: folder });
  const { client } = started;
  const uri = await open(client, file, text);
  const [lenses, hover, noHover] = await Promise.all([
    client.sendRequest<CodeLens[]>('textDocument/codeLens', { textDocument: { uri } }),
    client.sendRequest<Hover>('textDocument/hover', { textDocument: { uri }, position: { line: 3, character: 2 } }),
    client.sendRequest<Hover | null>('textDocument/hover', { textDocument: { uri }, position: { line: 1, character: 0 } }),
    hintsOf(client, uri),
  ]);
  assert.equal(core.asked.fileCosts, 1);
  assert.deepEqual(lenses, [
    {
      range: { start: { line: 0, character: 0 }, end: { line: 0, character: 0 } },
      command: { title: '32 % · 3.2 s · 11 cycles/instr (ideal 0.60)', command: 'dwell.showListing', arguments: ['copy:copy'] },
    },
  ]);
  assert.ok('value' in (hover.contents as object));
  const { value } = hover.contents as { value: string };
  const lines = value.split('\n');
  assert.equal(lines[0], `**31.2%** of all time · **3.1 s** · **waits for memory (D-cache or DTLB miss)** ← [:3](${uri}#L3)`);
  assert.equal(lines[2], '3.1 cycles per instruction (90 % interval 2.9 to 3.4, ideal 0.50) · executed 1.0 M times · 312 cpu-clock samples');
  // Two causes that cannot be told apart are one line.
  assert.deepEqual(lines.filter((line) => line.startsWith('- ')), [
    `- waits for memory (D-cache or DTLB miss) ← [:3](${uri}#L3) · up to 85.0% of the line's time (1.0 G cycles to 3.0 G cycles)`,
    "- slotting, static · up to 10.0% of the line's time (1.0 G cycles to 3.0 G cycles)",
  ]);
  assert.ok(value.includes('In `copy` · 30.0% · 10 cycles/instr'));
  assert.ok(value.endsWith('Scale: executions are absolute numbers (time alone, in order).'), value);
  assert.equal(noHover, null);
  await stop(started);
});

test('without a scale a hover has bounds and ratios instead of numbers', async () => {
  const lines = [lineCost(4, 0.312, { ...unscaled, scale: 'procedure', cpi_min: 4, per_entry: { executions: 2, of: 'loop' }, culprits: [{ ...missing, cycles_min: null, cycles_max: null, file, line: 3 }] })];
  const { binding } = fakeBinding({ lines });
  const started = await startInProcess(binding, { database: folder });
  const uri = await open(started.client, file, text);
  const hover = await started.client.sendRequest<Hover>('textDocument/hover', { textDocument: { uri }, position: { line: 3, character: 2 } });
  const { value } = hover.contents as { value: string };
  const shown = value.split('\n');
  assert.equal(shown[0], '**31.2%** of all time · **3.1 s**');
  assert.equal(shown[2], '≥ 4.0 cycles per instruction (ideal 0.50) · executed 2.0 times per entry of the loop · 312 cpu-clock samples');
  // A culprit that no tie names is told all the same.
  assert.ok(value.includes(`- D-cache miss ← [:3](${uri}#L3) · up to 85.0% of the line's time\n`), value);
  assert.match(value, /Scale: executions are known as ratios within the function; CPI has lower bounds only/);
  await stop(started);
});

test('a client that draws line ends gets both forms of the line and no hints', async () => {
  const { binding, core } = fakeBinding(costs());
  const capabilities = { workspace: { inlayHint: { refreshSupport: true } }, experimental: { dwell: { profileDidChange: true, drawsLineEnds: true } } };
  const started = await startInProcess(binding, { database: folder }, capabilities);
  assert.equal(started.result.capabilities.inlayHintProvider, undefined);
  const uri = await open(started.client, file, text);
  assert.deepEqual(await hintsOf(started.client, uri), []);
  const { lines } = await started.client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  assert.deepEqual(lines.map(({ label, lineEnd }) => [label, lineEnd]).at(-1), [
    '31 % · memory (D-cache or DTLB miss) ← :3', '31 % · 3.1 s · waits for memory (D-cache or DTLB miss) ← :3 · 3.1 cycles/instr (ideal 0.50)',
  ]);
  assert.equal(lines.at(-1)?.details, '31 % · 3.1 s · waits for memory (D-cache or DTLB miss) ← :3 (up to 85%); slotting (static, up to 10%) · 3.1 cycles/instr (ideal 0.50) · executed 1.0 M times · executions are absolute numbers · 3.1 G cycles · 312 samples of cpu-clock');
  core.changed();
  await until('the news', () => started.received.some(({ method }) => method === 'dwell/profileDidChange'));
  assert.ok(!started.received.some(({ method }) => method === 'workspace/inlayHint/refresh'));
  await stop(started);
});

test('the legend of the terminal and the report is that of the editors', () => {
  assert.equal(readFileSync(legendPage, 'utf8'), legend().text, 'run `npm run legend -w @dwell/lsp-server`');
  for (const what of ['hardware counters', 'odometers', 'loop registers', 'record --count']) assert.ok(legend().text.includes(what), what);
});

test('the legend of the numbers is one page for every client', async () => {
  const started = await startInProcess(fakeBinding(costs()).binding, { database: folder });
  const told = await started.client.sendRequest<LegendResult>('dwell/legend', {});
  const { markdown, text } = told;
  for (const word of ['share', 'cycles/instr', 'ideal', 'absolute', 'per entry of the loop', 'Why a number is missing']) assert.ok(markdown.includes(word) && text.includes(word), word);
  assert.doesNotMatch(text, /\*\w|`|^#|^\|/m);
  assert.deepEqual(await started.client.sendRequest('workspace/executeCommand', { command: 'dwell.server.legend', arguments: [] }), told);
  await stop(started);
});

test('file costs are those of the text that the editor shows', async () => {
  const { binding } = fakeBinding(costs());
  const started = await startInProcess(binding, { database: folder });
  const uri = await open(started.client, file, `// new\n${text}`);
  const result = await started.client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  assert.deepEqual(result.lines.map(({ line }) => line), [3, 4]);
  assert.deepEqual(result.lines[1]?.culprits[0], { ...shownCulprit, uri, line: 3 });
  assert.deepEqual(result.procedures.map(({ line, label }) => [line, label]), [[1, 'copy']]);
  assert.deepEqual(result.epochs, ['latest']);
  await stop(started);
});

test('a request without waiting clients is cancelled in the core, a shared one is not', async () => {
  const { binding, core } = fakeBinding(costs());
  let go = (): void => undefined;
  core.gate = new Promise((resolve) => (go = resolve));
  const started = await startInProcess(binding, { database: folder });
  const { client } = started;
  const uri = await open(client, file, text);
  const tokens = [new CancellationTokenSource(), new CancellationTokenSource()];
  const asked = tokens.map(({ token }) => client.sendRequest('dwell/fileCosts', { textDocument: { uri } }, token));
  await until('the question', () => core.asked.fileCosts === 1);
  tokens[0]?.cancel();
  await assert.rejects(asked[0] ?? Promise.resolve(), { code: -32800 });
  assert.equal(core.cancelled, 0);
  tokens[1]?.cancel();
  await assert.rejects(asked[1] ?? Promise.resolve(), { code: -32800 });
  assert.equal(core.cancelled, 1);
  go();
  assert.equal((await hintsOf(client, uri)).length, 1);
  await stop(started);
});

test('an answer about an outdated text is not sent', async () => {
  const { binding, core } = fakeBinding(costs());
  let go = (): void => undefined;
  core.gate = new Promise((resolve) => (go = resolve));
  const started = await startInProcess(binding, { database: folder });
  const uri = await open(started.client, file, text);
  const hints = hintsOf(started.client, uri);
  await until('the question', () => core.asked.fileCosts === 1);
  await change(started.client, uri, 2, 0, 0, 'x');
  await started.client.sendRequest('dwell/epochs', {});
  go();
  await assert.rejects(hints, { code: -32801 });
  await stop(started);
});

test('a new profile is announced in the way that the client supports', async () => {
  const { binding, core } = fakeBinding(costs());
  const full = await startInProcess(binding, { database: folder, epochs: ['before'] });
  const uri = await open(full.client, file, text);
  await hintsOf(full.client, uri);
  core.changed();
  await until('the refreshes', () => full.received.some(({ method }) => method === 'workspace/codeLens/refresh'));
  assert.ok(full.received.some(({ method }) => method === 'workspace/inlayHint/refresh'));
  const own = full.received.find(({ method }) => method === 'dwell/profileDidChange');
  assert.deepEqual(own?.params, { epochs: ['before'] });
  await hintsOf(full.client, uri);
  assert.equal(core.asked.fileCosts, 2, 'the cache is of the old profile');
  await full.client.sendRequest('workspace/executeCommand', { command: 'dwell.server.selectEpochs', arguments: [['e7', 'e8']] });
  assert.deepEqual((await full.client.sendRequest<EpochsResult>('dwell/epochs', {})).selected, ['e7', 'e8']);
  await stop(full);

  const plain = await startInProcess(fakeBinding(costs()).binding, { database: folder }, {});
  await plain.client.sendRequest('workspace/executeCommand', { command: 'dwell.server.selectEpochs', arguments: [['e7']] });
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.deepEqual(plain.received, [], 'nothing is sent to a client that announced nothing');
  await stop(plain);
});

test('hot procedures and listings carry ids, locations and a line for each line of text', async () => {
  const started = await startInProcess(fakeBinding(costs()).binding, { database: folder });
  const { client } = started;
  const hot = await client.sendRequest<HotProceduresResult>('dwell/hotProcedures', { by: 'procedure', limit: 10 });
  assert.deepEqual(hot.rows[0]?.location, { uri: 'file:///src/a%20b.c', line: 2 });
  assert.deepEqual(hot.rows.map(({ id, label }) => [id, label]), [['ab:0x9810', 'copy'], ['ab:0x9900', 'copy']], 'namesakes keep the ids that the core gave them');
  assert.equal(hot.omittedRows, 3);
  const listing = await client.sendRequest<ListingResult>('dwell/listing', { procedure: 'copy' });
  assert.equal(listing.text.split('\n').length - 1, listing.lines.length);
  const again = await client.sendRequest<ListingResult>('workspace/executeCommand', { command: 'dwell.server.listing', arguments: ['copy'] });
  assert.deepEqual(again, listing);
  await assert.rejects(client.sendRequest('dwell/listing', { procedure: 'absent' }), { message: "procedure 'absent': not found" });
  await stop(started);
});

test('rows are named after their kind, and each has its own id', async () => {
  const started = await startInProcess(fakeBinding(costs()).binding, { database: folder });
  const expected = {
    image: [['ab', 'copy'], ['cd', 'paste']],
    line: [
      ['ab:/src/copy.c:3', 'copy.c:3'],
      ['ab:/src/copy.c:4', 'copy.c:4'],
      ['ab:/src/inline.h:7', 'inline.h:7'],
      ['cd:/src/inline.h:7', 'inline.h:7'],
      ['ab', 'copy'],
      ['cd', 'paste'],
    ],
    app: [['copy#0', 'copy'], ['copy#1', 'copy (1)']],
  };
  for (const [by, named] of Object.entries(expected)) {
    const { rows } = await started.client.sendRequest<HotProceduresResult>('dwell/hotProcedures', { by });
    assert.deepEqual(rows.map(({ id, label }) => [id, label]), named, by);
  }
  await stop(started);
});

test('a culprit in the viewed file has the editor\'s line, however the client spells the URI', async () => {
  const odd = join(folder, 'a+b.c');
  const { binding } = fakeBinding({ lines: [lineCost(4, 0.3, { culprits: [{ ...missing, file: odd, line: 3 }] })] });
  await writeFile(odd, text);
  const started = await startInProcess(binding, { database: folder });
  const uri = pathToFileURL(odd).href.replace('+', '%2B');
  const textDocument = { uri, languageId: 'c', version: 1, text: `// new\n${text}` };
  await started.client.sendNotification('textDocument/didOpen', { textDocument });
  const { lines } = await started.client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  assert.deepEqual(lines.map(({ line, culprits }) => [line, culprits]), [[4, [{ ...shownCulprit, uri, line: 3 }]]]);
  await stop(started);
});

test('without a database answers are empty, with one note and one line in the log', async () => {
  const { binding } = fakeBinding({}, new CoreError('no-database', '/x: no database: record something'));
  const started = await startInProcess(binding, { database: '/x' });
  const { client, received } = started;
  const uri = await open(client, file, text);
  assert.deepEqual(await hintsOf(client, uri), []);
  assert.deepEqual(await client.sendRequest('textDocument/codeLens', { textDocument: { uri } }), []);
  const costs = await client.sendRequest<FileCostsResult>('dwell/fileCosts', { textDocument: { uri } });
  assert.deepEqual(costs.notes, ['/x: no database: record something']);
  assert.deepEqual((await client.sendRequest<HotProceduresResult>('dwell/hotProcedures', {})).rows, []);
  assert.deepEqual((await client.sendRequest<EpochsResult>('dwell/epochs', {})).warnings, ['/x: no database: record something']);
  assert.equal(received.filter(({ method }) => method === 'window/logMessage').length, 1);
  assert.equal(received.filter(({ method }) => method === 'window/showMessage').length, 0);
  await stop(started);
});

test('malformed requests get an answer that names what is wrong', async () => {
  const started = await startInProcess(fakeBinding(costs()).binding, { database: 7, epochs: 'x', hints: 'loud', hotShare: 9 });
  const { client } = started;
  const invalid = { code: -32602 };
  await assert.rejects(client.sendRequest('dwell/listing', {}), invalid);
  await assert.rejects(client.sendRequest('dwell/listing', { procedure: 4 }), invalid);
  await assert.rejects(client.sendRequest('dwell/fileCosts', { textDocument: null }), invalid);
  await assert.rejects(client.sendRequest('dwell/hotProcedures', { by: 'colour' }), invalid);
  await assert.rejects(client.sendRequest('dwell/hotProcedures', { limit: -1 }), invalid);
  await assert.rejects(client.sendRequest('workspace/executeCommand', { command: 'dwell.server.record', arguments: [{ command: [] }] }), invalid);
  await assert.rejects(client.sendRequest('workspace/executeCommand', { command: 'rm' }), invalid);
  await assert.rejects(client.sendRequest('dwell/listing', 1, 2), invalid);
  const byPosition = await client.sendRequest<HotProceduresResult>('dwell/hotProcedures');
  assert.equal(byPosition.rows.length, 2);
  assert.deepEqual(await hintsOf(client, 'untitled:Untitled-1'), []);
  assert.deepEqual(await hintsOf(client, 'file://%zz'), []);
  await stop(started);
});
