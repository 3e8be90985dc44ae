/**
 * `dwell/diff`, `dwell/fileChanges` and `dwell/stats`: what changed between runs.
 */
import { LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import type { Diff, FileChanges } from './core';
import { locationOf, type FileView } from './fileView';
import type { Profile } from './profile';
import type { DiffParams, DiffPlace, DiffResult, FileChangesResult, LineChange, ProcedureChange, StatsParams, StatsResult } from './protocol';
import { diffChange, noFactors } from './verdict';

export async function diff(profile: Profile, params: DiffParams, token: CancellationToken): Promise<DiffResult> {
  const { before, after, ...options } = params;
  const a = before ?? profile.baseline;
  if (a === null) throw new ResponseError(LSPErrorCodes.RequestFailed, 'nothing to compare with: pin an epoch, or name those before');
  return diffResult(await profile.diff({ a: [...a], b: [...(after ?? profile.selected)], ...options }, token));
}

export function diffResult({ a, b, total, procedures, lines, instructions, ...rest }: Diff): DiffResult {
  const period = a.periodCycles;
  const place = (at: Diff['instructions'][number]['a']): DiffPlace | null => {
    if (at === null) return null;
    const source = locationOf(at.file, at.line);
    return { address: at.address, text: at.text, uri: source?.uri ?? null, line: source?.line ?? null };
  };
  return {
    ...rest,
    before: a,
    after: b,
    total: diffChange(total, noFactors, period),
    procedures: procedures.map(({ procedure, demangled, image, change, factors, confidence }) => ({
      id: `${image}:${procedure}`,
      name: demangled,
      image,
      confidence,
      ...diffChange(change, factors, period),
    })),
    lines: lines.map(({ file, lineA, lineB, change, factors }) => ({
      file,
      uri: locationOf(file, 1)?.uri ?? null,
      lineBefore: zeroBased(lineA),
      lineAfter: zeroBased(lineB),
      ...diffChange(change, factors, period),
    })),
    instructions: instructions.map(({ a: before, b: after, kind, change, factors }) => ({
      kind,
      before: place(before),
      after: place(after),
      ...diffChange(change, factors, period),
    })),
  };
}

function zeroBased(line: number | null | undefined): number | null {
  return line === null || line === undefined ? null : line - 1;
}

/** A file's changes as the editor shows the file; null: there is nothing to compare with. */
export function changesOf(profile: Profile, view: FileView | undefined, token: CancellationToken): Promise<FileChanges | null> {
  return view === undefined ? Promise.resolve(null) : profile.fileChanges(view.path, view.answer, token);
}

export function fileChanges(view: FileView | undefined, changes: FileChanges | null): FileChangesResult {
  if (view === undefined || changes === null) return { before: [], after: [], lines: [], procedures: [], notes: ['nothing to compare with'] };
  return { before: changes.a.epochs, after: changes.b.epochs, lines: lineChanges(view, changes), procedures: procedureChanges(view, changes), notes: changes.notes };
}

export function lineChanges(view: FileView, changes: FileChanges): LineChange[] {
  return changes.lines.flatMap(({ line: built, change, factors }) => {
    const line = view.place(built);
    return line === null ? [] : [{ line, ...diffChange(change, factors, changes.a.periodCycles) }];
  });
}

export function procedureChanges(view: FileView, changes: FileChanges): ProcedureChange[] {
  return changes.procedures.flatMap(({ procedure, line: built, change, factors }) => {
    const line = view.place(built);
    return line === null ? [] : [{ name: procedure, line, ...diffChange(change, factors, changes.a.periodCycles) }];
  });
}

export function stats(profile: Profile, params: StatsParams, token: CancellationToken): Promise<StatsResult> {
  return profile.stats(params, token);
}
