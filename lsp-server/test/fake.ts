/**
 * A core without Rust: answers from data, counts what it is asked, waits where a test says so.
 */
import type { Binding, Callers, CallersRequest, CallersRow, Cancel, Core, Diff, DiffChange, DiffFactors, EpochList, FileChanges, FileCosts, Flame, HottestPaths, LineDetail, Stats, Summary, LineCost, Listing, Top, TopRequest, TopRow } from '../src/core';

export interface FakeCore extends Core {
  /** What the core was asked to do. */
  done: string[];
  asked: { fileCosts: number; top: number };
  /** What `fileCosts` waits for. */
  gate: Promise<void>;
  cancelled: number;
  changed(): void;
}

export class CoreError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export class FakeCancel implements Cancel {
  private readonly told: (() => void)[] = [];
  cancelled = false;
  cancel(): void {
    this.cancelled = true;
    for (const tell of this.told) tell();
  }
  onCancel(tell: () => void): void {
    this.told.push(tell);
  }
}

export function fakeBinding(costs: Partial<FileCosts>, fails?: CoreError): { binding: Binding; core: FakeCore } {
  let callback: (() => void) | undefined;
  const core: FakeCore = {
    asked: { fileCosts: 0, top: 0 },
    done: [],
    gate: Promise.resolve(),
    cancelled: 0,
    changed: () => callback?.(),
    watch: (call) => {
      callback = call;
    },
    unwatch: () => {
      callback = undefined;
    },
    epochs: () => Promise.resolve({ schema: 1, epochs: [epoch('e0', 'before'), epoch('other', null, 'elsewhere'), epoch('e1', null)], warnings: ['skipped x: torn'] }),
    selectedEpochs: (selectors) => Promise.resolve(selectors.map((selector) => (selector === 'latest' ? 'e1' : selector))),
    lineDetail: (_epochs, _path, line) => Promise.resolve(lineDetail(line)),
    diff: ({ a, b, procedure }) => Promise.resolve(diff(a, b, procedure !== undefined)),
    fileChanges: ({ a, b }) => {
      core.done.push(`changes ${a.join('+')} ${b.join('+')}`);
      return Promise.resolve(fileChanges(a, b));
    },
    summary: () => Promise.resolve(summary()),
    callers: ({ function: name, depth, through }) =>
      name.endsWith(':absent') ? Promise.reject(new CoreError('no-function-in-stacks', `function '${name}': in no call stack`)) : Promise.resolve(callers(name, depth, through)),
    flame: () => Promise.resolve(flame()),
    inclusive: () => Promise.reject(new CoreError('no-stacks', 'no call stacks were recorded')),
    hottestPaths: () => Promise.resolve(hottestPaths()),
    fileFunctions: () => Promise.reject(new CoreError('no-stacks', 'no call stacks were recorded')),
    stats: ({ epochs }) => Promise.resolve(stats(epochs)),
    sql: async ({ query, program }) => {
      core.done.push(`begins ${query} ${program}`);
      await core.gate;
      core.done.push(`ends ${query}`);
      if (query === 'wrong') throw new CoreError('sql', 'Parser Error: syntax error at or near "wrong"');
      return { columns: [{ name: 'n', type: 'BIGINT' }], rows: [[1]], more: false, notes: [] };
    },
    renameEpoch: (epoch, name) => {
      core.done.push(`rename ${epoch} ${name}`);
      return epoch === 'absent' ? Promise.reject(new CoreError('no-epoch', "epoch 'absent': not found")) : Promise.resolve(epoch);
    },
    removeEpochs: (epochs) => {
      core.done.push(`remove ${epochs.join(' ')}`);
      return Promise.resolve(epochs);
    },
    top: ({ by = 'procedure' }) => {
      core.asked.top++;
      return Promise.resolve({ ...top(), rows: rows[by] });
    },
    listing: (_epochs, procedure) =>
      procedure === 'absent' ? Promise.reject(new CoreError('no-procedure', "procedure 'absent': not found")) : Promise.resolve(listing()),
    fileCosts: async (epochs, file, cancel) => {
      core.asked.fileCosts++;
      const stopped = new Promise<void>((_resolve, reject) => {
        if (!(cancel instanceof FakeCancel)) throw new Error('not of this binding');
        cancel.onCancel(() => {
          core.cancelled++;
          reject(new CoreError('cancelled', 'cancelled'));
        });
      });
      await Promise.race([core.gate, stopped]);
      return { schema: 1, epochs, file, source: 'fresh', lines: [], stale: [], procedures: [], programs: [], notes: [], ...costs };
    },
  };
  const open = (): Core => {
    if (fails) throw fails;
    return core;
  };
  return { binding: { Dwell: { open }, Cancel: FakeCancel }, core };
}

