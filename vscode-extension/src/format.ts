// Numbers, times and names as the extension prints them. Pure; no VS Code.
import type { EpochSummary } from '@dwell/lsp-server/protocol';

/** Longer titles are cut: a command line has no bound, the status bar has. */
const titleLengthMax = 40;

/** `41.2%`; `<0.1%` for what would read as nothing. */
export function percent(share: number): string {
  if (share > 0 && share < 0.0005) return '<0.1%';
  return `${(Math.round(1000 * share) / 10 || 0).toFixed(1)}%`; // No negative zero.
}

/** `ffffffff81000010`: an address as disassemblers write it. The protocol's addresses are signed. */
export function hex(address: number): string {
  return BigInt.asUintN(64, BigInt(address)).toString(16);
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

/** `12 s`, `5 min`, `3.2 h`; `collecting` while it goes on. */
export function duration({ start, end }: EpochSummary): string {
  if (end === null) return 'collecting';
  const seconds = (new Date(end).getTime() - new Date(start).getTime()) / 1000;
  if (Number.isNaN(seconds)) return 'duration unknown';
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 120 * 60) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** How an epoch is called: its name, else what was sampled. */
export function epochTitle(epoch: EpochSummary): string {
  const title = epoch.name ?? epoch.scope;
  return title.length > titleLengthMax ? `${title.slice(0, titleLengthMax - 1)}…` : title;
}

/** `2026-11-21 14:03:59`, here and not in UTC. */
export function localTime(start: string): string {
  const at = new Date(start);
  return Number.isNaN(at.getTime()) ? start : at.toLocaleString('sv-SE');
}

/** `0.62`, `2.4`, `118`: as the server prints cycles per instruction. */
export function cpi(value: number): string {
  if (value >= 99.5) return value.toFixed(0);
  return value.toFixed(value < 0.995 ? 2 : 1);
}

/** An image in one word: a file's name, or `kernel`. */
export function imageName(path: string): string {
  return path === '[kernel.kallsyms]' ? 'kernel' : path.slice(path.lastIndexOf('/') + 1);
}
