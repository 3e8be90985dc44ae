// A language server with fixed answers, for what must not depend on a sampled machine: what the views, pickers and
// documents do with an answer, and how the extension stands a server that fails. It speaks PROTOCOL.md for any file
// that has a line with `HOT`; a recorded command of `die`, `fail` or `wait` does just that, `collect` adds samples; process 4712 is recorded until cancelled, 4713 never.
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  createConnection, DiagnosticSeverity, LSPErrorCodes, ProposedFeatures, ResponseError, TextDocuments, TextDocumentSyncKind,
  type CancellationToken,
} from 'vscode-languageserver/node';
import { TextDocument } from 'vscode-languageserver-textdocument';
import {
  commands, goToCallerCommand, methods, type CallCount, type CallPathsResult, type CountCallsParams, type CountedFrame, type CountedPath, protocolVersion, showListingCommand, type CallerRow, type CallersLens, type CallersParams, type CallersResult, type EpochsResult, type EpochSummary, type FileCostsResult,
  type CfgResult, type CompareParams, type FlameFunction, type FlameParams, type FlameResult, type DiffChange, type DiffParams, type DiffResult, type FileChangesResult, type HotProceduresParams,
  type HotProceduresResult, type LegendResult,
  type ImportPerfParams, type ProcessesResult, type RenameEpochParams, type ReportParams, type HotRow, type ListingLine, type ListingParams,
  type ListingResult,
  type CommandLine, type RecordParams, type RecordResult, type Settings, type SqlParams, type SqlResult,
} from '@dwell/lsp-server/protocol';

const connection = createConnection(ProposedFeatures.all);
const documents = new TextDocuments(TextDocument);

/** Longer than VS Code lets a hint be. */
const hotLineEnd = '86 % · 2.6 s · waits for memory (D-cache or DTLB miss) ← :24 · 31 cycles/instr (ideal 0.50)';
/** The procedure that all answers are about. */
const procedure = '/work/chase:chase';
/** What the list says of an epoch, but whether it is shown. */
type Recorded = Omit<EpochSummary, 'shown' | 'pinned'>;
let epochs: Recorded[] = process.env.DWELL_FAKE_EMPTY ? [] : [epoch('e1', 'before', './chase 8', 4), epoch('e2', null, './chase 32', 1)];
/** Selectors, as they were sent. */
let selected = ['latest'];
let ids = epochs.length;
/** Programs by the epochs that they will leave. */
const asked = new Map<string, string>();
let baseline: string[] | null = null;
/** How often a daemon has added samples. */
let collected = 0;
/** Nothing may be sent before the client has said hello. */
let connectionIsUp = false;

connection.onInitialize((params) => {
  const options = params.initializationOptions as Settings;
  select(options.epochs ?? ['latest']);
  return {
    serverInfo: { name: 'dwell-fake' },
    capabilities: {
      textDocumentSync: TextDocumentSyncKind.Incremental,
      codeLensProvider: { resolveProvider: false },
      hoverProvider: true,
      executeCommandProvider: { commands: Object.values(commands), workDoneProgress: true },
      experimental: { dwell: { version: protocolVersion } },
    },
  };
});

connection.onDidChangeConfiguration((params) => {
  const settings = (params.settings as { dwell: Settings }).dwell;
  diagnose(settings.diagnostics === true);
});

connection.onCodeLens((params) => {
  const hot = hotPlace(params.textDocument.uri);
  if (!hot) return [];
  const start = { line: hot.line - 1, character: 0 };
  const range = { start, end: start };
  const calls = callerRows([], false).map(({ label, details, sites: [site] }) => ({ label, details, uri: site?.uri ?? null, line: site?.line ?? null }));
  const callers: CallersLens = { id: 'chase:chase', function: 'chase', calls };
  return [
    { range, command: { title: '86 % · 2.6 s · 31 cycles/instr (ideal 0.50)', command: showListingCommand, arguments: [procedure] } },
    { range, command: { title: 'called from walk 75 %, scan 25 %', command: goToCallerCommand, arguments: [callers] } },
  ];
});

connection.onHover((params) => {
  if (hotPlace(params.textDocument.uri)?.line !== params.position.line) return null;
  return { contents: { kind: 'markdown', value: '**86.0%** of all time · **2.6 s**\n\n[What do these numbers mean?](command:dwell.showLegend)' } };
});

connection.onRequest(methods.epochs, (): EpochsResult => ({
  selected, baseline, warnings: [],
  epochs: epochs.map((each) => ({ ...each, shown: shown().includes(each.id), pinned: baseline?.includes(each.id) ?? false })),
}));

