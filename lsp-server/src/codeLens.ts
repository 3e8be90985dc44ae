/**
 * `textDocument/codeLens`: what a procedure costs, above its first line; a click opens its listing.
 */
import type { CodeLens } from 'vscode-languageserver';
import { procedureCosts } from './fileCosts';
import type { FileView } from './fileView';
import { showListingCommand } from './protocol';
import { lensTitle } from './text';

export function codeLenses(view: FileView | undefined): CodeLens[] {
  if (view?.document === undefined) return [];
  const procedures = procedureCosts(view);
  const onLine = new Map<number, number>();
  for (const { line } of procedures) onLine.set(line, (onLine.get(line) ?? 0) + 1);
  return procedures.map((cost) => {
    // Instances of a generic procedure begin on one line: their names tell them apart.
    const title = (onLine.get(cost.line) ?? 0) > 1 ? `${cost.label}: ${lensTitle(cost)}` : lensTitle(cost);
    const start = { line: cost.line, character: 0 };
    return { range: { start, end: start }, command: { title, command: showListingCommand, arguments: [cost.id] } };
  });
}
