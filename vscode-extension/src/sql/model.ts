// What the page of queries and the extension say to each other. Pure; no VS Code, no page.
import type { SqlResult } from '@dwell/lsp-server/protocol';
import { count } from '../format';

export type ToPage =
  | ({ kind: 'rows' } & SqlResult)
  /** A query to run in place of what is typed. */
  | { kind: 'query'; query: string }
  | { kind: 'failed'; text: string };

export type FromPage =
  | { kind: 'run'; query: string }
  | { kind: 'cancel' };

/** What the first query may be: the functions with the most samples, in the newest recording. */
export const starter = `SELECT path, demangled, count
FROM procedure_samples JOIN images USING (image)
WHERE epoch = dwell_epoch('latest')
ORDER BY count DESC LIMIT 20;`;

/** `1 row`, `The first 1,000 rows: there are more`. */
export function summaryOf({ rows, more }: SqlResult): string {
  if (more) return `The first ${count(rows.length)} rows: there are more`;
  return `${count(rows.length)} ${rows.length === 1 ? 'row' : 'rows'}`;
}
