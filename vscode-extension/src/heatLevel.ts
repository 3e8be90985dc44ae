// How hot a line is. Pure; no VS Code.

/** From the least; the manifest has a colour `dwell.heat.…` for each. */
export const heats = ['warm', 'hot', 'hottest'] as const;
export type Heat = typeof heats[number];

/** `undefined` below `leastShare`; each level holds lines several times as costly as the one before. */
export function heatOf(share: number, leastShare: number): Heat | undefined {
  if (!(share >= leastShare) || share <= 0) return undefined;
  if (share >= 0.2) return 'hottest';
  return share >= 0.05 ? 'hot' : 'warm';
}
