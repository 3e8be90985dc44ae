/**
 * `dwell/diff`, `dwell/fileChanges` and `dwell/stats`: what changed between runs.
 */
import { LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import { camel } from './camel';
import type { Diff, FileChanges } from './core';
import { locationOf, type FileView } from './fileView';
import type { Profile } from './profile';
import type { DiffParams, DiffPlace, DiffResult, FileChangesResult, LineChange, ProcedureChange, StatsParams, StatsResult } from './protocol';
import { diffChange, noFactors } from './verdict';

export async function diff(profile: Profile, params: DiffParams, token: CancellationToken): Promise<DiffResult> {
  const { before, after, ...options } = params;
  const a = before ?? profile.baseline;
  if (a === null) throw new ResponseError(LSPErrorCodes.RequestFailed, 'nothing to compare with: pin a recording, or name those before');
  return diffResult(await profile.diff({ a: [...a], b: [...(after ?? profile.selected)], ...options }, token));
}

export function diffResult({ a, b, total, procedures, lines, instructions, ...rest }: Diff): DiffResult {
  const period = a.period_cycles;
  const place = (at: Diff['instructions'][number]['a']): DiffPlace | null => {
    if (at === null) return null;
    const source = locationOf(at.file, at.line);
    return { address: at.address, text: at.text, uri: source?.uri ?? null, line: source?.line ?? null };
  };
  return {
    ...camel(rest),
    before: camel(a),
    after: camel(b),
    total: diffChange({ ...total, ...noFactors }, period),
    procedures: procedures.map(({ procedure, demangled: name, image, confidence, ...change }) => ({
      id: `${image}:${procedure}`, name, image, confidence, ...diffChange(change, period),
    })),
    lines: lines.map(({ file, line_a: before, line_b: after, ...change }) => ({
      file, uri: locationOf(file, 1)?.uri ?? null, lineBefore: zeroBased(before), lineAfter: zeroBased(after), ...diffChange(change, period),
    })),
    instructions: instructions.map(({ a: before, b: after, kind, ...change }) => ({
      kind, before: place(before), after: place(after), ...diffChange(change, period),
    })),
  };
}

function zeroBased(line: number | null): number | null {
  return line === null ? null : line - 1;
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
  return changes.lines.flatMap(({ line: built, ...change }) => {
    const line = view.place(built);
    return line === null ? [] : [{ line, ...diffChange(change, changes.a.period_cycles) }];
  });
}

export function procedureChanges(view: FileView, changes: FileChanges): ProcedureChange[] {
  return changes.procedures.flatMap(({ procedure: name, line: built, ...change }) => {
    const line = view.place(built);
    return line === null ? [] : [{ name, line, ...diffChange(change, changes.a.period_cycles) }];
  });
}

export async function stats(profile: Profile, params: StatsParams, token: CancellationToken): Promise<StatsResult> {
  const { rows, ...rest } = await profile.stats(params, token);
  return {
    ...camel(rest),
    rows: rows.map(({ comparison, ...row }) => ({ ...camel(row), comparison: comparison === undefined ? null : camel(comparison) })),
  };
}
