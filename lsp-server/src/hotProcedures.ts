/**
 * `dwell/hotProcedures`: where the time went, most costly first.
 */
import type { CancellationToken } from 'vscode-languageserver';
import type { TopRow } from './core';
import { locationOf } from './fileView';
import type { Profile } from './profile';
import type { HotProceduresParams, HotProceduresResult, HotRow } from './protocol';
import { fileName } from './text';

type By = NonNullable<HotProceduresParams['by']>;

export async function hotProcedures(profile: Profile, params: HotProceduresParams, token: CancellationToken): Promise<HotProceduresResult> {
  const { by = 'procedure' } = params;
  const { epochs, total, rows, omittedRows, notes } = await profile.top(params, token);
  return { epochs, total, rows: rows.map((row) => hotRow(row, by)), omittedRows, notes };
}

function hotRow(row: TopRow, by: By): HotRow {
  const { image, samples, share, cumulativeShare, cycles, scale, cpi, cpiMin, cpiMax, split } = row;
  const location = locationOf(row.file, row.line);
  return { ...rowIdentity(row, by), image, samples, share, cumulativeShare, cycles, scale, cpi, cpiMin, cpiMax, location, split: split ?? null };
}

/** Ids are unique among the rows of one answer: clients key their trees by them. */
export function rowIdentity(row: TopRow, by: By): { id: string; label: string } {
  switch (by) {
    case 'procedure':
      return procedureIdentity(row);
    case 'line':
      return lineIdentity(row);
    case 'image':
      return imageIdentity(row);
    case 'app':
      return appIdentity(row);
  }
}

function procedureIdentity({ id, procedure, demangled }: TopRow): { id: string; label: string } {
  const name = procedure ?? '?';
  return { id: id ?? name, label: demangled ?? name };
}

/** One line may lie in several images: a header's, inlined. What has no line is one row for each image. */
function lineIdentity(row: TopRow): { id: string; label: string } {
  const { file, line } = row;
  const image = imageIdentity(row);
  if (file === null || line === null) return image;
  return { id: `${image.id}:${file}:${line}`, label: `${fileName(file)}:${line}` };
}

function imageIdentity({ image, buildId }: TopRow): { id: string; label: string } {
  const path = image ?? '?';
  return { id: buildId ?? path, label: fileName(path) };
}

function appIdentity({ app, instance }: TopRow): { id: string; label: string } {
  const name = app ?? '?';
  return { id: `${name}#${instance ?? 0}`, label: instance ? `${name} (${instance})` : name };
}