/** What makes an answer's scale unknown. */
export const unscaled = { scale: 'procedure' as const, executions: null, cpi: null, cpi_min: 0.3, cpi_max: null };

export function lineCost(line: number, share: number, more: Partial<LineCost> = {}): LineCost {
  return {
    line,
    samples: { 'cpu-clock': Math.round(share * 1000) },
    share,
    seconds: 10 * share,
    cycles: share * 1e10,
    scale: 'absolute',
    executions: 1e6,
    executions_min: 0.9e6,
    executions_max: 1.1e6,
    per_entry: { executions: 1, of: 'loop' },
    cpi: 3.1,
    cpi_min: 2.9,
    cpi_max: 3.4,
    best_case_cpi: 0.5,
    confidence: 'high',
    culprits: [],
    ties: [],
    procedures: ['/bin/copy:copy'],
    ...more,
  };
}

function topRow(row: Partial<TopRow>): TopRow {
  return { samples: { 'cpu-clock': 900 }, share: 0.9, cumulative_share: 0.9, cycles: 9e9, seconds: 3, cpi: null, cpi_min: null, cpi_max: null, ...row };
}

const copyImage = { image: '/bin/copy', build_id: 'ab' };
const pasteImage = { image: '/bin/paste', build_id: 'cd' };
const namesake = { procedure: 'copy', demangled: 'copy', ...copyImage, file: '/src/a b.c' };

/** Rows with the keys that core/query gives them. */
const rows: Record<NonNullable<TopRequest['by']>, TopRow[]> = {
  procedure: [topRow({ ...namesake, id: 'ab:0x9810', line: 3, scale: 'absolute', cpi: 10.8, cpi_min: 10, cpi_max: 12 }), topRow({ ...namesake, id: 'ab:0x9900', line: 30 })],
  image: [topRow(copyImage), topRow(pasteImage)],
  // A header's line lies in both images; each has a row for what is of no known line.
  line: [
    topRow({ ...copyImage, file: '/src/copy.c', line: 3 }),
    topRow({ ...copyImage, file: '/src/copy.c', line: 4 }),
    topRow({ ...copyImage, file: '/src/inline.h', line: 7 }),
    topRow({ ...pasteImage, file: '/src/inline.h', line: 7 }),
    topRow(copyImage),
    topRow(pasteImage),
  ],
  app: [topRow({ app: 'copy', instance: 0 }), topRow({ app: 'copy', instance: 1 })],
};

function top(): Omit<Top, 'rows'> {
  return { schema: 1, epochs: ['e1'], total: { 'cpu-clock': 1000 }, omitted_rows: 3, notes: ['n'] };
}

/** The same where only ratios and bounds are known. */
export function unscaledListing(): Listing {
  const known = listing();
  return {
    ...known,
    scale: { kind: 'procedure', evidence: [] },
    blocks: known.blocks.map((block) => ({ ...block, executions: null, cpi: null, cpi_min: 2, per_entry: { executions: 2, of: 'loop' as const } })),
    instructions: known.instructions.map((instruction) => ({
      ...instruction,
      executions: null,
      cpi: null,
      cpi_min: (instruction.cpi ?? 0) / 3,
      stalls: instruction.stalls.map((stall) => ({
        ...stall, cycles_min: 0, share_max: stall.kind === 'static' ? 0.02 : 0.9,
        sources: stall.sources.length === 0 ? [] : (['l2', 'last-level', 'memory'] as const).map((level) => ({ level, part: null })),
      })),
    })),
  };
}

