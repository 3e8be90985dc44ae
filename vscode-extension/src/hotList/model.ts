// What the hot list shows and in which order: rows, filter, sort, and which of them are in sight. Pure; no VS Code, no page.
import type { CycleSplit, HotProceduresParams } from '@dwell/lsp-server/protocol';
import { cpi } from '../format';

export type By = NonNullable<HotProceduresParams['by']>;
export type Sort = 'share' | 'cpi' | 'label';

/** A row as the page knows it. */
export interface ListRow {
  id: string;
  label: string;
  image: string | null;
  share: number;
  cumulativeShare: number;
  /** `undefined`: not asked yet. */
  detail?: Detail;
}

/** Values that take long to compute, which are requested only for the rows in sight. */
export interface Detail {
  cpi: number | null;
  /** Where the scale is not absolute, `cpi` is null and this a bound. */
  cpiMin: number | null;
  split: CycleSplit | null;
}

/** What stands instead of rows. */
export interface Words {
  text: string;
  /** Commands that help. */
  actions: { title: string; command: string }[];
}

export type ToPage =
  | { kind: 'rows'; by: By; rows: ListRow[] }
  | { kind: 'details'; by: By; details: Record<string, Detail> }
  | { kind: 'words'; words: Words };

export type FromPage =
  | { kind: 'ready' }
  | { kind: 'by'; by: By }
  | { kind: 'open' | 'listing'; id: string }
  /** One of those that words offered. */
  | { kind: 'run'; command: string }
  /** Places in the order of share. */
  | { kind: 'wanted'; from: number; to: number };

/** Indices of the rows to show, in their order; `rows` come by share. Where a CPI is not known yet the row is last. */
export function arranged(rows: readonly ListRow[], filter: string, sort: Sort): number[] {
  const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== '');
  const has = (row: ListRow) => words.every((word) => `${row.label} ${row.image ?? ''}`.toLowerCase().includes(word));
  const shown = rows.flatMap((row, at) => (words.length === 0 || has(row) ? [at] : []));
  if (sort === 'share') return shown;
  const cost = (at: number) => rows[at]?.detail?.cpi ?? rows[at]?.detail?.cpiMin ?? -1;
  const label = (at: number) => rows[at]?.label ?? '';
  return shown.sort((a, b) => (sort === 'cpi' ? cost(b) - cost(a) : label(a).localeCompare(label(b))) || a - b);
}

/** A bound of less than a cycle says nothing. */
const tellingBound = 0.995;

/** `CPI 31.0`; `CPI ≥ 4.0` where only a bound is known; nothing where none says something. */
export function cpiText(detail: Detail | undefined): string {
  if (detail === undefined) return '';
  if (detail.cpi !== null) return `CPI ${cpi(detail.cpi)}`;
  return detail.cpiMin === null || detail.cpiMin < tellingBound ? '' : `CPI ≥ ${cpi(detail.cpiMin)}`;
}

/** Rows beyond those in sight that are drawn too, so that scrolling shows no gap. */
const margin = 10;

/** From and to (exclusive), of `total` rows. */
export function inSight(scrollTop: number, height: number, rowHeight: number, total: number): [number, number] {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - margin);
  const last = Math.min(total, Math.ceil((scrollTop + height) / rowHeight) + margin);
  return [Math.min(first, last), last];
}
