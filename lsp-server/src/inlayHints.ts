/**
 * `textDocument/inlayHint`: what a line costs, at its end, where it moves no text.
 */
import { MarkupKind, type InlayHint, type Range } from 'vscode-languageserver';
import { lineCosts } from './fileCosts';
import type { FileView } from './fileView';
import { lineMarkdown } from './hover';
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
