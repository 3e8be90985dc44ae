/**
 * `dwell/hotProcedures`: where the time went, most costly first.
 */
import type { CancellationToken } from 'vscode-languageserver';
import { camel } from './camel';
import type { TopRow } from './core';
import { locationOf } from './fileView';
import type { Profile } from './profile';
import type { HotProceduresParams, HotProceduresResult, HotRow } from './protocol';
import { fileName } from './text';

type By = NonNullable<HotProceduresParams['by']>;

export async function hotProcedures(profile: Profile, params: HotProceduresParams, token: CancellationToken): Promise<HotProceduresResult> {
  const { by = 'procedure' } = params;
  const { rows, ...rest } = await profile.top(params, token);
  return { ...camel(rest), rows: rows.map((row) => hotRow(row, by)) };
}

function hotRow(row: TopRow, by: By): HotRow {
  return { ...placelessRow(row, by), location: locationOf(row.file ?? null, row.line ?? null), split: row.split ?? null };
}

/** A row without its place in the sources, which links and assistants name differently. */
export function placelessRow(row: TopRow, by: By): Omit<HotRow, 'location' | 'split'> {
  const { image = null, samples, share, cumulative_share: cumulativeShare, cycles, scale = null, cpi, cpi_min: cpiMin, cpi_max: cpiMax } = row;
  return { ...rowIdentity(row, by), image, samples, share, cumulativeShare, cycles, scale, cpi, cpiMin, cpiMax };
}

/** Ids are unique among the rows of one answer: clients key their trees by them. */
function rowIdentity(row: TopRow, by: By): { id: string; label: string } {
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
  if (file === undefined || line === undefined) return image;
  return { id: `${image.id}:${file}:${line}`, label: `${fileName(file)}:${line}` };
}

function imageIdentity({ image, build_id: buildId }: TopRow): { id: string; label: string } {
  const path = image ?? '?';
  return { id: buildId ?? path, label: fileName(path) };
}

function appIdentity({ app, instance }: TopRow): { id: string; label: string } {
  const name = app ?? '?';
  return { id: `${name}#${instance ?? 0}`, label: instance ? `${name} (${instance})` : name };
}
