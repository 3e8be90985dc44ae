/**
 * `textDocument/codeLens`: what a procedure costs, above its first line; a click opens its listing. Where call stacks were recorded,
 * who calls it; a click goes to the call.
 */
import type { CodeLens, Range } from 'vscode-languageserver';
import { firstSite, idOf, shareText, shortName, type ShownFunction } from './callers';
import type { FileChanges } from './core';
import { procedureChanges } from './diff';
import { procedureCosts, rebuiltPrograms } from './fileCosts';
import type { FileView } from './fileView';
import { goToCallerCommand, showListingCommand, type CallersLens } from './protocol';
import { fileName, joined, shortShare } from './text';
import { signedPercent, verdictWords } from './verdict';

/** `changes`: since the epoch before, or since the pinned ones; null: there is nothing to compare with. `functions`: those of the file that
 *  are in call stacks. */
export function codeLenses(view: FileView | undefined, changes: FileChanges | null, functions: readonly ShownFunction[]): CodeLens[] {
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
  return [...told, ...lenses, ...functions.flatMap((each) => callersLens(each, functions))];
}

const callersShown = 3;
/** Calls that a lens leads to; all are in the view of callers. */
const callsMax = 30;

/** `called from parse 75 %, load 25 %`: parts of the function's samples. A function without a first line here has none. */
function callersLens(of: ShownFunction, all: readonly ShownFunction[]): CodeLens[] {
  const { line, rows } = of;
  if (line === null || rows.length === 0) return [];
  const names = rows.slice(0, callersShown).map(({ function: name, share }) => `${shortName(name)} ${shortShare(share)}`);
  const more = rows.length > names.length ? `${rows.length - names.length} more` : undefined;
  const several = all.filter((other) => other.line === line).length > 1;
  const title = `${several ? `${of.function}: ` : ''}called from ${[...names, ...(more === undefined ? [] : [more])].join(', ')}`;
  const calls = rows.slice(0, callsMax).map((row) => {
    const at = firstSite(row);
    return { label: row.function, details: joined([shareText(of, row), row.inlined ? 'inlined' : undefined]), uri: at?.uri ?? null, line: at?.line ?? null };
  });
  const lens: CallersLens = { id: idOf(of), function: of.function, calls };
  return [{ range: atLine(line), command: { title, command: goToCallerCommand, arguments: [lens] } }];
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