/** DCPI's Figure 2, shortened. */
export function listing(): Listing {
  const relative = { executions_min: null, executions_max: null, executions_relative: 4e5, cpi_min: 0, cpi_max: null };
  const instruction = { file: '/src/copy.c', line: 3, executions: 4e5, ...relative, gain_cycles: 0, confidence: 'high' as const, stalls: [], kernel: null, operands: [] };
  const bounds = { share_min: 0, share_max: 1, levels: [] };
  return {
    schema: 1,
    scale: { kind: 'absolute', evidence: ['time alone, in order'] },
    image: { path: '/bin/copy', build_id: 'ab', arch: 'x86_64' },
    procedure: { name: 'copy', demangled: 'copy', address: 0x9810, size: 16, samples: { cycles: 32618 }, share: 0.312 },
    epoch: 'e1',
    machine_model: 'alpha-21164',
    period: { cycles: { value: 62000, unit: 'cycles' } },
    time_event: 'cycles',
    period_cycles: 62000,
    period_seconds: null,
    blocks: [
      {
        address: 0x9810,
        frequency: 1550,
        executions: 1550 * 62000,
        ...relative,
        per_entry: null,
        confidence: 'high',
        cpi: 10.77,
        best_case_cpi: 0.62,
        successors: [{ to: 0x9810, frequency: 1500, executions: null, executions_relative: 1500 }],
      },
    ],
    instructions: [
      { ...instruction, address: 0x9810, text: 'ldq t4, 0(t1)', samples: { cycles: 3126 }, head_samples: 3126, cpi: 2, issue_cycles_min: 1 },
      { ...instruction, address: 0x9814, text: 'addq t0, 0x4, t0', samples: {}, head_samples: 0, cpi: 0, issue_cycles_min: 0 },
      {
        ...instruction,
        address: 0x9828,
        line: 4,
        text: 'stq t4, 0(t2)',
        samples: { cycles: 27766 },
        head_samples: 27766,
        cpi: 18,
        issue_cycles_min: 1,
        stalls: [
          { kind: 'static', cause: 'slotting', label: 'slotting', letter: 's', cycles_min: 1, cycles_max: 1, culprit_address: null, sources: [], ...bounds },
          { kind: 'dynamic', cause: 'd-cache-miss', label: 'D-cache miss', letter: 'd', cycles_min: 0, cycles_max: 18, culprit_address: 0x9810, sources: [{ level: 'memory', part: 0.18 }], ...bounds, levels: ['DRAM'] },
          { kind: 'dynamic', cause: 'write-buffer', label: 'write buffer full', letter: 'w', cycles_min: 0, cycles_max: 18, culprit_address: null, sources: [], ...bounds },
        ],
      },
      { ...instruction, address: 0x982c, line: 4, text: 'bne t4, 0x9810', samples: { cycles: 1586 }, head_samples: 1586, cpi: null, issue_cycles_min: 1 },
    ],
    source_lines: { '/src/copy.c': { '3': '  for (i = 0; i < n; i++)', '4': '    c[i] = a[i];' } },
    notes: [],
  };
}

/** The same in a kernel, at ffffffff81009810. */
export function kernelListing(): Listing {
  const known = listing();
  const text = -0x7f000000;
  return {
    ...known,
    blocks: known.blocks.map((block) => ({ ...block, address: text + block.address, successors: block.successors.map((edge) => ({ ...edge, to: text + edge.to })) })),
    instructions: known.instructions.map((instruction) => ({
      ...instruction,
      address: text + instruction.address,
      text: instruction.text.replace('0x9810', '0xffffffff81009810'),
      stalls: instruction.stalls.map((stall) => ({ ...stall, culprit_address: stall.culprit_address && text + stall.culprit_address })),
    })),
  };
}

function epoch(id: string, name: string | null, host = 'here'): EpochList['epochs'][number] {
  return { id, name, start: '2026-11-20T10:00:00Z', end: '2026-11-20T10:01:00Z', host, cpu: 'Alpha 21164', backend: 'perf', scope: './copy', events: {}, notes: [] };
}

const side = { cpu: 'Alpha 21164', machine_model: 'alpha-21164', event: 'cycles', samples: 1000, period_cycles: 62000 };

export function change(samples_a: number, samples_b: number, significant = true): DiffChange {
  const ratio = samples_a === 0 ? null : samples_b / samples_a;
  const p = significant ? 1e-6 : 0.4;
  return { samples_a, samples_b, change: samples_b - samples_a, change_share: (samples_b - samples_a) / 1000, ratio, p, false_discovery_rate: p, significant };
}

/** `count` times the executions, each taking `cost` times as long. */
export function factors(count: number, cost: number): DiffFactors {
  return { executions_a: 1e6, executions_b: 1e6 * count, cpi_a: 2, cpi_b: 2 * cost, count_ratio: count, cost_ratio: cost, tells_apart: true };
}

