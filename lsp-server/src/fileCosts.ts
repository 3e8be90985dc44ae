/**
 * `dwell/fileCosts`: a file's lines and procedures with their costs, as the editor shows the file.
 */
import type { LineCost as CoreLineCost } from './core';
import { pathOf } from './fileUri';
import { locate, type FileView } from './fileView';
import type { FileCostsResult, LineCost, LineCulprit, ProcedureCost, StaleLine } from './protocol';
import { fileName, shortLabel, type CulpritName } from './text';

export function fileCosts(view: FileView | undefined): FileCostsResult {
  if (view === undefined) return { epochs: [], source: 'unchecked', lines: [], stale: [], procedures: [], rebuilt: [], notes: ['not a file'] };
  const { epochs, source, notes } = view.costs;
  return { epochs, source, lines: lineCosts(view), stale: staleLines(view), procedures: procedureCosts(view), rebuilt: rebuiltPrograms(view), notes };
}

/** The lines that have a place in the editor, ascending. */
export function lineCosts(view: FileView): LineCost[] {
  return view.costs.lines.flatMap((cost) => {
    const line = view.place(cost.line);
    return line === null ? [] : [lineCost(view, cost, line)];
  });
}

/** The lines that were edited since they were measured, in the file or in the buffer, ascending. */
export function staleLines(view: FileView): StaleLine[] {
  const inFile = view.costs.stale.map(({ line, share }) => ({ line: view.place(line) ?? view.editedPlace(line), share }));
  const inBuffer = view.costs.lines.map(({ line, share }) => ({ line: view.editedPlace(line), share }));
  const shown = [...inFile, ...inBuffer].flatMap(({ line, share }) => (line === null ? [] : [{ line, share }]));
  return shown.sort((a, b) => a.line - b.line);
}

/** Programs that were built again since and were not sampled again. */
export function rebuiltPrograms(view: FileView): string[] {
  return view.costs.programs.filter(({ rebuilt }) => rebuilt).map(({ path }) => path);
}

function lineCost(view: FileView, cost: CoreLineCost, line: number): LineCost {
  const culprits = cost.culprits.map((culprit): LineCulprit => {
    const at = locate(view, culprit.file, culprit.line);
    const { kind, cause, cyclesMin, cyclesMax, shareMax } = culprit;
    return { kind, cause, cyclesMin, cyclesMax, shareMax, uri: at?.uri ?? null, line: at?.line ?? null };
  });
  const { samples, share, cycles, executions, cpi, bestCaseCpi, confidence, procedures } = cost;
  const label = shortLabel({ ...cost, culprits: culprits.map((culprit) => culpritName(view.uri, line, culprit)) });
  return { line, label, samples, share, cycles, executions, cpi, bestCaseCpi, confidence, culprits, procedures };
}

/** The place is left out where the culprit is on the stalled line itself. */
export function culpritName(uri: string, line: number, culprit: LineCulprit): CulpritName {
  const { cause } = culprit;
  if (culprit.uri === null || culprit.line === null) return { cause, place: null };
  if (culprit.uri !== uri) return { cause, place: `${fileName(pathOf(culprit.uri) ?? culprit.uri)}:${culprit.line + 1}` };
  return { cause, place: culprit.line === line ? null : `:${culprit.line + 1}` };
}

/** The procedures that begin on a line the editor shows, ascending. */
export function procedureCosts(view: FileView): ProcedureCost[] {
  return view.costs.procedures.flatMap(({ demangled, line: builtLine, ...cost }) => {
    const line = view.place(builtLine);
    return line === null ? [] : [{ ...cost, label: demangled, line }];
  });
}
