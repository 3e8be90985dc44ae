/**
 * `textDocument/codeLens`: what a procedure costs, above its first line; a click opens its listing.
 */
import type { CodeLens } from 'vscode-languageserver';
import type { FileChanges } from './core';
import { procedureChanges } from './diff';
import { procedureCosts } from './fileCosts';
import type { FileView } from './fileView';
import { showListingCommand } from './protocol';
import { lensTitle } from './text';
import { signedPercent, verdictWords } from './verdict';

/** `changes`: since the epoch before, or since the pinned ones; null: there is nothing to compare with. */
export function codeLenses(view: FileView | undefined, changes: FileChanges | null): CodeLens[] {
  if (view?.document === undefined) return [];
  const procedures = procedureCosts(view);
  const onLine = new Map<number, number>();
  for (const { line } of procedures) onLine.set(line, (onLine.get(line) ?? 0) + 1);
  const changed = changes === null ? [] : procedureChanges(view, changes);
  return procedures.map((cost) => {
    // Instances of a generic procedure begin on one line: their names tell them apart.
    const several = (onLine.get(cost.line) ?? 0) > 1;
    const change = changed.find(({ line, name }) => line === cost.line && (!several || cost.id.endsWith(`:${name}`)));
    const since = change === undefined ? '' : change.significant ? ` · ${signedPercent(change.changeShare)} (${verdictWords(change.verdict)})` : ' · as before';
    const title = `${several ? `${cost.label}: ` : ''}${lensTitle(cost)}${since}`;
    const start = { line: cost.line, character: 0 };
    return { range: { start, end: start }, command: { title, command: showListingCommand, arguments: [cost.id] } };
  });
}