/** `copy` became slower, `paste` is new. */
function diff(a: string[], b: string[], ofOne: boolean): Diff {
  const place = (address: number, text: string): Diff['instructions'][number]['a'] => ({ address, text, file: '/src/copy.c', line: 4 });
  const unknown = { executions_a: null, executions_b: null, cpi_a: null, cpi_b: null, count_ratio: null, cost_ratio: null, tells_apart: false };
  return {
    schema: 1,
    a: { ...side, epochs: a },
    b: { ...side, epochs: b },
    normalized_by: 'run',
    exposure: 1,
    total: change(1000, 1400),
    procedures: [
      { procedure: 'copy', demangled: 'copy', image: 'copy', confidence: 'high', ...change(500, 800), ...factors(1, 1.6) },
      { procedure: '_Z5pastev', demangled: 'paste()', image: 'copy', confidence: 'low', ...change(0, 100), ...unknown },
    ],
    lines: [{ file: '/src/copy.c', line_a: 3, line_b: 4, ...change(500, 800), ...factors(1, 1.6) }],
    instructions: !ofOne
      ? []
      : [
          { kind: 'same', a: place(0x9810, 'ldq t4, 0(t1)'), b: place(0x9820, 'ldq t4, 0(t1)'), ...change(20, 25, false), ...factors(1, 1.2) },
          { kind: 'added', a: null, b: place(0x9824, 'mulq t4, t5, t4'), ...change(0, 300), ...unknown },
        ],
    insignificant_procedures: 7,
    insignificant_lines: 9,
    omitted_rows: 0,
    notes: ['one run on each side'],
  };
}

function fileChanges(a: string[], b: string[]): FileChanges {
  return {
    schema: 1,
    a: { ...side, epochs: a },
    b: { ...side, epochs: b },
    exposure: 1,
    lines: [
      { line: 3, ...change(100, 104, false), ...factors(1, 1.04) },
      { line: 4, ...change(200, 400), ...factors(1.9, 1.05) },
    ],
    procedures: [{ procedure: 'copy', line: 1, ...change(300, 504), ...factors(1.6, 1.05) }],
    notes: [],
  };
}

function lineDetail(line: number): LineDetail {
  const stall = { kind: 'dynamic' as const, cause: 'd-cache-miss', label: 'D-cache miss', cycles_min: 0, cycles_max: 18, share_min: 0, share_max: 1, sources: [{ level: 'memory' as const, part: 0.18 }], levels: ['DRAM' as const], culprit_address: 0x9810, culprit_text: 'ldq t4, 0(t1)', file: '/src/copy.c', line: 3 };
  const instruction = { executions: 4e5, executions_relative: 4e5, cpi_min: 0, cpi_max: null, confidence: 'high' as const };
  const place = { procedure: 'copy:copy', demangled: 'copy', share: 0.3, scale: 'absolute' as const, cpi: 10, cpi_min: 9, cpi_max: 11, omitted_instructions: 0 };
  return {
    schema: 1,
    epochs: ['e1'],
    line,
    places: [
      { ...place, callers: [], instructions: [{ ...instruction, address: 0x9828, text: 'stq t4, 0(t2)', head_samples: 27766, cpi: 18, stalls: [stall, { ...stall, cause: 'dtlb-miss', label: 'DTLB miss', sources: [], levels: [] }] }] },
      { ...place, share: 0.01, callers: [{ function: 'twice', file: '/src/copy.c', line: 40 }], instructions: [{ ...instruction, address: 0x9900, text: 'nop', head_samples: 0, cpi: 0, stalls: [] }] },
    ],
    omitted_places: 0,
  };
}

/** A function with two callers, the first of which is called from `main`. */
export function callers(name: string, depth = 6, through: NonNullable<CallersRequest['through']> = []): Callers {
  const row = (caller: string, samples: number, line: number, rows: CallersRow[]): CallersRow => ({
    function: caller, image: 'prog', inlined: false, begins: caller === 'parse' ? { file: '/src/main.c', line: 5 } : null, samples, share: samples / 40, sites: [{ file: '/src/main.c', line, samples }], rows,
  });
  return {
    schema: 1, epochs: ['e1'], event: 'cpu-clock', function: name.slice(name.indexOf(':') + 1), image: 'prog', begins: { file: '/src/copy.c', line: 1 }, samples: 40, own: 30, total: 80,
    rows: through.length === 0 ? [row('parse', 30, 7, depth > 1 ? [row('main', 30, 20, [])] : []), row('load', 10, 9, [])] : through.map(() => row('main', 30, 20, [])).slice(-1),
    incomplete: [{ cause: 'cut', image: 'libc.so.6', samples: 2 }], notes: ['a note'],
  };
}

