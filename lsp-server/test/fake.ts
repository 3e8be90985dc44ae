/**
 * A core without Rust: answers from data, counts what it is asked, waits where a test says so.
 */
import type { Binding, Cancel, Core, FileCosts, LineCost, Listing, Top, TopRequest, TopRow } from '../src/core';

export interface FakeCore extends Core {
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
    gate: Promise.resolve(),
    cancelled: 0,
    changed: () => callback?.(),
    watch: (call) => {
      callback = call;
    },
    unwatch: () => {
      callback = undefined;
    },
    epochs: () => Promise.resolve({ epochs: [], warnings: ['skipped x: torn'] }),
    top: ({ by = 'procedure' }) => {
      core.asked.top++;
      return Promise.resolve({ ...top(), rows: rows[by] });
    },
    listing: (_epochs, procedure) =>
      procedure === 'absent' ? Promise.reject(new CoreError('no-procedure', "procedure 'absent': not found")) : Promise.resolve(listing()),
    fileCosts: async (epochs, _path, cancel) => {
      core.asked.fileCosts++;
      const stopped = new Promise<void>((_resolve, reject) => {
        if (!(cancel instanceof FakeCancel)) throw new Error('not of this binding');
        cancel.onCancel(() => {
          core.cancelled++;
          reject(new CoreError('cancelled', 'cancelled'));
        });
      });
      await Promise.race([core.gate, stopped]);
      return { epochs, source: 'fresh', lines: [], procedures: [], notes: [], ...costs };
    },
  };
  const open = (): Core => {
    if (fails) throw fails;
    return core;
  };
  return { binding: { Dwell: { open }, Cancel: FakeCancel }, core };
}

export function lineCost(line: number, share: number, more: Partial<LineCost> = {}): LineCost {
  return {
    line,
    samples: { 'cpu-clock': Math.round(share * 1000) },
    share,
    cycles: share * 1e10,
    executions: 1e6,
    cpi: 3.1,
    bestCaseCpi: 0.5,
    confidence: 'high',
    culprits: [],
    procedures: ['/bin/copy:copy'],
    ...more,
  };
}

function topRow(row: Partial<TopRow>): TopRow {
  const names = { id: null, procedure: null, demangled: null, image: null, buildId: null, file: null, line: null, app: null, instance: null };
  const cost = { samples: { 'cpu-clock': 900 }, share: 0.9, cumulativeShare: 0.9, cycles: 9e9, cpi: null };
  return { ...names, ...cost, ...row };
}

const copyImage = { image: '/bin/copy', buildId: 'ab' };
const pasteImage = { image: '/bin/paste', buildId: 'cd' };
const namesake = { procedure: 'copy', demangled: 'copy', ...copyImage, file: '/src/a b.c' };

/** Rows with the keys that core/query gives them. */
const rows: Record<NonNullable<TopRequest['by']>, TopRow[]> = {
  procedure: [topRow({ ...namesake, id: 'ab:0x9810', line: 3, cpi: 10.8 }), topRow({ ...namesake, id: 'ab:0x9900', line: 30 })],
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
  return { epochs: ['e1'], total: { 'cpu-clock': 1000 }, omittedRows: 3, notes: ['n'] };
}

/** DCPI's Figure 2, shortened. */
export function listing(): Listing {
  const instruction = { file: '/src/copy.c', line: 3, executions: 4e5, gain_cycles: 0, confidence: 'high' as const, stalls: [] };
  return {
    schema: 1,
    image: { path: '/bin/copy', build_id: 'ab', arch: 'x86_64' },
    procedure: { name: 'copy', demangled: 'copy', address: 0x9810, size: 16, samples: { cycles: 32618 }, share: 0.312 },
    epoch: 'e1',
    machine_model: 'alpha-21164',
    period: { cycles: { value: 62000, unit: 'cycles' } },
    time_event: 'cycles',
    period_cycles: 62000,
    blocks: [
      {
        address: 0x9810,
        frequency: 1550,
        executions: 1550 * 62000,
        confidence: 'high',
        cpi: 10.77,
        best_case_cpi: 0.62,
        successors: [{ to: 0x9810, frequency: 1500, executions: null }],
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
          { kind: 'static', cause: 'slotting', cycles_min: 1, cycles_max: 1, culprit_address: null },
          { kind: 'dynamic', cause: 'd-cache-miss', cycles_min: 0, cycles_max: 18, culprit_address: 0x9810 },
          { kind: 'dynamic', cause: 'write-buffer', cycles_min: 0, cycles_max: 18, culprit_address: null },
        ],
      },
      { ...instruction, address: 0x982c, line: 4, text: 'bne t4, 0x9810', samples: { cycles: 1586 }, head_samples: 1586, cpi: null, issue_cycles_min: 1 },
    ],
    source_lines: { '/src/copy.c': { '3': '  for (i = 0; i < n; i++)', '4': '    c[i] = a[i];' } },
    notes: [],
  };
}