connection.onRequest(methods.hotProcedures, ({ by = 'procedure', offset = 0, limit = 100, bare = false }: HotProceduresParams): HotProceduresResult => {
  const all = by === 'procedure' ? procedures() : others(by);
  const rows = all.slice(offset, offset + limit).map((each) => bare ? { ...each, cpi: null, cpiMin: null, location: null, split: null } : each);
  return { epochs: shown(), total: { 'cpu-clock': 4000 }, rows, omittedRows: Math.max(0, all.length - offset - limit), notes: [] };
});

connection.onRequest(methods.listing, ({ procedure: asked }: ListingParams): ListingResult => {
  if (asked !== procedure) throw new ResponseError(LSPErrorCodes.RequestFailed, `no procedure ${asked} in the profile`);
  const hot = anyHotPlace();
  const source = hot ? { uri: hot.uri, line: hot.line } : null;
  const none = { address: null, target: null, source: null, culpritLines: [], operands: [] };
  const lines: [string, ListingLine][] = [
    [`chase  /work/chase`, none],
    [`86.0% of recording ${shown().join('+')}: 3,440 cpu-clock samples`, none],
    ['*** best case 1.5/3 = 0.50 CPI, actual 93/3 = 31.0 CPI', none],
    ['  chase.c:29  while (steps--) node = node->next;', { ...none, source }],
    ['1150      mov rdi, qword ptr [rdi]              12     0.1cy', { ...none, address: 0x1150, source }],
    ['          d •••••••••• 92.0cy   (d = D-cache miss)', { ...none, culpritLines: [4] }],
    ['1153      sub rsi, 1                         3,428    92.8cy  1150', { ...none, address: 0x1153, source, culpritLines: [4], operands: [{ text: 'rsi', lines: [4, 6] }] }],
    ['1157      jne 0x1150                                       ·', { ...none, address: 0x1157, target: 0x1150, source }],
  ];
  return { title: 'chase · chase', text: lines.map(([text]) => `${text}\n`).join(''), lines: lines.map(([, line]) => line), folds: [{ start: 2, end: 7, kind: 'block' }], listing: {} };
});

connection.onRequest(methods.fileCosts, ({ textDocument }: { textDocument: { uri: string } }): FileCostsResult => {
  const hot = hotPlace(textDocument.uri);
  const none: FileCostsResult = { epochs: shown(), source: 'unchecked', lines: [], stale: [], procedures: [], rebuilt: [], notes: [] };
  if (!hot) return none;
  const cost = {
    samples: { 'cpu-clock': 3440 }, share: 0.86, seconds: 2.6, cycles: 9.1e9, scale: 'absolute' as const, cpi: 31, cpiMin: 29, cpiMax: 33, bestCaseCpi: 0.5,
  };
  return {
    ...none,
    lines: [{
      ...cost, line: hot.line, label: '', lineEnd: hotLineEnd, details: hotLineEnd, executions: 3e8, executionsMin: 2.9e8, executionsMax: 3.1e8, perEntry: null, confidence: 'high', culprits: [], ties: [], procedures: [procedure],
    }],
    procedures: [{ ...cost, id: procedure, label: 'chase', title: '86 % · 2.6 s · 31 cycles/instr (ideal 0.50)', line: hot.line - 1 }],
  };
});

connection.onRequest(methods.fileChanges, ({ textDocument }: { textDocument: { uri: string } }): FileChangesResult => {
  const hot = baseline === null ? undefined : hotPlace(textDocument.uri);
  const none: FileChangesResult = { before: baseline ?? [], after: shown(), lines: [], procedures: [], notes: [] };
  if (!hot) return none;
  const noise = { ...change('noise', 'no change beyond noise', 40, 42), line: hot.line - 1 };
  return { ...none, lines: [noise, { ...change('slower', '+30.0% · slower ×1.60 · CPI 19→31', 2000, 3200), line: hot.line }] };
});

connection.onRequest(methods.callers, ({ function: name = 'chase:chase', position, callees = false, through = [] }: CallersParams): CallersResult => {
  if (position?.line === 0) throw new ResponseError(LSPErrorCodes.RequestFailed, 'chase.c:1: no function with call stacks is here');
  return {
    epochs: shown(), id: name, function: 'chase', image: 'chase', place: null, samples: 40, own: 30, total: 80,
    rows: callerRows(through.map((step) => step.function), callees), incomplete: [{ cause: 'cut', image: 'chase', samples: 2 }], notes: [],
  };
});

