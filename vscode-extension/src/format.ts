// Numbers, times and names as the extension prints them. Pure; no VS Code.
import type { EpochSummary } from '@dwell/lsp-server/protocol';

/** `41.2%`; `<0.1%` for what would read as nothing. */
export function percent(share: number): string {
  if (share > 0 && share < 0.0005) return '<0.1%';
  return `${(share * 100).toFixed(1)}%`;
}

/** `12,345`. */
export function count(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** `1.2 G`, three digits at most. */
export function magnitude(value: number): string {
  const units: [number, string][] = [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e3, ' k']];
  const [size, unit] = units.find(([least]) => value >= least) ?? [1, ''];
  return `${Number((value / size).toPrecision(3))}${unit}`;
}

/** Samples of all events. */
export function samples(epoch: EpochSummary): number {
  return Object.values(epoch.events).reduce((sum, event) => sum + event.samples, 0);
}

/** `just now`, `5 min ago`, `3 h ago`, then the date. */
export function when(start: string, now: Date): string {
  const at = new Date(start);
  const minutes = Math.floor((now.getTime() - at.getTime()) / 60_000);
  if (Number.isNaN(minutes)) return start;
  if (minutes < 1) return 'just now';
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return at.toLocaleDateString('en-CA');
}

/** How an epoch is called in one word or two. */
export function epochName(epoch: EpochSummary): string {
  return epoch.name ?? `${epoch.start.slice(0, 10)} ${epoch.start.slice(11, 19)}`;
}

/** Last part of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
