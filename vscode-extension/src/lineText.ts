// How hot a line is, and what stands at its end: the share as a bar, then the server's words. Pure; no VS Code.
import type { LineChange, LineCost, StaleLine } from '@dwell/lsp-server/protocol';

/** From the least; the manifest has a colour `dwell.heat.…` for each. */
export const heats = ['warm', 'hot', 'hottest'] as const;
export type Heat = typeof heats[number];

/** Cells of the bar that stands for the whole time. */
const cells = 4;
const eighths = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/** A share as a bar of block characters; what is there at all shows. */
export function shareBar(share: number): string {
  if (!(share > 0)) return '';
  const steps = Math.max(1, Math.round(Math.min(1, share) * cells * 8));
  return '█'.repeat(Math.floor(steps / 8)) + (eighths[steps % 8] ?? '');
}

/** `undefined` below `leastShare`; each level holds lines several times as costly as the one before. */
export function heatOf(share: number, leastShare: number): Heat | undefined {
  if (!(share >= leastShare) || share <= 0) return undefined;
  if (share >= 0.2) return 'hottest';
  return share >= 0.05 ? 'hot' : 'warm';
}

/** What stands at a line's end, and in which colours. */
export interface LineEnd {
  line: number;
  /** Empty: there is none. */
  bar: string;
  heat: Heat;
  text: string;
  tone: 'cost' | 'slower' | 'faster' | 'stale';
}

export interface Marks {
  lines: readonly LineCost[];
  stale: readonly StaleLine[];
  /** While epochs are compared: the change of each line. */
  changes: readonly LineChange[] | null;
}

/** Which lines are shown. */
export interface Shown {
  /** Least share of the time. */
  hotShare: number;
  /** Every line with samples, and changes that may be chance. */
  all: boolean;
}

export function lineEnds({ lines, stale, changes }: Marks, shown: Shown): LineEnd[] {
  const least = shown.all ? 0 : shown.hotShare;
  if (changes !== null) return changes.filter((change) => isShown(change, shown)).map(changeEnd);
  const costs = lines.filter(({ share }) => share >= least).map((cost): LineEnd => (
    { line: cost.line, bar: shareBar(cost.share), heat: heatOf(cost.share, shown.hotShare) ?? 'warm', text: cost.lineEnd, tone: 'cost' }));
  const edited = stale.filter(({ share }) => share >= least).map(({ line, share }): LineEnd => (
    { line, bar: '', heat: 'warm', text: staleText(share), tone: 'stale' }));
  return [...costs, ...edited];
}

function isShown({ significant, changeShare }: LineChange, { hotShare, all }: Shown): boolean {
  return all || (significant && Math.abs(changeShare) >= hotShare);
}

function changeEnd({ line, label, significant, change }: LineChange): LineEnd {
  const tone = !significant ? 'cost' : change > 0 ? 'slower' : 'faster';
  return { line, bar: '', heat: 'warm', text: label, tone };
}

/** Of a line that was edited since it was measured. */
function staleText(share: number): string {
  const percent = 100 * share;
  return `edited · was ${percent > 0 && percent < 0.05 ? '<0.1' : percent.toFixed(percent < 9.95 ? 1 : 0)} %`;
}
