/**
 * `dwell/summary`: where the cycles of a procedure, an image, of what is under a function or of everything go, after DCPI's Figure 4.
 */
import type { CancellationToken } from 'vscode-languageserver';
import { camel } from './camel';
import type { Summary } from './core';
import type { Profile } from './profile';
import type { SummaryParams, SummaryResult } from './protocol';
import { count, cpi, cyclesAndIdeal, cyclesEach, joined, percent, quantity } from './text';

export async function summary(profile: Profile, params: SummaryParams, token: CancellationToken): Promise<SummaryResult> {
  return summaryResult(await profile.summary({ ...params, epochs: params.epochs ?? [...profile.selected] }, token));
}

export function summaryResult(answer: Summary): SummaryResult {
  const { static: staticCauses, dynamic, under, ...rest } = answer;
  return {
    ...camel(rest),
    dynamic: dynamic.map((range) => camel(range)),
    staticCauses: staticCauses.map((part) => camel(part)),
    under: under === null ? null : camel(under),
    totals: totalsText(answer),
    text: summaryText(answer).map((line) => `${line}\n`).join(''),
  };
}

/** `41.2% of the recording are under parse: 4,120 of 10,000 samples with a call stack (30,000 samples in all), 12 in itself`. */
export function underText({ under, scope }: Pick<SummaryResult, 'under' | 'scope'>): string | undefined {
  if (under === null) return undefined;
  const { share, samples, stackSamples, allSamples, own, incomplete } = under;
  const unknown = incomplete === 0 ? '' : `; the outer frames of ${count(incomplete)} are not known, it may be among them`;
  return `${percent(share)} of the recording are under ${scope.name}: ${count(samples)} of ${count(stackSamples)} samples with a call stack (${count(allSamples)} samples in all), ${count(own)} in itself${unknown}`;
}

/** `32 k samples of cycles, 98.1% of them tallied · 2.0 G cycles · 11 cycles/instr (ideal 0.62) · alpha-21164`. */
function totalsText(answer: Summary): string {
  const { samples, time_event: event, tallied_share: tallied, cycles, machine_model: model } = answer;
  return joined([
    `${quantity(samples)} samples of ${event}, ${percent(tallied)} of them tallied`,
    cycles === null ? undefined : quantity(cycles, 'cycles'),
    cyclesAndIdeal(camel(answer)),
    model,
  ]);
}

/** Characters that stand for all cycles. */
const chartWidth = 24;
const titleWidth = 32;

/** The table of Figure 4, each row with a bar: what is certain solid, up to what is possible shaded. */
export function summaryText(summary: Summary): string[] {
  const { dynamic, static: staticCauses } = summary;
  const shown = dynamic.filter(({ share_max: most }) => most >= 0.0005).map(({ label, share_min: least, share_max: most }) => row(`  ${label}`, least, most));
  const statics = staticCauses.filter(({ share_max: most }) => most >= 0.0005).map(({ label, share_min: least, share_max: most }) => row(`  ${label}`, least, most));
  const known = (name: string, share: number | null): string[] => (share === null ? [] : [row(name, share, share)]);
  return [
    ...cpiRows(summary),
    ...shown,
    row('  Unexplained stall', summary.unexplained_stall_min, summary.unexplained_stall_max),
    ...known('  Unexplained gain', summary.unexplained_gain),
    row('Dynamic stalls', summary.subtotal_dynamic_min, summary.subtotal_dynamic_max),
    ...statics,
    row('Static stalls', summary.subtotal_static_min, summary.subtotal_static_max),
    row('Execution', summary.execution_min, summary.execution_max),
    ...known('Net sampling error', summary.net_sampling_error),
  ];
}

function cpiRows(summary: Summary): string[] {
  const { cpi: actual, cpi_min: cpiMin, best_case_cpi: best, instructions } = summary;
  if (best === null) return ['Best case and actual CPI: no estimate'];
  if (actual === null) {
    const bound = cyclesEach({ cpi: null, cpiMin, bestCaseCpi: null }, 'CPI') ?? 'CPI not known';
    return [`Best case ${cpi(best)} CPI, actual ${bound}: how often the code ran is known up to a factor`];
  }
  const executed = instructions === null ? '' : `, ${quantity(instructions)} instructions`;
  return [`Best case ${cpi(best)} CPI, actual ${cpi(actual)} CPI${executed}`];
}

function row(name: string, min: number, max: number): string {
  const range = Math.abs(max - min) < 0.0005 ? one(max) : `${one(min)} to ${one(max)}`;
  return `${name.padEnd(titleWidth)}${range.padStart(18)}  ${bar(min, max)}`.trimEnd();
}

function one(share: number): string {
  // No negative zero.
  return `${(Math.round(1000 * share) / 10 || 0).toFixed(1).padStart(6)}%`;
}

function bar(min: number, max: number): string {
  const length = (share: number): number => Math.round(Math.min(1, Math.max(0, share)) * chartWidth);
  return '█'.repeat(length(min)) + '░'.repeat(Math.max(0, length(max) - length(min)));
}
