/**
 * `dwell/fileCosts`: a file's lines and procedures with their costs, as the editor shows the file.
 */
import { camel } from './camel';
import type { LineCost as CoreLineCost } from './core';
import { pathOf } from './fileUri';
import { locate, type FileView } from './fileView';
import type { FileCostsResult, LineCost, LineCulprit, LineTie, ProcedureCost, StaleLine } from './protocol';
import { scaleText } from './scale';
import { arrow, count, cyclesAndIdeal, duration, entriesText, fileName, joined, lensTitle, lineEnd, quantity, shortLabel, shortShare, type TieName } from './text';

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

/** Names each key, since a hint needs all lines of the file: `camel` takes several times as long. */
function lineCost(view: FileView, cost: CoreLineCost, line: number): LineCost {
  const culprits = cost.culprits.map((culprit): LineCulprit => {
    const at = locate(view, culprit.file, culprit.line);
    const { kind, cause, label, cycles_min: cyclesMin, cycles_max: cyclesMax, share_max: shareMax } = culprit;
    return { kind, cause, label, cyclesMin, cyclesMax, shareMax, uri: at?.uri ?? null, line: at?.line ?? null };
  });
  const ties = cost.ties.map((tie): LineTie => {
    const { text, culprits, share_max: shareMax, cycles_min: cyclesMin, cycles_max: cyclesMax } = tie;
    return { text, culprits, shareMax, cyclesMin, cyclesMax };
  });
  const { samples, share, seconds, cycles, scale, executions, executions_min: executionsMin, executions_max: executionsMax, per_entry: perEntry, cpi,
    cpi_min: cpiMin, cpi_max: cpiMax, best_case_cpi: bestCaseCpi, confidence, procedures } = cost;
  const named = { share, seconds, cpi, cpiMin, bestCaseCpi, perEntry, ties: ties.map((tie) => tieName(view.uri, line, tie, culprits)) };
  const result: LineCost = {
    line, label: shortLabel(named), lineEnd: lineEnd(named), details: '', samples, share, seconds, cycles, scale, executions, executionsMin, executionsMax,
    perEntry, cpi, cpiMin, cpiMax, bestCaseCpi, confidence, culprits, ties, procedures,
  };
  result.details = lineDetails(view.uri, result);
  return result;
}

/** All that is known of a line, in one line: time first, since it was measured, then what it went to, then what is estimated. */
function lineDetails(uri: string, cost: LineCost): string {
  const { line, culprits, share, seconds, ties, executions, perEntry, scale, cycles, samples } = cost;
  const waits = ties.map((tie) => {
    const { text, place } = tieName(uri, line, tie, culprits);
    const isStatic = culpritsOf(tie, culprits).every(({ kind }) => kind === 'static');
    return `${arrow(text, place)} (${isStatic ? 'static, ' : ''}up to ${(100 * tie.shareMax).toFixed(0)}%)`;
  });
  const entries = entriesText(perEntry, ' times');
  const executed = executions === null ? entries : `${quantity(executions)} times`;
  return joined([
    shortShare(share),
    seconds === null ? undefined : duration(seconds),
    waits.join('; '),
    cyclesAndIdeal(cost),
    executed === undefined ? undefined : `executed ${executed}`,
    scaleText(scale, []),
    cycles === null ? undefined : quantity(cycles, 'cycles'),
    Object.entries(samples).map(([event, n]) => `${count(n)} samples of ${event}`).join(', '),
  ]);
}

/** A tie's words and the place of its likeliest culprit, of those whose source is known. */
export function tieName(uri: string, line: number, tie: LineTie, culprits: readonly LineCulprit[]): TieName {
  const likeliest = culpritsOf(tie, culprits).find((culprit) => culprit.uri !== null);
  return { text: tie.text, place: likeliest === undefined ? null : placeOf(uri, line, likeliest) };
}

/** Those that are tied, the likeliest first. */
export function culpritsOf({ culprits: indices }: LineTie, culprits: readonly LineCulprit[]): LineCulprit[] {
  return indices.flatMap((index) => culprits[index] ?? []);
}

/** Where a culprit is, as shown after an arrow; null on the stalled line itself. */
export function placeOf(uri: string, line: number, culprit: LineCulprit): string | null {
  if (culprit.uri === null || culprit.line === null) return null;
  if (culprit.uri !== uri) return `${fileName(pathOf(culprit.uri) ?? culprit.uri)}:${culprit.line + 1}`;
  return culprit.line === line ? null : `:${culprit.line + 1}`;
}

/** The procedures that begin on a line the editor shows, ascending. */
export function procedureCosts(view: FileView): ProcedureCost[] {
  return view.costs.procedures.flatMap(({ demangled: label, line: builtLine, ...rest }) => {
    const line = view.place(builtLine);
    const cost = camel(rest);
    return line === null ? [] : [{ ...cost, label, title: lensTitle(cost), line }];
  });
}