/** `walk`, which `main` calls, and `scan`; of one stack the callers are not known. `chase` calls `memcpy`. */
function callerRows(way: string[], callees: boolean): CallerRow[] {
  const hot = anyHotPlace();
  const row = (name: string, samples: number, back: number): CallerRow => ({
    function: name, image: 'chase', inlined: false, samples, share: samples / 40, label: name, details: `${(2.5 * samples).toFixed(1)}% of chase's samples (${samples} of 40)`, place: null,
    sites: hot && back > 0 ? [{ uri: hot.uri, line: hot.line - back, samples }] : [], leads: name !== '[incomplete]',
  });
  if (callees) return way.length === 0 ? [row('memcpy', 10, 1)] : [];
  const rows: Record<string, CallerRow[]> = { '': [row('walk', 30, 2), row('scan', 9, 3), row('[incomplete]', 1, 0)], walk: [row('main', 30, 4)] };
  return rows[way.join(' ')] ?? [];
}

connection.onRequest(methods.flame, ({ bare = false }: FlameParams): FlameResult => {
  const hot = anyHotPlace();
  const none = { kind: 'function' as const, kernel: false, file: null, line: null, location: null, own: 0, analysis: null };
  const cause = { kind: 'dynamic' as const, cause: 'd-cache-miss', label: 'D-cache miss', shareMin: 0.4, shareMax: 0.9 };
  const analysis = { samples: 3440, scale: 'absolute' as const, cpi: 31, cpiMin: 29, cpiMax: 33, execution: 0.05, executionMin: 0.05, executionMax: 0.05, causes: [cause] };
  const functions: FlameFunction[] = [
    { ...none, name: 'main', image: 'chase', id: null, total: 2000 },
    {
      ...none, name: 'chase', image: 'chase', id: procedure, file: '/work/chase.c', line: hot?.line ?? null, location: hot ? { uri: hot.uri, line: hot.line - 1 } : null,
      total: 1720, own: 1720, analysis: bare ? null : analysis,
    },
    { ...none, name: 'link_cycle', image: 'chase', id: '/work/chase:link_cycle', total: 280, own: 279 },
    { ...none, name: 'clear_page_erms', image: '[kernel.kallsyms]', id: null, kernel: true, total: 1, own: 1 },
  ];
  return {
    epochs: shown(), events: [{ name: 'cpu-clock', period: 1_000_000, unit: 'ns', samples: 2000, allSamples: 4000 }], unit: 'samples', seconds: 0.001, total: 2000, functions,
    parents: [-1, 0, 0, 2], codes: [0, 3, 4, 6], own: [0, 1720, 279, 1], merged: 0, analysedShare: bare ? 0 : 0.86, notes: [],
  };
});

connection.onRequest(methods.sql, ({ query }: SqlParams, token: CancellationToken): Promise<SqlResult> => {
  if (query.includes('wait')) return new Promise((_, reject) => { token.onCancellationRequested(() => { reject(new ResponseError(LSPErrorCodes.RequestCancelled, 'cancelled')); }); });
  if (!query.startsWith('SELECT')) throw new ResponseError(LSPErrorCodes.RequestFailed, 'Binder Error: no such column <b>');
  const columns = [{ name: 'path', type: 'VARCHAR' }, { name: 'n', type: 'BIGINT' }];
  return Promise.resolve({ columns, rows: [['/work/<b>chase</b>', 3440], ['kernel', 8], [null, 1]], more: true, notes: ['a segment is damaged'] });
});

connection.onRequest(methods.legend, (): LegendResult => ({ markdown: '# What do these numbers mean?\n\nThe share of all sampled time.\n', text: '', headings: [] }));

connection.onExecuteCommand(async (params, token): Promise<unknown> => {
  const [argument] = (params.arguments ?? []) as unknown[];
  switch (params.command) {
    case commands.selectEpochs: (argument as string[]).forEach(finish); select(argument as string[]); return null;
    case commands.record: return record(argument as RecordParams, token);
    case commands.recordCommandLine: return recordCommandLine(argument as RecordParams);
    case commands.importPerf: return record({ command: [(argument as ImportPerfParams).path] }, token);
    case commands.report: return (argument as ReportParams).path.includes('no') ? Promise.reject(new ResponseError(LSPErrorCodes.RequestFailed, 'no room')) : writeFile((argument as ReportParams).path, shown().join());
    case commands.renameEpoch: return rename(argument as RenameEpochParams);
    case commands.removeEpochs: return remove(argument as string[]);
    case commands.compare: return compare(argument as CompareParams | null);
    case commands.countCalls: return startCounting(argument as CountCallsParams);
    case commands.stopCounting: return stopCounting();
    case commands.newEpoch: throw new ResponseError(LSPErrorCodes.RequestFailed, 'no daemon runs on this machine');
    default: return null;
  }
});

