/**
 * `textDocument/codeLens`: what a procedure costs, above its first line; a click opens its listing.
 */
import type { CodeLens, Range } from 'vscode-languageserver';
import type { FileChanges } from './core';
import { procedureChanges } from './diff';
import { procedureCosts, rebuiltPrograms } from './fileCosts';
import type { FileView } from './fileView';
import { showListingCommand } from './protocol';
import { fileName } from './text';
import { signedPercent, verdictWords } from './verdict';

/** `changes`: since the epoch before, or since the pinned ones; null: there is nothing to compare with. */
export function codeLenses(view: FileView | undefined, changes: FileChanges | null): CodeLens[] {
  if (view?.document === undefined) return [];
  const procedures = procedureCosts(view);
  const onLine = new Map<number, number>();
  for (const { line } of procedures) onLine.set(line, (onLine.get(line) ?? 0) + 1);
  const changed = changes === null ? [] : procedureChanges(view, changes);
  const told = fileWords(view).map((title): CodeLens => ({ range: atLine(0), command: { title, command: '' } }));
  const lenses = procedures.map((cost) => {
    // Instances of a generic procedure begin on one line: their names tell them apart.
    const several = (onLine.get(cost.line) ?? 0) > 1;
    const change = changed.find(({ line, name }) => line === cost.line && (!several || cost.id.endsWith(`:${name}`)));
    const since = change === undefined ? '' : change.significant ? ` · ${signedPercent(change.changeShare)} (${verdictWords(change.verdict)})` : ' · as before';
    const title = `${several ? `${cost.label}: ` : ''}${cost.title}${since}`;
    return { range: atLine(cost.line), command: { title, command: showListingCommand, arguments: [cost.id] } };
  });
  return [...told, ...lenses];
}

/** What one must know of the whole file, above its first line: its numbers are not of what is there now. */
function fileWords(view: FileView): string[] {
  const states = {
    fresh: [],
    unchecked: [],
    mapped: ['Dwell: newer than the program: lines found again by a diff, edited ones without numbers'],
    stale: ['Dwell: newer than the program, of which no copy was kept: no numbers'],
  };
  const rebuilt = rebuiltPrograms(view).map((path) => `Dwell: ${fileName(path)} was rebuilt and not sampled since: numbers are of the earlier build`);
  return [...states[view.costs.source], ...rebuilt];
}

function atLine(line: number): Range {
  const start = { line, character: 0 };
  return { start, end: start };
}
