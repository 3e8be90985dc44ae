/**
 * `textDocument/inlayHint`: what a line costs, or how that changed, at its end, where it moves no text.
 */
import { MarkupKind, type InlayHint, type Range } from 'vscode-languageserver';
import type { FileChanges } from './core';
import { lineChanges } from './diff';
import { lineCosts } from './fileCosts';
import type { FileView } from './fileView';
import { changeMarkdown, lineMarkdown } from './hover';
import type { LineChange } from './protocol';
import type { ValidSettings } from './settings';

export function inlayHints(view: FileView | undefined, range: Range, settings: Pick<ValidSettings, 'hints' | 'hotShare'>): InlayHint[] {
  const document = view?.document;
  if (view === undefined || document === undefined || settings.hints === 'off') return [];
  const least = settings.hints === 'all' ? 0 : settings.hotShare;
  return lineCosts(view)
    .filter((cost) => cost.share >= least && cost.line >= range.start.line && cost.line <= range.end.line)
    .map((cost) => ({
      position: { line: cost.line, character: document.lineText(cost.line).length },
      label: cost.label,
      paddingLeft: true,
      tooltip: { kind: MarkupKind.Markdown, value: lineMarkdown(view, cost) },
    }));
}

/** While epochs are compared: what changed on a line, at its end. Noise is told only where all lines are asked for. */
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
