/** Comparisons, summaries, lines and epochs over a connection, with a fake core. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { CodeLens, Diagnostic, Hover, InlayHint, MessageConnection } from 'vscode-languageserver/node';
import { drawCfg } from '../src/cfg';
import type { LineCost } from '../src/core';
import { severeStalls } from '../src/diagnostics';
import type { HoverWithLinks } from '../src/hover';
import { tracking } from '../src/documents';
import type { FileView } from '../src/fileView';
import { processes } from '../src/processes';
import { fileHere, filesHere } from '../src/sourceMap';
import { summaryText } from '../src/summary';
import { diffChange, noFactors, verdictOf } from '../src/verdict';
import type { CfgResult, DiffResult, EpochsResult, FileChangesResult, LineResult, ListingResult, ProcessesResult, StatsResult, SummaryResult } from '../src/protocol';
import { open, startInProcess, stop, until, type Started } from './client';
import { change, factors, fakeBinding, lineCost, listing, unscaledListing } from './fake';

const text = 'void copy(long *c, long *a, int n)\n{\n  for (int i = 0; i < n; i++)\n    c[i] = a[i];\n}\n';
let folder: string;
let file: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'dwell-lsp-'));
  file = join(folder, 'copy.c');
  await writeFile(file, text);
});
after(() => rm(folder, { recursive: true }));

const missing = { kind: 'dynamic' as const, cause: 'd-cache-miss', label: 'D-cache miss', cycles_min: 1e9, cycles_max: 3e9, share_max: 0.85 };
const procedure = { id: 'copy:copy', demangled: 'copy', line: 1, samples: { cycles: 316 }, share: 0.316, seconds: 3.16, cycles: 4.1e9, scale: 'absolute' as const, cpi: 10.8, cpi_min: 10, cpi_max: 12, best_case_cpi: 0.6 };
const tie = { text: 'waits for memory (D-cache miss)', culprits: [0], share_max: 0.85, cycles_min: 1e9, cycles_max: 3e9 };
function costs(): Parameters<typeof fakeBinding>[0] {
  return { epochs: ['e1'], lines: [lineCost(3, 0.1), lineCost(4, 0.312, { culprits: [{ ...missing, file, line: 3 }], ties: [tie] })], procedures: [procedure] };
}

async function withServer(options: object, use: (started: Started, uri: string, core: ReturnType<typeof fakeBinding>['core']) => Promise<void>): Promise<void> {
  const { binding, core } = fakeBinding(costs());
  const started = await startInProcess(binding, { database: folder, ...options });
  await use(started, await open(started.client, file, text), core);
  await stop(started);
}

const run = <T>(client: MessageConnection, command: string, argument: unknown): Promise<T> =>
  client.sendRequest<T>('workspace/executeCommand', { command: `dwell.server.${command}`, arguments: [argument] });

async function labels(client: MessageConnection, uri: string): Promise<unknown[]> {
  const range = { start: { line: 0, character: 0 }, end: { line: 100, character: 0 } };
  const hints = await client.sendRequest<InlayHint[]>('textDocument/inlayHint', { textDocument: { uri }, range });
  return hints.map(({ position, label }) => [position.line, label]);
}

/** A view of the file with the cost of one line. */
function viewOf(cost: LineCost): FileView {
  const costs = { schema: 1, epochs: ['e1'], file: '/copy.c', source: 'fresh' as const, lines: [cost], procedures: [], stale: [], programs: [], notes: [] };
  const document = tracking.create('file:///copy.c', 'c', 1, text);
  return { uri: document.uri, path: '/copy.c', costs, answer: { costs, text, version: '' }, document, place: (line) => line - 1, editedPlace: () => null };
}