function hottestPaths(): HottestPaths {
  const frame = (name: string, line: number): HottestPaths['paths'][number]['frames'][number] => ({
    function: name, image: 'prog', inlined: false, recursive: name === 'parse', site: { file: '/src/main.c', line },
  });
  return {
    schema: 1, epochs: ['e1'], event: 'cpu-clock', samples: 80,
    paths: [{ frames: [frame('parse', 7), { ...frame('copy', 0), site: null, inlined: true }], shortened: true, samples: 30, share: 0.375 }],
    others: 2, others_samples: 50, incomplete: [], notes: [],
  };
}

function summary(): Summary {
  return {
    schema: 1,
    epochs: ['e1'],
    scope: { kind: 'procedure', name: 'copy:copy' },
    machine_model: 'alpha-21164',
    time_event: 'cycles',
    period_cycles: 62000,
    samples: 32618,
    samples_tallied: 32000,
    tallied_share: 0.981,
    procedures: 1,
    procedures_left_out: 0,
    cycles: 2e9,
    scale: 'absolute',
    instructions: 2e8,
    cpi: 10.77,
    cpi_min: 10,
    cpi_max: 12,
    best_case_cpi: 0.62,
    dynamic: [{ cause: 'd-cache-miss', label: 'D-cache miss', share_min: 0.279, share_max: 0.968 }, { cause: 'other', label: 'other causes', share_min: 0, share_max: 0 }],
    unexplained_stall: 0.023,
    unexplained_stall_min: 0.023,
    unexplained_stall_max: 0.023,
    unexplained_gain: -0.043,
    subtotal_dynamic: 0.85,
    subtotal_dynamic_min: 0.85,
    subtotal_dynamic_max: 0.85,
    static: [{ cause: 'slotting', label: 'slotting', share: 0.018, share_min: 0.018, share_max: 0.018 }],
    subtotal_static: 0.018,
    subtotal_static_min: 0.018,
    subtotal_static_max: 0.018,
    total_stall: 0.868,
    total_stall_min: 0.868,
    total_stall_max: 0.868,
    execution: 0.12,
    execution_min: 0.12,
    execution_max: 0.12,
    net_sampling_error: 0.012,
    under: null,
    notes: [],
  };
}

function stats(epochs: string[]): Stats {
  const sets = epochs.map((epoch) => ({ epoch, name: null, against: false, samples: 1000, exposure: 1 }));
  const row = { procedure: 'copy', demangled: 'copy', image: 'copy', range_share: 0.1, sum: 200, sum_share: 0.1, n: 2, mean: 100, std_dev: 7, min: 90, max: 110 };
  return { schema: 1, event: 'cycles', sets, total: 2000, rows: [{ ...row, samples: [90, 110] }], omitted_rows: 0, notes: [] };
}

/** `main` calls `copy`, which is inlined into it once, and small functions. */
function flame(): Flame {
  const none = { kind: 'function' as const, image: 'prog', kernel: false, id: null, analysis: null, own: 0 };
  const node = { parent: null, function: null, inlined: false, merged: 0, own: 0 };
  const cause = { kind: 'dynamic' as const, cause: 'd-cache-miss', label: 'D-cache miss', share_min: 0.1, share_max: 0.8 };
  const analysis = { samples: 70, scale: 'procedure' as const, cpi: null, cpi_min: 2.5, cpi_max: null, execution: null, execution_min: 0, execution_max: 0.6, causes: [cause] };
  return {
    schema: 1, epochs: ['e1'], unit: 'samples', total: 80, merged: 3, analysed_share: 0.9, incomplete: [], notes: ['a note'],
    events: [{ name: 'cpu-clock', period: 1_000_000, unit: 'ns', samples: 80, all_samples: 200 }],
    functions: [
      { ...none, name: 'main', file: '/src/main.c', line: 20, total: 80 },
      { ...none, name: 'copy', id: 'prog:copy', file: 'copy.c', line: 3, total: 75, own: 75, analysis },
    ],
    nodes: [
      { ...node, function: 0, total: 80 },
      { ...node, parent: 0, function: 1, inlined: true, total: 75, own: 75 },
      { ...node, parent: 0, merged: 3, total: 5, own: 5 },
    ],
  };
}
