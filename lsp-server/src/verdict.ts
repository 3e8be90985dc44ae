/**
 * Names a change. DCPI separates how often code ran from how long each execution took, so a change is attributed to one or
 * the other. Pure; knows no protocol but its types.
 */
import type { CoreChange, DiffFactors } from './core';
import type { DiffChange, Verdict } from './protocol';
import { count, cpi, hintLengthMax, joined, percent } from './text';

/** Of everything together neither count nor cost is known: its factors are those of its parts. */
export const noFactors: DiffFactors = {
  executions_a: null, executions_b: null, cpi_a: null, cpi_b: null, count_ratio: null, cost_ratio: null, tells_apart: false,
};

/** Samples are whole; a fraction of one is none. */
const seen = 0.5;

/** `periodCycles`: cycles between two samples before. */
export function diffChange(change: CoreChange, periodCycles: number | null): DiffChange {
  const verdict = verdictOf(change);
  const told = (ratio: number | null): number | null => (change.tells_apart ? ratio : null);
  return {
    verdict,
    label: changeLabel(verdict, change),
    details: changeDetails(verdict, change),
    samplesBefore: change.samples_a,
    samplesAfter: change.samples_b,
    change: change.change,
    changeShare: change.change_share,
    changeCycles: periodCycles === null ? null : change.change * periodCycles,
    ratio: change.ratio,
    executionsBefore: change.executions_a,
    executionsAfter: change.executions_b,
    countRatio: told(change.count_ratio),
    cpiBefore: change.cpi_a,
    cpiAfter: change.cpi_b,
    costRatio: told(change.cost_ratio),
    p: change.p,
    falseDiscoveryRate: change.false_discovery_rate,
    significant: change.significant,
  };
}

/** Of the two factors, the one that moved further in the change's direction gives the name. Where the evidence of both sides does not
 *  tell them apart, it is more or less time. */
export function verdictOf(change: CoreChange): Verdict {
  const { count_ratio: countRatio, cost_ratio: costRatio } = change;
  if (!change.significant) return 'noise';
  if (change.samples_a < seen) return 'new';
  if (change.samples_b < seen) return 'gone';
  const grew = change.change > 0;
  if (!change.tells_apart || countRatio === null || costRatio === null) return grew ? 'more' : 'less';
  const count = Math.log(countRatio);
  const cost = Math.log(costRatio);
  if (grew) return count > cost ? 'more-often' : 'slower';
  return count < cost ? 'less-often' : 'faster';
}

const words: Readonly<Record<Verdict, string>> = {
  new: 'new',
  gone: 'gone',
  slower: 'slower',
  faster: 'faster',
  'more-often': 'ran more often',
  'less-often': 'ran less often',
  more: 'more time',
  less: 'less time',
  noise: 'no change',
};

export function verdictWords(verdict: Verdict): string {
  return words[verdict];
}

/** `+12.3% · slower ×1.82 · CPI 2.1→3.8`: the share of all time before, the name, the factor that gave it. */
function changeLabel(verdict: Verdict, change: CoreChange): string {
  if (verdict === 'noise') return `${words.noise} beyond noise`;
  const parts: (string | undefined)[] = [signedPercent(change.change_share), `${words[verdict]}${times(verdict, change)}`, cpiChange(change)];
  const join = (): string => parts.filter((part) => part !== undefined).join(' · ');
  if (join().length > hintLengthMax) parts[2] = undefined;
  return join().slice(0, hintLengthMax);
}

/** The label, and beside it what the change rests on and how many of such calls are chance. */
function changeDetails(verdict: Verdict, change: CoreChange): string {
  const { samples_a: samplesA, samples_b: samplesB, p, false_discovery_rate: rate, cpi_a: cpiA, cpi_b: cpiB, count_ratio: countRatio, tells_apart: tellsApart } = change;
  const doubt = rate >= 0.05 ? `may be chance (p ${p.toFixed(2)})` : `of changes called like this one ${rate < 0.001 ? 'under 0.1' : (100 * rate).toFixed(1)}% are chance`;
  return joined([
    changeLabel(verdict, change),
    `${count(samplesA)} → ${count(samplesB)} samples`,
    cpiA === null || cpiB === null ? undefined : `CPI ${cpi(cpiA)} → ${cpi(cpiB)}`,
    countRatio === null || !tellsApart ? undefined : `ran ${cpi(countRatio)} times as often`,
    doubt,
  ]);
}

function times(verdict: Verdict, change: CoreChange): string {
  switch (verdict) {
    case 'slower':
    case 'faster':
      return ratio(change.cost_ratio);
    case 'more-often':
    case 'less-often':
      return ratio(change.count_ratio);
    case 'more':
    case 'less':
      return ratio(change.ratio);
    default:
      return '';
  }
}

function ratio(value: number | null): string {
  return value === null ? '' : ` ×${value.toFixed(value < 9.95 ? 2 : 0)}`;
}

function cpiChange({ cpi_a: cpiA, cpi_b: cpiB }: DiffFactors): string | undefined {
  return cpiA === null || cpiB === null ? undefined : `CPI ${cpi(cpiA)}→${cpi(cpiB)}`;
}

/** `+12.3%`, `−0.4%`. */
export function signedPercent(share: number): string {
  return `${share < 0 ? '−' : '+'}${percent(Math.abs(share))}`;
}
