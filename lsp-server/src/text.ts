/**
 * How numbers, causes and names read: the words of hints, lenses and hovers. Pure; knows no protocol.
 */

/** VS Code cuts an inlay hint at 43 characters. */
export const hintLengthMax = 42;

/** What a short label is made of. */
export interface Cost {
  share: number;
  cycles: number | null;
  cpi: number | null;
  bestCaseCpi: number | null;
  confidence?: string;
  culprits?: readonly CulpritName[];
}
export interface CulpritName {
  cause: string;
  /** Where the culprit is, as shown after an arrow: `:41`, `hash.h:12`. */
  place: string | null;
}

export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.05) return '<0.1%';
  if (value >= 99.95) return `${value.toFixed(0)}%`;
  return `${(Math.round(10 * value) / 10 || 0).toFixed(1)}%`; // No negative zero.
}

const magnitudes: readonly [number, string][] = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

/** `4.2 G`, `850 M`, `12`; with `unit`: `4.2 G cycles`, `12 cycles`. */
export function quantity(value: number, unit = ''): string {
  const [size, letter] = magnitudes.find(([size]) => value >= size * 0.9995) ?? [1, ''];
  const scaled = value / size;
  const digits = scaled < 9.95 && letter !== '' ? scaled.toFixed(1) : scaled.toFixed(0);
  return [digits, letter, unit].filter((part) => part !== '').join(' ');
}

/** `+4.2 G`, `−850 M`. */
export function signedNumber(value: number): string {
  return `${value < 0 ? '−' : '+'}${quantity(Math.abs(value))}`;
}

/** `1,234,567`. */
export function count(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

export function cpi(value: number): string {
  if (value >= 99.5) return value.toFixed(0);
  return value.toFixed(value < 0.995 ? 2 : 1);
}

const causeNames: Readonly<Record<string, string>> = {
  slotting: 'slotting',
  dependency: 'dependency',
  'functional-unit': 'unit busy',
  'i-cache-miss': 'I-cache miss',
  'itlb-miss': 'ITLB miss',
  'd-cache-miss': 'D-cache miss',
  'dtlb-miss': 'DTLB miss',
  'write-buffer': 'write buffer',
  synchronization: 'sync',
  'branch-mispredict': 'mispredict',
  divider: 'divider',
  multiplier: 'multiplier',
  'store-forwarding': 'store forwarding',
  '4k-aliasing': '4K aliasing',
  system: 'system',
  'page-fault': 'page fault',
  unexplained: 'unexplained',
};

/** A cause for people; an unknown one as it is. */
export function causeName(cause: string): string {
  return causeNames[cause] ?? cause;
}

const levelNames: Readonly<Record<string, string>> = { l2: 'L2', 'last-level': 'LLC' };

/** `from L2 (92.0% of executions) or memory (10.0%)`: where the data of a miss may have come from. */
export function sourcesText(sources: readonly { level: string; part: number }[]): string {
  const names = sources.map(({ level, part }, i) => `${levelNames[level] ?? level} (${percent(part)}${i === 0 ? ' of executions' : ''})`);
  const last = names.pop() ?? '';
  return `from ${names.length === 0 ? last : `${names.join(', ')} or ${last}`}`;
}

/** `12.3% · 4.2 G cy · CPI 3.1/0.50 · D-cache miss ← :41`, less what does not fit `hintLengthMax`. */
export function shortLabel(cost: Cost): string {
  const culprit = cost.culprits?.[0];
  const cause = culprit && causeName(culprit.cause);
  const parts: (string | undefined)[] = [
    percent(cost.share),
    cost.cycles === null ? undefined : quantity(cost.cycles, 'cy'),
    cpiPair(cost),
    culprit?.place ? `${cause ?? ''} ← ${culprit.place}` : cause,
  ];
  const join = (): string => parts.filter((part) => part !== undefined).join(' · ');
  // The cycles go first: they are in the hover, and the share tells as much beside its neighbours.
  if (join().length > hintLengthMax) parts[1] = undefined;
  if (join().length > hintLengthMax) parts[3] = cause;
  if (join().length > hintLengthMax) parts[3] = undefined;
  return join().slice(0, hintLengthMax);
}

/** `CPI 3.1/0.50`: measured and best case; `~` where the estimate is a guess. */
function cpiPair(cost: Cost): string | undefined {
  if (cost.cpi === null) return undefined;
  const guess = cost.confidence === 'low' ? '~' : '';
  const best = cost.bestCaseCpi === null ? '' : `/${cpi(cost.bestCaseCpi)}`;
  return `CPI ${guess}${cpi(cost.cpi)}${best}`;
}

/** Of a line that was edited since it was measured. */
export function staleLabel(share: number): string {
  return `edited · was ${percent(share)}`;
}

/** `31.2% · 4.1 G cycles · CPI 10.8 (best 0.60)`. */
export function lensTitle(cost: Cost): string {
  const parts = [percent(cost.share)];
  if (cost.cycles !== null) parts.push(quantity(cost.cycles, 'cycles'));
  if (cost.cpi !== null) {
    parts.push(`CPI ${cpi(cost.cpi)}${cost.bestCaseCpi === null ? '' : ` (best ${cpi(cost.bestCaseCpi)})`}`);
  }
  return parts.join(' · ');
}

/** `1.2–3.4 G cycles`, `up to 3.4 G cycles`; nothing where the clock is unknown. */
export function cyclesRange(min: number | null, max: number | null): string {
  if (max === null) return '';
  const high = quantity(max, 'cycles');
  if (min === null || min < 0.005 * max) return `up to ${high}`;
  const low = quantity(min, 'cycles');
  return low === high ? high : `${low} to ${high}`;
}

/** `main.rs` of `/a/b/main.rs`. */
export function fileName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** Text that Markdown must not read as markup. */
export function escapeMarkdown(text: string): string {
  return text.replace(/[\\`*_{}[\]|<>~]/g, '\\$&');
}

/** Text as a Markdown code span. */
export function code(text: string): string {
  return '`' + text.replaceAll('`', 'ˋ') + '`';
}
