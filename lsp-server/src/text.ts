/**
 * How numbers, causes and names read: the words of hints, lenses and hovers. Pure; knows no protocol.
 */

/** VS Code cuts an inlay hint at 43 characters. */
export const hintLengthMax = 42;

/** What a label is made of. */
export interface Cost {
  share: number;
  /** CPU time, measured. */
  seconds: number | null;
  /** Null unless the scale is absolute. */
  cpi: number | null;
  cpiMin: number | null;
  bestCaseCpi: number | null;
  perEntry?: PerEntry | null;
  /** The most costly first. */
  ties?: readonly TieName[];
}
export interface PerEntry {
  executions: number;
  of: string;
}
export interface TieName {
  /** `waits for memory (D-cache or DTLB miss)`. */
  text: string;
  /** Where the likeliest culprit is, as shown after an arrow: `:41`, `hash.h:12`. */
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

const levelNames: Readonly<Record<string, string>> = { l2: 'L2', 'last-level': 'LLC' };

/** `from L2 (92.0% of executions) or memory (10.0%)`, `from L2, LLC or memory` where the scale is not absolute: where the data of a miss
 *  may have come from; nothing where nothing is known. */
export function sourcesText(sources: readonly { level: string; part: number | null }[]): string {
  const names = sources.map(({ level, part }, at) => {
    const name = levelNames[level] ?? level;
    return part === null ? name : `${name} (${percent(part)}${at === 0 ? ' of executions' : ''})`;
  });
  return names.length === 0 ? '' : `from ${alternatives(names)}`;
}

/** Joins the labels of causes as alternatives: `D-cache or DTLB miss`. Labels that end in `miss` share that word. */
export function eitherCause(labels: readonly string[]): string {
  const names = [...new Set(labels)];
  const misses = names.filter((name) => name.endsWith(' miss'));
  if (misses.length < 2) return alternatives(names);
  const together = `${alternatives(misses.map((name) => name.slice(0, -' miss'.length)))} miss`;
  return alternatives([together, ...names.filter((name) => !misses.includes(name))]);
}

/** `a`, `a or b`, `a, b or c`. */
function alternatives(names: readonly string[]): string {
  const last = names.at(-1) ?? '';
  return names.length < 2 ? last : `${names.slice(0, -1).join(', ')} or ${last}`;
}

/** `28 %`, `3.1 %`, `<0.1 %`: a share at a line's end, in two digits. */
export function shortShare(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.05) return '<0.1 %';
  return `${value < 9.95 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** CPU time: `3.0 s`, `41 s`, `12 ms`, `1,234 s`. */
export function duration(seconds: number): string {
  if (seconds >= 9.95) return `${count(seconds)} s`;
  if (seconds >= 0.9995) return `${seconds.toFixed(1)} s`;
  return seconds > 0 && seconds < 0.0005 ? '<1 ms' : `${(1000 * seconds).toFixed(0)} ms`;
}

/** `450 ns`, `3.2 µs`, `41 ms`, `1.2 s`: a short time in two digits. */
export function nanoseconds(value: number): string {
  const [size, unit] = ([[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']] as const).find(([size]) => value >= size * 0.9995) ?? [1, 'ns'];
  const scaled = value / size;
  return `${scaled < 9.95 && unit !== 'ns' ? scaled.toFixed(1) : scaled.toFixed(0)} ${unit}`;
}

/** `66`, `1.3`, `0.62`: cycles in two digits. */
export function shortCycles(value: number): string {
  return value >= 9.95 ? value.toFixed(0) : cpi(value);
}

/** A bound says something from so many times the ideal on … */
const tellingRatio = 1.5;
/** … if it is that of an instruction that waits. */
const tellingCycles = 0.995;

type Cpi = Pick<Cost, 'cpi' | 'cpiMin' | 'bestCaseCpi'>;

/** `66 cycles/instr`; where the scale is not absolute a bound that says something, `≥ 4.0 cycles/instr`; nothing where none does. */
export function cyclesEach({ cpi: actual, cpiMin: least, bestCaseCpi: best }: Cpi, unit = 'cycles/instr'): string | undefined {
  if (actual !== null) return `${shortCycles(actual)} ${unit}`;
  if (least === null || least < Math.max(tellingCycles, tellingRatio * (best ?? 0))) return undefined;
  return `≥ ${shortCycles(least)} ${unit}`;
}

/** The same with its best case: `66 cycles/instr (ideal 1.3)`. */
export function cyclesAndIdeal(cost: Cpi): string | undefined {
  const each = cyclesEach(cost);
  return each === undefined || cost.bestCaseCpi === null ? each : `${each} (ideal ${shortCycles(cost.bestCaseCpi)})`;
}

/** `2.0 per entry of the loop`; of code that runs once for each entry nothing. `unit`: what stands behind the number. */
export function entriesText(perEntry: PerEntry | null | undefined, unit = ''): string | undefined {
  if (perEntry === null || perEntry === undefined || Math.abs(perEntry.executions - 1) < 0.05) return undefined;
  const { executions, of } = perEntry;
  const times = executions >= 99.5 ? quantity(executions) : executions.toFixed(executions < 0.995 ? 2 : 1);
  return `${times}${unit} per entry of the ${of}`;
}

/** `28 % · 3.0 s · waits for memory (D-cache or DTLB miss) ← :41 · 66 cycles/instr (ideal 1.3)`: time first, since it was measured,
 *  then what the time went to, then what is estimated. */
export function lineEnd(cost: Cost): string {
  const { share, seconds, ties: [tie] = [], perEntry, cpi: actual } = cost;
  return joined([
    shortShare(share),
    seconds === null ? undefined : duration(seconds),
    tie && arrow(tie.text, tie.place),
    cyclesAndIdeal(cost),
    actual === null ? entriesText(perEntry) : undefined,
  ]);
}

/** The same within `hintLengthMax`. What is estimated goes first, then the seconds, then the culprit's place, then words of the
 *  cause: they are in the hover. */
export function shortLabel(cost: Cost): string {
  const { share, seconds, ties: [tie] = [] } = cost;
  const first = shortShare(share);
  const time = seconds === null ? undefined : duration(seconds);
  const place = tie?.place ?? null;
  const causes = tie === undefined ? [] : shorterCauses(tie.text);
  const [cause] = causes;
  const forms = [
    [first, time, cause && arrow(cause, place), cyclesAndIdeal(cost)],
    [first, time, cause && arrow(cause, place)],
    ...causes.slice(1, 2).map((words) => [first, time, arrow(words, place)]),
    ...causes.slice(0, 2).map((words) => [first, arrow(words, place)]),
    ...causes.map((words) => [first, words]),
  ];
  const fits = forms.map(joined).find((text) => text.length <= hintLengthMax);
  return fits ?? `${joined([first, causes.at(-1)]).slice(0, hintLengthMax - 1)}…`;
}

/** `waits for memory (D-cache or DTLB miss)`, `memory (D-cache or DTLB miss)`, `waits for memory`, `memory`: all the causes that are
 *  tied, in ever fewer words. */
function shorterCauses(text: string): string[] {
  const bare = text.replace(/^waits for /, '');
  const general = (words: string): string => words.replace(/ \([^)]*\)/g, '');
  return [text, bare, general(text), general(bare)];
}

export function arrow(text: string, place: string | null): string {
  return place === null ? text : `${text} ← ${place}`;
}

export function joined(parts: readonly (string | undefined)[]): string {
  return parts.filter((part) => part !== undefined && part !== '').join(' · ');
}

/** Of a line that was edited since it was measured. */
export function staleLabel(share: number): string {
  return `edited · was ${shortShare(share)}`;
}

/** `31 % · 3.0 s · 11 cycles/instr (ideal 0.60)`. */
export function lensTitle(cost: Cost): string {
  return lineEnd({ ...cost, ties: [] });
}

/** `1.2 G cycles to 3.4 G cycles`, `up to 3.4 G cycles`; nothing where the clock is unknown. */
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
