/**
 * `textDocument/hover`: all that is known of the line's cost, with links to its culprits.
 */
import { MarkupKind, type Hover } from 'vscode-languageserver';
import { culpritName, lineCosts } from './fileCosts';
import type { FileView } from './fileView';
import type { LineCost, LineCulprit } from './protocol';
import { causeName, code, count, cpi, cyclesRange, escapeMarkdown, percent, quantity } from './text';

const culpritsShown = 6;
const proceduresShown = 5;

export function hover(view: FileView | undefined, line: number): Hover | null {
  const document = view?.document;
  if (view === undefined || document === undefined) return null;
  const cost = lineCosts(view).find((candidate) => candidate.line === line);
  if (cost === undefined) return null;
  const range = { start: { line, character: 0 }, end: { line, character: document.lineText(line).length } };
  return { contents: { kind: MarkupKind.Markdown, value: lineMarkdown(view, cost) }, range };
}

/** A line's cost table, its culprits and the procedures its instructions lie in. */
export function lineMarkdown(view: FileView, cost: LineCost): string {
  const notes = view.costs.source === 'unchecked' ? ['*Nothing tells whether this file changed since the program was built.*'] : [];
  return [costTable(cost), culpritList(view.uri, cost), procedureList(cost.procedures), ...notes]
    .filter((part) => part !== '')
    .join('\n\n');
}

function costTable(cost: LineCost): string {
  const rows: [string, string][] = [];
  if (cost.cycles !== null) rows.push(['cycles', quantity(cost.cycles)]);
  if (cost.cpi !== null) rows.push(['CPI', `${cpi(cost.cpi)} (${cost.confidence} confidence)`]);
  if (cost.bestCaseCpi !== null) rows.push(['best-case CPI', cpi(cost.bestCaseCpi)]);
  if (cost.executions !== null) rows.push(['executions', quantity(cost.executions)]);
  for (const [event, samples] of Object.entries(cost.samples)) rows.push([`${escapeMarkdown(event)} samples`, count(samples)]);
  const table = rows.map(([name, value]) => `| ${name} | ${value} |`);
  return [`| **${percent(cost.share)}** | of all time |`, '| :-- | --: |', ...table].join('\n');
}

function culpritList(uri: string, cost: LineCost): string {
  if (cost.culprits.length === 0) return '';
  const items = cost.culprits.slice(0, culpritsShown).map((culprit) => `- ${culpritText(uri, cost.line, culprit)}`);
  return ['Cycles lost to', ...items].join('\n');
}

/** `D-cache miss ← [:41](…) · up to 85% of the line, 1.2 G to 3.4 G cycles`. */
function culpritText(uri: string, line: number, culprit: LineCulprit): string {
  const { place } = culpritName(uri, line, culprit);
  const link = place === null ? '' : ` ← [${escapeMarkdown(place)}](${culprit.uri ?? ''}#L${(culprit.line ?? 0) + 1})`;
  const range = cyclesRange(culprit.cyclesMin, culprit.cyclesMax);
  const share = culprit.shareMax > 0 ? `up to ${percent(culprit.shareMax)} of the line` : '';
  const amounts = [share, range].filter((part) => part !== '').join(', ');
  return `${causeName(culprit.cause)}${culprit.kind === 'static' ? ' (static)' : ''}${link}${amounts === '' ? '' : ` · ${amounts}`}`;
}

function procedureList(procedures: readonly string[]): string {
  if (procedures.length === 0) return '';
  const more = procedures.length - proceduresShown;
  const names = procedures.slice(0, proceduresShown).map(code).join(', ');
  return `In ${names}${more > 0 ? ` and ${more} more` : ''}`;
}