test('a change is named after the factor that changed more', () => {
  const called = (before: number, after: number, count: number, cost: number): string => verdictOf({ ...change(before, after), ...factors(count, cost) });
  assert.equal(called(100, 200, 1.1, 1.8), 'slower');
  assert.equal(called(100, 200, 1.9, 1.05), 'more-often');
  assert.equal(called(200, 100, 1, 0.5), 'faster');
  assert.equal(called(200, 100, 0.4, 1.2), 'less-often');
  assert.equal(called(0, 100, 1, 1), 'new');
  assert.equal(called(100, 0, 1, 1), 'gone');
  assert.equal(verdictOf({ ...change(100, 900, false), ...factors(1, 9) }), 'noise');
  const unknown = { ...factors(1, 1), count_ratio: null };
  assert.equal(verdictOf({ ...change(100, 200), ...unknown }), 'more');
  assert.equal(verdictOf({ ...change(200, 100), ...unknown }), 'less');
});

test('a change without evidence of counts is called more or less time, not slower', () => {
  const label = (before: number, after: number, of = noFactors): string => diffChange({ ...change(before, after), ...of }, null).label;
  assert.equal(label(100, 200), '+10.0% · more time ×2.00');
  assert.equal(diffChange({ ...change(100, 200), ...factors(1.1, 1.8) }, null).details, '+10.0% · slower ×1.80 · CPI 2.0→3.6 · 100 → 200 samples · CPI 2.0 → 3.6 · ran 1.1 times as often · of changes called like this one under 0.1% are chance');
  assert.equal(diffChange({ ...change(100, 110, false), ...noFactors }, null).details, 'no change beyond noise · 100 → 110 samples · may be chance (p 0.40)');
  assert.equal(label(200, 100), '−10.0% · less time ×0.50');
  assert.equal(label(100, 200, { ...factors(1.1, 1.8), tells_apart: false }), '+10.0% · more time ×2.00 · CPI 2.0→3.6');
  const untold = diffChange({ ...change(100, 200), ...factors(1.1, 1.8), tells_apart: false }, null);
  assert.deepEqual([untold.countRatio, untold.costRatio, untold.details.includes('times as often')], [null, null, false]);
  assert.equal(label(100, 200, factors(1.1, 1.8)), '+10.0% · slower ×1.80 · CPI 2.0→3.6');
});

test('two runs are compared once one is pinned, procedure by procedure and instruction by instruction', () =>
  withServer({}, async ({ client }) => {
    await assert.rejects(client.sendRequest('dwell/diff', {}), /nothing to compare with/);
    await run(client, 'compare', { before: ['e0'] });
    const told = await client.sendRequest<EpochsResult>('dwell/epochs', {});
    assert.deepEqual([told.baseline, told.selected], [['e0'], ['latest']]);
    assert.deepEqual(told.epochs.map(({ id, shown, pinned }) => [id, shown, pinned]), [['e0', false, true], ['other', false, false], ['e1', true, false]]);
    const diff = await client.sendRequest<DiffResult>('dwell/diff', {});
    assert.deepEqual([diff.before.epochs, diff.after.epochs], [['e0'], ['latest']]);
    assert.deepEqual(diff.procedures.map(({ id, name, verdict }) => [id, name, verdict]), [['copy:copy', 'copy', 'slower'], ['copy:_Z5pastev', 'paste()', 'new']]);
    const [slower] = diff.procedures;
    assert.equal(slower?.label, '+30.0% · slower ×1.60 · CPI 2.0→3.2');
    assert.equal(slower.changeCycles, 300 * 62000);
    assert.deepEqual(diff.lines.map(({ uri, lineBefore, lineAfter }) => [uri, lineBefore, lineAfter]), [['file:///src/copy.c', 2, 3]]);
    const one = await client.sendRequest<DiffResult>('dwell/diff', { before: ['a'], after: ['b'], procedure: 'copy' });
    assert.deepEqual(one.instructions.map(({ kind, verdict, before, after }) => [kind, verdict, before?.address, after?.address]), [
      ['same', 'noise', 0x9810, 0x9820],
      ['added', 'new', undefined, 0x9824],
    ]);
  }));