/** A severe stall on the hot line, blamed on the line before. */
function diagnose(wanted: boolean): void {
  const hot = anyHotPlace();
  if (!hot) return;
  const { uri, line, length } = hot;
  const range = { start: { line, character: 0 }, end: { line, character: length } };
  const before = { start: { line: line - 1, character: 0 }, end: { line: line - 1, character: 0 } };
  const message = 'D-cache miss: up to 85.0% of this line\'s cycles';
  const relatedInformation = [{ location: { uri, range: before }, message: 'culprit: D-cache miss' }];
  const diagnostic = { range, severity: DiagnosticSeverity.Information, source: 'dwell', code: 'd-cache-miss', message, relatedInformation };
  void connection.sendDiagnostics({ uri, diagnostics: wanted ? [diagnostic] : [] });
}

async function record({ command, pids = [] }: RecordParams, token: CancellationToken): Promise<RecordResult> {
  const [program = `pid ${pids.join()}`] = command ?? [];
  if (program === 'pid 4713') throw new ResponseError(LSPErrorCodes.RequestFailed, '4713: no such process');
  if (program === 'pid 4712') await new Promise((resolve) => token.onCancellationRequested(resolve));
  // Of a process what there is by then is kept.
  if (token.isCancellationRequested && command) throw new ResponseError(LSPErrorCodes.RequestCancelled, 'cancelled');
  const id = newId();
  epochs = [...epochs, epoch(id, program, program, 0)];
  select([id]);
  return { epoch: id, output: 'chase 0000' };
}

/** What is run in a terminal. A command that ends well leaves an epoch, which is there once it has run: VS Code asks for the command
 *  line of a task of tasks.json as often as it likes. */
function recordCommandLine({ command: [program = ''] = [] }: RecordParams): CommandLine {
  if (program === 'die') process.exit(1);
  const id = newId();
  const report = join(tmpdir(), `dwell-fake-${process.pid}-${id}.json`);
  const scripts: Record<string, string> = { wait: 'sleep 1000', fail: 'false', collect: 'true' };
  if (program === 'collect') collect();
  if (!(program in scripts)) asked.set(id, program);
  const script = scripts[program] ?? `echo '{"epoch": "${id}"}' > "$1"`;
  return { program: 'sh', args: ['-c', script, '--report', report], report };
}

/** Makes the epoch of a command that was asked for and has run. */
function finish(id: string): void {
  const program = asked.get(id);
  if (program === undefined || !asked.delete(id)) return;
  epochs = [...epochs, epoch(id, program, program, 0)];
}

function newId(): string {
  ids += 1;
  return `e${ids}`;
}

/** More samples, as a daemon's, in the epoch that is shown. */
function collect(): void {
  collected += 1;
  select(selected);
}

function rename({ epoch: id, name }: RenameEpochParams): { epoch: string } {
  epochs = epochs.map((each) => each.id === id ? { ...each, name } : each);
  select(selected);
  return { epoch: id };
}

function remove(ids: string[]): { removed: string[] } {
  epochs = epochs.filter(({ id }) => !ids.includes(id));
  if (baseline?.some((id) => ids.includes(id))) baseline = null;
  select(selected.filter((id) => !ids.includes(id)).concat('latest').slice(0, 1));
  return { removed: ids };
}

function compare(params: CompareParams | null): null {
  baseline = params?.before ?? null;
  select(params?.after ?? selected);
  return null;
}

