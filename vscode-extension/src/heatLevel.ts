// How hot a line is, and what stands at its end. Pure; no VS Code.
import type { LineCost } from '@dwell/lsp-server/protocol';
import { magnitude } from './format';

/** From the least; the manifest has a colour `dwell.heat.…` for each. */
export const heats = ['warm', 'hot', 'hottest'] as const;
export type Heat = typeof heats[number];

/** Cells of the bar that stands for the whole time. */
const cells = 10;
const eighths = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/** A share as a bar of block characters; what is there at all shows. */
export function shareBar(share: number): string {
  if (!(share > 0)) return '';
  const steps = Math.max(1, Math.round(Math.min(1, share) * cells * 8));
  return '█'.repeat(Math.floor(steps / 8)) + (eighths[steps % 8] ?? '');
}

/** The bar, and the cycles where the hint had no room for them: VS Code cuts hints, but not this. */
export function lineEnd({ share, cycles, label }: Pick<LineCost, 'share' | 'cycles' | 'label'>): string {
  const bar = shareBar(share);
  return cycles === null || label.includes(' cy') ? bar : `${bar} ${magnitude(cycles)} cy`;
}

/** `undefined` below `leastShare`; each level holds lines several times as costly as the one before. */
export function heatOf(share: number, leastShare: number): Heat | undefined {
  if (!(share >= leastShare) || share <= 0) return undefined;
  if (share >= 0.2) return 'hottest';
  return share >= 0.05 ? 'hot' : 'warm';
}