test('hints, lenses and hovers show changes while epochs are compared, and costs afterwards', () =>
  withServer({}, async ({ client }, uri, core) => {
    const [hot] = (await labels(client, uri)).slice(-1);
    assert.deepEqual(hot, [3, '31 % · 3.1 s · memory (D-cache miss) ← :3']);
    await run(client, 'compare', { before: ['e0'], after: ['e1'] });
    assert.deepEqual(await labels(client, uri), [[3, '+20.0% · ran more often ×1.90']], 'noise is left out');
    assert.equal(core.done.at(-1), 'changes e0 e1');
    const hover = await client.sendRequest<Hover>('textDocument/hover', { textDocument: { uri }, position: { line: 3, character: 5 } });
    assert.match((hover.contents as { value: string }).value, /\| samples \| 200 \| 400 \|/);
    const changes = await client.sendRequest<FileChangesResult>('dwell/fileChanges', { textDocument: { uri } });
    assert.deepEqual(changes.lines.map(({ line, verdict }) => [line, verdict]), [[2, 'noise'], [3, 'more-often']]);
    await run(client, 'compare', null);
    assert.equal((await labels(client, uri)).length, 2);
  }));

test('a lens shows the change since the previous comparable epoch', () =>
  withServer({}, async ({ client }, uri, core) => {
    const [lens] = await client.sendRequest<CodeLens[]>('textDocument/codeLens', { textDocument: { uri } });
    assert.equal(lens?.command?.title, '32 % · 3.2 s · 11 cycles/instr (ideal 0.60) · +20.4% (ran more often)');
    assert.deepEqual(core.done, ['changes e0 e1'], 'not the epoch of another machine');
  }));