connection.onRequest(methods.diff, ({ before = [], after = [], procedure: one, all }: DiffParams): DiffResult => {
  const side = { cpu: 'AMD EPYC', machineModel: 'amd-zen3', event: 'cpu-clock', samples: 4000, periodCycles: 500_000 };
  const hot = anyHotPlace();
  const at = (address: number, text: string) => ({ address, text, uri: null, line: null });
  const noise = { ...change('noise', 'no change beyond noise', 40, 42), id: 'chase:main', name: 'main', image: 'chase', confidence: 'low' as const };
  return {
    before: { ...side, epochs: before },
    after: { ...side, epochs: after },
    normalizedBy: 'run', exposure: 1, total: change('more', '+50.0%', 4000, 6000), insignificantProcedures: 7, insignificantLines: 9, omittedRows: 0,
    notes: ['one run on each side: how much runs vary is unknown'],
    procedures: [
      { ...change('slower', '+30.0% · slower ×1.60 · CPI 19→31', 2000, 3200), id: procedure, name: 'chase', image: 'chase', confidence: 'high' },
      { ...change('more-often', '+15.0% · ran more often ×2.00', 600, 1200), id: 'chase:link_cycle', name: 'link_cycle', image: 'chase', confidence: 'high' },
      { ...change('new', '+5.0% · new', 0, 200), id: 'chase:fresh', name: 'fresh', image: 'chase', confidence: 'medium' },
      ...(all ? [noise] : []),
    ],
    lines: hot ? [{ ...change('slower', '+30.0% · slower ×1.60', 2000, 3200), file: '/work/chase.c', uri: hot.uri, lineBefore: hot.line - 2, lineAfter: hot.line }] : [],
    instructions: one === undefined ? [] : [
      { ...change('slower', '+29.0% · slower ×1.60', 1900, 3060), kind: 'same', before: at(0x1150, 'mov rdi, qword ptr [rdi]'), after: at(0x1250, 'mov rdi, qword ptr [rdi]') },
      { ...change('gone', '−1.0% · gone', 40, 0), kind: 'removed', before: at(0x1153, 'nop'), after: null },
      { ...change('new', '+3.0% · new', 0, 120), kind: 'added', before: null, after: at(0x1253, 'imul rdi, rdi, 3') },
      { ...change('noise', 'no change beyond noise', 60, 61), kind: 'same', before: at(0x1154, 'jne 0x1150'), after: at(0x1257, 'jne 0x1250') },
    ],
  };
});

function change(verdict: DiffChange['verdict'], label: string, samplesBefore: number, samplesAfter: number): DiffChange {
  const significant = verdict !== 'noise';
  const p = significant ? 1e-9 : 0.6;
  const change = samplesAfter - samplesBefore;
  return {
    verdict, label, details: label, samplesBefore, samplesAfter, change, changeShare: change / 4000, changeCycles: change * 500_000, ratio: samplesBefore === 0 ? null : samplesAfter / samplesBefore,
    executionsBefore: 1e8, executionsAfter: 1e8, countRatio: 1, cpiBefore: 19, cpiAfter: 31, costRatio: 1.6, p, falseDiscoveryRate: p, significant,
  };
}

connection.onRequest(methods.cfg, (): CfgResult => ({
  title: 'chase · chase',
  svg: '<svg xmlns="http://www.w3.org/2000/svg" class="cfg" width="300" height="120" viewBox="0 0 300 120"><g class="block heat-9" data-address="4432" tabindex="0" role="button" aria-label="block 1150"><rect x="10" y="10" width="280" height="40"/><text class="head" x="18" y="30">86.0%   CPI 31</text></g><path class="edge" stroke-width="2" d="M10 30H4V90H10"/></svg>',
  blocks: [],
  omittedBlocks: 0,
}));

/** What is counted: of `chase` in process 4711, once that was asked for. */
let counting: CallCount | undefined;

function count(pids: number[]): CallCount {
  const hot = anyHotPlace();
  const at = (line: number): { uri: string; line: number } | null => hot === undefined ? null : { uri: hot.uri, line: hot.line - line };
  const frame = (name: string | null, place: ReturnType<typeof at>): CountedFrame => ({ function: name, image: name === null ? null : 'chase', inlined: false, place });
  const path = (share: number, ...frames: CountedFrame[]): CountedPath => {
    const calls = 4000 * share;
    return { frames: [...frames, frame('main', null)], complete: true, calls, returns: calls, share, wall: { sum: 3200 * calls, mean: 3200, p50: 3000, p99: 12_000, max: 40_000 } };
  };
  return {
    id: 1, pids, seconds: 4, state: 'counting', problem: null,
    functions: [{
      function: 'chase', image: 'chase', place: at(1), label: '1.0 k calls/s · mean 3.2 µs', calls: 4000, perSecond: 1000, missed: 0, wall: null, blockedShare: 0,
      paths: [path(0.75, frame('walk', at(2))), path(0.25, frame('scan', null))], omittedPaths: 0,
    }],
  };
}

