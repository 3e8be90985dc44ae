// What the flame graph's page and the extension say to each other. Pure; no VS Code, no page.
import type { FlameFunction, FlameResult } from '@dwell/lsp-server/protocol';
import type { FlameData } from '../../../flame-graph/flameGraph.mjs';
import { count, percent } from '../format';

export type ToPage =
  | { kind: 'graph'; data: FlameData<FlameFunction>; summary: string; notes: string[] }
  /** The same functions, with what the analysis knows of them. */
  | { kind: 'functions'; functions: FlameFunction[]; notes: string[] }
  | { kind: 'words'; text: string };

export type FromPage =
  | { kind: 'ready' }
  | ({ kind: 'open' } & Pick<FlameFunction, 'location' | 'id'>);

/** `1,234 of 5,678 samples of cpu-clock have a call stack`, and how many frames are not kept apart. */
export function summaryOf({ events, merged }: Pick<FlameResult, 'events' | 'merged'>): string {
  const each = events.map(({ name, samples, allSamples }) => `${count(samples)} of ${count(allSamples)} samples of ${name} (${percent(samples / Math.max(1, allSamples))}) have a call stack`);
  return [...each, ...(merged > 0 ? [`${count(merged)} small frames are not kept apart`] : [])].join('; ');
}