test('a hover shows the instructions of a line, each inlined copy separately, with links', () =>
  withServer({}, async ({ client }, uri) => {
    const request = { textDocument: { uri }, position: { line: 3, character: 5 } };
    const { value } = (await client.sendRequest<Hover>('textDocument/hover', request)).contents as { value: string };
    assert.match(value, /•+ 18\.0cy D-cache or DTLB miss from memory \(18\.0% of executions\) ← 9810 ldq t4, 0\(t1\)\n9828 {6}stq t4, 0\(t2\) +27,766 +18\.0cy/);
    assert.match(value, /In `copy`, inlined into `twice` \[copy\.c:40\]\(file:\/\/\/src\/copy\.c#L40\)/);
    assert.match(value, /Culprits: \[copy\.c:3\]\(file:\/\/\/src\/copy\.c#L3\) \(D-cache or DTLB miss\)/);
    assert.match(value, /`copy` is called from `parse` 75\.0% \(\[main\.c:7\]\(file:\/\/\/src\/main\.c#L7\)\), `load` 25\.0% \(\[main\.c:9\]/);
    assert.ok(!value.includes('command:'), 'not to a client that does not run them');
    const line = await client.sendRequest<LineResult>('dwell/line', { textDocument: { uri }, line: 3 });
    assert.equal(line.places[1]?.callers[0]?.line, 39);
    assert.deepEqual((await client.sendRequest<LineResult>('dwell/line', { textDocument: { uri }, line: 0 })).places, []);
  }));

test('a client without Markdown gets plain text and separate links', async () => {
  const capabilities = { textDocument: { hover: { contentFormat: ['plaintext' as const] } }, experimental: { dwell: { commandLinks: true } } };
  const started = await startInProcess(fakeBinding(costs()).binding, { database: folder }, capabilities);
  const uri = await open(started.client, file, text);
  const request = { textDocument: { uri }, position: { line: 3, character: 5 } };
  const { contents, links = [] } = await started.client.sendRequest<HoverWithLinks>('textDocument/hover', request);
  const { kind, value } = contents as { kind: string; value: string };
  assert.equal(kind, 'plaintext');
  assert.doesNotMatch(value, /\*\*|`|\]\(|\\/);
  const told = links.map(({ start, end, ...target }) => [value.slice(start, end), target]);
  assert.deepEqual(told[0], [':3', { uri, line: 2 }]);
  assert.deepEqual(told[1], ['listing', { procedure: 'copy:copy', address: 0x9828 }]);
  assert.deepEqual(told.at(-1), ['What do these numbers mean?', { legend: true }]);
  await stop(started);
});

test('only clients that can run commands get links to listings', async () => {
  const capabilities = { experimental: { dwell: { commandLinks: true } } };
  const started = await startInProcess(fakeBinding(costs()).binding, { database: folder }, capabilities);
  const uri = await open(started.client, file, text);
  const request = { textDocument: { uri }, position: { line: 3, character: 5 } };
  const { value } = (await started.client.sendRequest<Hover>('textDocument/hover', request)).contents as { value: string };
  const [, query = ''] = /\[listing\]\(command:dwell\.showListing\?([^)]*)\)/.exec(value) ?? [];
  assert.deepEqual(JSON.parse(decodeURIComponent(query)), ['copy:copy', 0x9828]);
  assert.ok(value.endsWith('[What do these numbers mean?](command:dwell.showLegend)'), value);
  await stop(started);
});

test('a summary is DCPI\'s Figure 4, as data, as text and folded above the listing', () =>
  withServer({}, async ({ client }) => {
    const summary = await client.sendRequest<SummaryResult>('dwell/summary', { procedure: 'copy' });
    assert.match(summary.text, /^Best case 0\.62 CPI, actual 10\.8 CPI, 200 M instructions\n {2}D-cache miss +27\.9% to +96\.8% {2}█{7}░{16}\n/);
    assert.equal(summary.totals, '33 k samples of cycles, 98.1% of them tallied · 2.0 G cycles · 11 cycles/instr (ideal 0.62) · alpha-21164');
    assert.deepEqual(summary.dynamic[0], { cause: 'd-cache-miss', label: 'D-cache miss', shareMin: 0.279, shareMax: 0.968 });
    const { text: shown, folds, lines } = await client.sendRequest<ListingResult>('dwell/listing', { procedure: 'copy' });
    const rows = shown.split('\n');
    assert.deepEqual(folds.map(({ kind, start, end }) => [kind, rows[start], rows[end]]), [
      ['summary', 'Where the cycles go', rows[folds[0]?.end ?? 0]],
      ['block', rows[folds[1]?.start ?? 0], rows.at(-2)],
    ]);
    assert.match(rows[folds[0]?.end ?? 0] ?? '', /Net sampling error/);
    assert.match(rows[folds[1]?.start ?? 0] ?? '', /^\*\*\* best case/);
    assert.equal(lines.find(({ address }) => address === 0x982c)?.target, 0x9810);
  }));

test('a summary without samples has no negative zero', () => {
  const none = { schema: 1, epochs: [], scope: { kind: 'epoch' as const, name: 'e' }, machine_model: 'm', time_event: 'cycles', period_cycles: null, samples: 0, samples_tallied: 0, tallied_share: 0, scale: 'procedure' as const, cpi_min: null, cpi_max: null };
  const zero = { procedures: 0, procedures_left_out: 0, cycles: null, instructions: null, cpi: null, best_case_cpi: null, dynamic: [], unexplained_stall: 0, unexplained_stall_min: 0, unexplained_stall_max: 0, unexplained_gain: -1e-9 };
  const sums = { subtotal_dynamic: 0, subtotal_dynamic_min: 0, subtotal_dynamic_max: 0, subtotal_static: 0, subtotal_static_min: 0, subtotal_static_max: 0 };
  const rest = { ...sums, static: [], total_stall: 0, total_stall_min: 0, total_stall_max: 0, execution: 0, execution_min: 0, execution_max: 0, net_sampling_error: 0, under: null, notes: [] };
  const lines = summaryText({ ...none, ...zero, ...rest });
  assert.ok(lines.some((line) => line.includes('Unexplained gain')) && lines.every((line) => !line.includes('-0.0')));
  const ranges = { subtotal_dynamic: null, subtotal_dynamic_min: 0.2, subtotal_dynamic_max: 1, execution: null, execution_max: 0.8, net_sampling_error: null };
  const unknown = summaryText({ ...none, ...zero, ...rest, ...ranges, unexplained_gain: null }).filter((line) => /Dynamic|Execution|error|gain/.test(line));
  assert.deepEqual(unknown.map((line) => line.replaceAll(/ +/g, ' ').replace(/ [█░]+$/, '')), ['Dynamic stalls 20.0% to 100.0%', 'Execution 0.0% to 80.0%']);
});

test('statistics cover several epochs', () =>
  withServer({}, async ({ client }) => {
    const stats = await client.sendRequest<StatsResult>('dwell/stats', { epochs: ['e0', 'e1'] });
    assert.deepEqual([stats.sets.length, stats.rows[0]?.samples], [2, [90, 110]]);
    await assert.rejects(client.sendRequest('dwell/stats', {}), { code: -32602 });
  }));

test('epochs are renamed and removed, and removed ones are no longer shown', () =>
  withServer({}, async ({ client, received }, _uri, core) => {
    assert.deepEqual(await run(client, 'renameEpoch', { epoch: 'e1', name: 'slow' }), { epoch: 'e1' });
    await assert.rejects(run(client, 'renameEpoch', { epoch: 'absent', name: 'x' }), { message: "epoch 'absent': not found" });
    await run(client, 'compare', { before: ['e0'], after: ['e1'] });
    assert.deepEqual(await run(client, 'removeEpochs', ['e0', 'e1']), { removed: ['e0', 'e1'] });
    const { selected, baseline } = await client.sendRequest<EpochsResult>('dwell/epochs', {});
    assert.deepEqual([selected, baseline], [['latest'], null]);
    assert.deepEqual(core.done.slice(0, 1), ['rename e1 slow']);
    await until('the news', () => received.some(({ method }) => method === 'dwell/profileDidChange'));
    for (const wrong of [{}, { epoch: 'e1' }, { epoch: 1, name: 2 }]) await assert.rejects(run(client, 'renameEpoch', wrong), { code: -32602 });
    for (const wrong of [{}, [], [1]]) await assert.rejects(run(client, 'removeEpochs', wrong), { code: -32602 });
    for (const wrong of [{ before: [] }, { before: 'e0' }]) await assert.rejects(run(client, 'compare', wrong), { code: -32602 });
    for (const wrong of [{ pids: [] }, { pids: [-1] }, { pids: ['1'] }]) await assert.rejects(run(client, 'record', wrong), { code: -32602 });
    await assert.rejects(run(client, 'importPerf', {}), { code: -32602 });
  }));

test('severe stalls are diagnostics with their culprit, if the setting is on', async () => {
  const published = (started: Started): { uri: string; diagnostics: Diagnostic[] }[] =>
    started.received.filter(({ method }) => method === 'textDocument/publishDiagnostics').map(({ params }) => params as { uri: string; diagnostics: Diagnostic[] });
  await withServer({ diagnostics: true }, async (started, uri) => {
    const [first] = await until('diagnostics', () => published(started).length > 0 && published(started));
    const [stall] = first?.diagnostics ?? [];
    assert.equal(stall?.code, 'd-cache-miss');
    assert.equal(stall.severity, 3);
    assert.equal(stall.message, "waits for memory (D-cache miss): up to 85.0% of this line's time; the line takes 31.2% of all time (3.1 s), 3.1 cycles per instruction against 0.50 at best");
    assert.deepEqual(stall.range, { start: { line: 3, character: 4 }, end: { line: 3, character: 16 } });
    assert.equal(stall.relatedInformation?.[0]?.location.range.start.line, 2);
    await started.client.sendNotification('workspace/didChangeConfiguration', { settings: { dwell: { database: folder } } });
    await until('their end', () => published(started).at(-1)?.diagnostics.length === 0);
    assert.equal(published(started).at(-1)?.uri, uri);
  });
  const low = { scale: 'procedure' as const, executions: null, cpi: null, confidence: 'low' as const };
  const ofLine = (more: Partial<LineCost>): Diagnostic[] => severeStalls(viewOf(lineCost(4, 0.312, { ...low, culprits: [{ ...missing, file, line: 3 }], ties: [tie], ...more })));
  assert.equal(ofLine({})[0]?.message, "waits for memory (D-cache miss): up to 85.0% of this line's time; the line takes 31.2% of all time (3.1 s)");
  assert.deepEqual(ofLine({ cpi_max: 0.9 }), [], 'known to be as fast as it can be');
  assert.deepEqual([ofLine({ share: 0.03 }), ofLine({ samples: { cycles: 20 } })], [[], []], 'too little time, too few samples');
  assert.equal(ofLine({ share: 0.03, cpi: 3 }).length, 1);
  assert.deepEqual(ofLine({ ties: [{ ...tie, share_max: 0.4 }] }), []);
  assert.deepEqual(ofLine({ culprits: [{ ...missing, kind: 'static', file, line: 3 }] }), []);
  await withServer({}, async (started, uri) => {
    await labels(started.client, uri);
    await new Promise((resolve) => setTimeout(resolve, 400));
    assert.deepEqual(published(started), []);
  });
});

test('the control-flow graph has every block and edge, and no colours', () =>
  withServer({}, async ({ client }) => {
    const { svg, title, blocks } = await client.sendRequest<CfgResult>('dwell/cfg', { procedure: 'copy' });
    assert.equal(title, 'copy · copy');
    const { address, lines, successors, box } = blocks[0] ?? assert.fail('no block');
    assert.equal(blocks.length, 1);
    assert.deepEqual(successors.map(({ to, falls }) => ({ to, falls })), [{ to: address, falls: false }]);
    assert.ok(svg.includes(`<rect x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}"/>`));
    for (const line of lines) assert.ok(svg.includes(`data-address="${line.address ?? ''}"`));
    assert.equal([...svg.matchAll(/class="block /g)].length, 1);
    assert.equal([...svg.matchAll(/class="edge"/g)].length, 1);
    assert.ok(svg.includes('<title>9810 → 9810: 100% of the times</title>'), svg);
    assert.equal(blocks[0]?.head, '100%   executed 96 M   CPI 11 (ideal 0.62)');
    assert.equal(drawCfg(unscaledListing()).blocks[0]?.head, '100%   2.0 per entry of the loop   CPI ≥ 2.0 (ideal 0.62)');
    assert.ok(!/(fill|stroke)="#|style=/.test(svg));
    const hostile = listing();
    hostile.procedure.demangled = '<script>"&';
    assert.ok(drawCfg(hostile).svg.includes('&lt;script&gt;&quot;&amp;'));
  }));

test('the list of processes has those with a command line, the busiest first', () =>
  withServer({}, async ({ client }) => {
    const { processes: all } = await client.sendRequest<ProcessesResult>('dwell/processes', {});
    assert.ok(all.every(({ pid, command }) => pid !== process.pid && command !== ''));
    assert.deepEqual(all.map(({ cpuSeconds }) => cpuSeconds), [...all.map(({ cpuSeconds }) => cpuSeconds)].sort((a, b) => b - a));
    assert.deepEqual(await processes('/nowhere'), { processes: [] });
  }));

test('files are found here by the paths of their build', () => {
  const map: [string, string][] = [['/build/app', '/home/me/app'], ['.', '/src']];
  assert.equal(fileHere('/build/app/a.c', map), '/home/me/app/a.c');
  assert.equal(fileHere('/build/apple/a.c', map), '/build/apple/a.c');
  assert.equal(fileHere('lib/b.c', map), '/src/lib/b.c');
  const answer = { rows: [{ file: '/build/app/a.c', line: 3 }], source_lines: { 'lib/b.c': { '1': 'x' } }, file: null };
  assert.deepEqual(filesHere(answer, map), { rows: [{ file: '/home/me/app/a.c', line: 3 }], source_lines: { '/src/lib/b.c': { '1': 'x' } }, file: null });
});
