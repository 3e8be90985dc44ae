/**
 * `textDocument/inlayHint`: what a line costs, or how that changed, at its end, where it moves no text. Clients that draw line ends
 * themselves are sent none.
 */
import { MarkupKind, type InlayHint, type Range } from 'vscode-languageserver';
import type { FileChanges } from './core';
import { lineChanges } from './diff';
import { lineCosts, staleLines } from './fileCosts';
import type { FileView } from './fileView';
import { changeMarkdown, lineMarkdown } from './hover';
import type { LineChange, StaleLine } from './protocol';
import type { ValidSettings } from './settings';
import { staleLabel } from './text';

export function inlayHints(view: FileView | undefined, range: Range, settings: Pick<ValidSettings, 'hints' | 'hotShare'>): InlayHint[] {
  const document = view?.document;
  if (view === undefined || document === undefined || settings.hints === 'off') return [];
  const least = settings.hints === 'all' ? 0 : settings.hotShare;
  const isAsked = ({ line, share }: StaleLine): boolean => share >= least && line >= range.start.line && line <= range.end.line;
  const atEnd = (line: number, label: string, tooltip: string): InlayHint => ({
    position: { line, character: document.lineText(line).length },
    label,
    paddingLeft: true,
    tooltip: { kind: MarkupKind.Markdown, value: tooltip },
  });
  const edited = staleLines(view).filter(isAsked);
  return [
    ...lineCosts(view).filter(isAsked).map((cost) => atEnd(cost.line, cost.label, lineMarkdown(view, cost))),
    ...edited.map(({ line, share }) => atEnd(line, staleLabel(share), 'Edited since it was measured: the number is of the text before.')),
  ];
}

/** Returns hints of what changed on each line, while epochs are compared. Changes within noise are shown only if hints are set to all lines. */
export function changeHints(
  view: FileView | undefined,
  changes: FileChanges,
  range: Range,
  settings: Pick<ValidSettings, 'hints' | 'hotShare'>,
): InlayHint[] {
  const document = view?.document;
  if (view === undefined || document === undefined || settings.hints === 'off') return [];
  const shown = (change: LineChange): boolean => settings.hints === 'all' || (change.significant && Math.abs(change.changeShare) >= settings.hotShare);
  return lineChanges(view, changes)
    .filter((change) => shown(change) && change.line >= range.start.line && change.line <= range.end.line)
    .map((change) => ({
      position: { line: change.line, character: document.lineText(change.line).length },
      label: change.label,
      paddingLeft: true,
      tooltip: { kind: MarkupKind.Markdown, value: changeMarkdown(change) },
    }));
}
