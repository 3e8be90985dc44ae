/**
 * How far executions and cycles are known, in words, and stalls as they are shown with and without a scale. Pure; knows no protocol but
 * its types.
 */
import type { ScaleKind } from './protocol';
import { cpi } from './text';

const words: Readonly<Record<ScaleKind, string>> = {
  absolute: 'executions are absolute numbers',
  program: 'executions are known as ratios between functions of the program; CPI has lower bounds only',
  procedure: 'executions are known as ratios within the function; CPI has lower bounds only',
};

/** `executions are absolute numbers (a counter of the program; 3 loops)`. */
export function scaleText(kind: ScaleKind, evidence: readonly string[]): string {
  return `${words[kind]}${evidence.length === 0 ? '' : ` (${evidence.join('; ')})`}`;
}

/** A stall's bounds: `cyclesMax` is null where the scale is not absolute, shares are of the instruction's time. */
export interface Stall {
  cyclesMin: number;
  cyclesMax: number | null;
  shareMin: number;
  shareMax: number;
}

/** Causes of one stall are alternatives: at least what they explain for certain together, at most what the one that may explain most
 *  does. */
export function asOne(stalls: readonly Stall[]): Stall {
  const sum = (of: (stall: Stall) => number): number => stalls.reduce((total, stall) => total + of(stall), 0);
  const cycles = stalls.flatMap(({ cyclesMax }) => cyclesMax ?? []);
  return {
    cyclesMin: sum(({ cyclesMin }) => cyclesMin),
    cyclesMax: cycles.length === 0 ? null : Math.max(...cycles),
    shareMin: sum(({ shareMin }) => shareMin),
    shareMax: Math.max(0, ...stalls.map(({ shareMax }) => shareMax)),
  };
}

/** Whether it is long enough to be shown. */
export function isBubble({ cyclesMax, shareMax }: Stall): boolean {
  return cyclesMax === null ? shareMax >= 0.05 : cyclesMax >= 0.05;
}

/** A bar of bubbles, one for each half power of two of cycles or, without a scale, for the share of the instruction's time. */
export function bubble({ cyclesMax, shareMax }: Stall, most: number): string {
  const size = cyclesMax === null ? Math.min(1, shareMax) * most : 2 * Math.max(0, Math.log2(cyclesMax));
  return '•'.repeat(1 + Math.min(most, Math.floor(size)));
}

/** `1.0–18.0cy`, `18.0cy`; without a scale `40–85% of its time`. */
export function stallAmount({ cyclesMin, cyclesMax, shareMin, shareMax }: Stall): string {
  if (cyclesMax !== null) return cyclesMin < 0.05 || cyclesMin >= cyclesMax ? `${cyclesMax.toFixed(1)}cy` : `${cyclesMin.toFixed(1)}–${cyclesMax.toFixed(1)}cy`;
  const [least, most] = [shareMin, shareMax].map((share) => (100 * Math.min(1, share)).toFixed(0));
  const range = least === '0' ? `up to ${most}` : least === most ? most : `${least}–${most}`;
  return `${range}% of its time`;
}

/** Cycles of an instruction: `18.0cy`; `≥4.0cy` where only a bound is known and says something; `<0.17cy` where it was measured faster
 *  than the least possible, because it issued or retired together with its predecessor; else nothing. */
export function cyclesColumn(instruction: { executions: number | null; cpi: number | null }, least: number | null): string {
  const { executions, cpi: actual } = instruction;
  if (actual !== null) return `${cpi(actual)}cy`;
  const sign = executions !== null && executions > 0 ? '<' : '≥';
  return least === null || least < 0.05 ? '' : `${sign}${cpi(least)}cy`;
}