function startCounting({ pids }: CountCallsParams): CallCount {
  if (pids.includes(4712)) throw new ResponseError(LSPErrorCodes.RequestFailed, 'chase.c:9 has no code in the process');
  counting = count(pids);
  void connection.sendNotification(methods.callsDidChange, {});
  return counting;
}

function stopCounting(): null {
  counting = counting?.state === 'counting' ? { ...counting, state: 'ended' } : undefined;
  void connection.sendNotification(methods.callsDidChange, {});
  return null;
}

connection.onRequest(methods.callPaths, (): CallPathsResult => {
  const hot = anyHotPlace();
  return counting === undefined ? { counts: [], sites: [] } : { counts: [counting], sites: hot === undefined ? [] : [{ place: { uri: hot.uri, line: hot.line - 2 }, label: '← 75 % of the calls of chase' }] };
});

connection.onRequest(methods.processes, (): ProcessesResult => ({
  processes: [{ pid: 4711, name: 'busy', command: '/usr/bin/busy --loop', user: 'me', own: true, cpuSeconds: 12.5 }, { pid: 4712, name: 'service', command: '/usr/bin/service', user: 'me', own: true, cpuSeconds: 1 }],
}));

function select(selectors: string[]): void {
  selected = selectors;
  if (connectionIsUp) void connection.sendNotification(methods.profileDidChange, { epochs: selected });
}

function shown(): string[] {
  return selected.map((selector) => selector === 'latest' ? epochs.at(-1)?.id ?? '' : selector);
}

/** A picker finds a recording by its scope too, whatever its name: tests pick by scope, so each has its own. */
function epoch(id: string, name: string | null, scope: string, daysAgo: number): Recorded {
  const start = new Date(Date.UTC(2026, 10, 20 - daysAgo, 9, 41)).toISOString();
  return {
    id, name, start, end: start, host: 'builder', cpu: 'AMD EPYC', backend: 'perf', scope, notes: [],
    events: { 'cpu-clock': { period: 200_000, unit: 'ns', samples: 4000, lost: 0, throttled: 0, unknown: 3, runningShare: 1 } },
  };
}

interface HotPlace {
  uri: string;
  line: number;
  /** Of the line, in UTF-16 units. */
  length: number;
}

function hotPlace(uri: string): HotPlace | undefined {
  const lines = documents.get(uri)?.getText().split('\n') ?? [];
  const line = lines.findIndex((text) => text.includes('HOT'));
  return line < 0 ? undefined : { uri, line, length: lines[line]?.length ?? 0 };
}

function anyHotPlace(): HotPlace | undefined {
  return documents.keys().map(hotPlace).find((place) => place !== undefined);
}

function procedures(): HotRow[] {
  const hot = anyHotPlace();
  const location = hot ? { uri: hot.uri, line: hot.line - 1 } : null;
  const image = '/work/chase';
  return [
    row({ id: procedure, label: 'chase', image, share: 0.86, cpi: 31, location, split: { execution: 0.02, static: 0.08, dynamic: 0.9 } }),
    row({ id: '/work/chase:link_cycle', label: 'link_cycle', image, share: 0.115, scale: 'program', cpiMin: 4.2, location: { uri: 'file:///gone/chase.c', line: 1 } }),
    row({ id: 'kernel:clear_page_erms', label: 'clear_page_erms', image: 'kernel', share: 0.0002 }),
    ...many(),
  ];
}

/** As many more as the test wants. */
const many = (): HotRow[] => Array.from({ length: Number(process.env.DWELL_FAKE_ROWS ?? 0) }, (_, at) => {
  const name = `procedure_${String(at).padStart(5, '0')}`;
  return row({ id: `/work/large:${name}`, label: name, image: '/work/large', share: (0.0001 + collected / 1e5) / (at + 1), cpi: 1 + collected + at / 1000 });
});

function others(by: string): HotRow[] {
  return [row({ id: 'a', label: `first ${by}`, share: 0.9 }), row({ id: 'b', label: `second ${by}`, share: 0.1 })];
}

function row(known: Pick<HotRow, 'id' | 'label' | 'share'> & Partial<HotRow>): HotRow {
  return {
    image: null, samples: { 'cpu-clock': Math.round(known.share * 4000) }, cumulativeShare: known.share, cycles: null,
    scale: known.cpi === undefined ? null : 'absolute', cpi: null, cpiMin: null, cpiMax: null, location: null, split: null, ...known,
  };
}

connection.onInitialized(() => { connectionIsUp = true; });
documents.listen(connection);
connection.listen();
