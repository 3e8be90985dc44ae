/**
 * `dwell/hotProcedures`: where the time went, most costly first.
 */
import type { CancellationToken } from 'vscode-languageserver';
import type { TopRow } from './core';
import { locationOf } from './fileView';
import type { Profile } from './profile';
import type { HotProceduresParams, HotProceduresResult, HotRow } from './protocol';
import { fileName } from './text';

export async function hotProcedures(profile: Profile, params: HotProceduresParams, token: CancellationToken): Promise<HotProceduresResult> {
  const { epochs, total, rows, omittedRows, notes } = await profile.top(params, token);
  return { epochs, total, rows: rows.map(hotRow), omittedRows, notes };
}

function hotRow(row: TopRow): HotRow {
  const { image, samples, share, cumulativeShare, cycles, cpi } = row;
  return { ...identity(row), image, samples, share, cumulativeShare, cycles, cpi, location: locationOf(row.file, row.line) };
}

/** What a row is by follows from the keys it has. */
function identity(row: TopRow): { id: string; label: string } {
  if (row.procedure !== null) {
    const id = row.image === null ? row.procedure : `${row.image}:${row.procedure}`;
    return { id, label: row.demangled ?? row.procedure };
  }
  if (row.image !== null) return { id: row.buildId ?? row.image, label: fileName(row.image) };
  if (row.app !== null) return { id: `${row.app}#${row.instance ?? 0}`, label: row.instance === null ? row.app : `${row.app} (${row.instance})` };
  const file = row.file ?? '?';
  return { id: `${file}:${row.line ?? 0}`, label: `${fileName(file)}:${row.line ?? 0}` };
}
