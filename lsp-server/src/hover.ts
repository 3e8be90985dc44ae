/**
 * `textDocument/hover`: all that is known of the line's cost: its instructions with bubbles and culprits as ranges, its inlined
 * copies apart, links to culprits and listings.
 */
import { MarkupKind, type Hover } from 'vscode-languageserver';
import { culpritName, lineCosts } from './fileCosts';
import { pathOf } from './fileUri';
import type { FileView } from './fileView';
import { showListingCommand, type DiffChange, type LineCost, type LineCulprit, type LineInstruction, type LinePlace, type LineResult, type LineStall } from './protocol';
import { causeName, code, count, cpi, cyclesRange, escapeMarkdown, fileName, percent, quantity, signedNumber, sourcesText } from './text';

const culpritsShown = 6;
const proceduresShown = 5;

/** What a hover is made of beside the costs. */
export interface HoverParts {
  detail: LineResult | null;
  change: DiffChange | null;
  /** Whether the client runs `command:` links. */
  commandLinks: boolean;
}

export function hover(view: FileView | undefined, line: number, { detail, change, commandLinks }: HoverParts): Hover | null {
  const document = view?.document;
  if (view === undefined || document === undefined) return null;
  const cost = lineCosts(view).find((candidate) => candidate.line === line);
  if (cost === undefined) return null;
  const range = { start: { line, character: 0 }, end: { line, character: document.lineText(line).length } };
  const places = detail === null || detail.places.length === 0 ? [procedureList(cost.procedures)] : placeList(view, detail, commandLinks);
  const since = change === null ? '' : changeMarkdown(change);
  const parts = [costLine(cost), since, ...places, culpritList(view.uri, cost), ...noteList(view)];
  return { contents: { kind: MarkupKind.Markdown, value: joined(parts) }, range };
}

function joined(parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join('\n\n');
}

function noteList(view: FileView): string[] {
  return view.costs.source === 'unchecked' ? ['*Nothing tells whether this file changed since the program was built.*'] : [];
}

/** `slower ×1.8: 1,200 samples before, 2,160 after; …`. */
export function changeMarkdown(change: DiffChange): string {
  const { label, samplesBefore, samplesAfter, changeCycles, cpiBefore, cpiAfter, executionsBefore, executionsAfter, p } = change;
  const rows: [string, string, string][] = [['samples', count(samplesBefore), count(samplesAfter)]];
  const pair = (name: string, before: number | null, after: number | null, show: (value: number) => string): void => {
    if (before !== null || after !== null) rows.push([name, before === null ? '–' : show(before), after === null ? '–' : show(after)]);
  };
  pair('executions', executionsBefore, executionsAfter, quantity);
  pair('CPI', cpiBefore, cpiAfter, cpi);
  const table = ['| | before | after |', '| :-- | --: | --: |', ...rows.map((row) => `| ${row.join(' | ')} |`)];
  const cycles = changeCycles === null ? '' : `, ${signedNumber(changeCycles)} cycles`;
  return `**${escapeMarkdown(label)}**${cycles} (by chance: p = ${p < 0.001 ? '<0.001' : p.toFixed(3)})\n\n${table.join('\n')}`;
}

/** A line's cost table, its culprits and the procedures its instructions lie in: what a hint's tooltip tells. */
export function lineMarkdown(view: FileView, cost: LineCost): string {
  return joined([costTable(cost), culpritList(view.uri, cost), procedureList(cost.procedures), ...noteList(view)]);
}

/** The same in a line: what a hover begins with, since editors show a few lines of it at first. */
function costLine({ share, cycles, cpi: actual, bestCaseCpi: best, confidence, executions, samples }: LineCost): string {
  const parts = [`**${percent(share)}** of all time`];
  if (cycles !== null) parts.push(quantity(cycles, 'cycles'));
  if (actual !== null) parts.push(`CPI ${cpi(actual)} (${best === null ? '' : `best ${cpi(best)}, `}${confidence} confidence)`);
  if (executions !== null) parts.push(`executed ${quantity(executions)} times`);
  const told = Object.entries(samples).filter(([event]) => !event.startsWith('branch-'));
  return [...parts, ...told.map(([event, n]) => `${count(n)} ${escapeMarkdown(event)} samples`)].join(' · ');
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

const placesShown = 3;
const textWidth = 40;

/** The procedures that the line was compiled into, each with the line's instructions. */
function placeList(view: FileView, detail: LineResult, commandLinks: boolean): string[] {
  const shown = detail.places.slice(0, placesShown);
  const more = detail.places.length - shown.length + detail.omittedPlaces;
  return [...shown.map((place) => placeMarkdown(view, place, commandLinks)), ...(more > 0 ? [`… and ${more} more places`] : [])];
}

function placeMarkdown(view: FileView, place: LinePlace, commandLinks: boolean): string {
  const by = place.callers.map((caller) => {
    const at = caller.uri === null || caller.line === null ? '' : ` [${escapeMarkdown(placeName(view, caller.uri, caller.line))}](${caller.uri}#L${caller.line + 1})`;
    return `${code(caller.function ?? '?')}${at}`;
  });
  const inlined = by.length === 0 ? '' : `, inlined into ${by.join(', into ')}`;
  const [first] = place.instructions;
  const listing = commandLinks ? ` · [listing](${listingLink(place.procedure, first?.address)})` : '';
  const head = `In ${code(place.label)}${inlined} · ${percent(place.share)}${place.cpi === null ? '' : ` · CPI ${cpi(place.cpi)}`}${listing}`;
  const omitted = place.omittedInstructions > 0 ? [`… ${place.omittedInstructions} more`] : [];
  const lines = [...place.instructions.flatMap(instructionLines), ...omitted];
  return `${head}\n\`\`\`dwell-listing\n${lines.join('\n')}\n\`\`\`${culpritLinks(view, place)}`;
}

/** The bubbles that stand before an instruction, then the instruction. */
function instructionLines(instruction: LineInstruction): string[] {
  const { address, text, samples, cpi: cost, stalls } = instruction;
  const bubbles = stalls.filter(({ cyclesMax }) => cyclesMax >= 0.05).map((stall) => {
    const bar = '•'.repeat(1 + Math.min(12, Math.floor(2 * Math.max(0, Math.log2(stall.cyclesMax)))));
    const by = stall.culpritAddress === null ? '' : ` ← ${stall.culpritAddress.toString(16)} ${stall.culpritText ?? ''}`.trimEnd();
    return `          ${bar} ${range(stall)} ${causeName(stall.cause)}${stall.sources.length === 0 ? '' : ` ${sourcesText(stall.sources)}`}${by}`;
  });
  const cycles = samples < 0.5 ? '·' : cost === null ? '' : `${cpi(cost)}cy`;
  const fitted = text.length > textWidth ? `${text.slice(0, textWidth - 1)}…` : text;
  const line = `${address.toString(16).padEnd(10)}${fitted.padEnd(textWidth)}${(samples < 0.5 ? '' : count(samples)).padStart(9)}${cycles.padStart(9)}`;
  return [...bubbles, line.trimEnd()];
}

function range({ cyclesMin, cyclesMax }: LineStall): string {
  return cyclesMin < 0.05 || cyclesMin >= cyclesMax ? `${cyclesMax.toFixed(1)}cy` : `${cyclesMin.toFixed(1)}–${cyclesMax.toFixed(1)}cy`;
}

/** The lines to blame, since a code block holds no links. */
function culpritLinks(view: FileView, place: LinePlace): string {
  const links = new Map<string, string>();
  for (const { uri, line, cause } of place.instructions.flatMap(({ stalls }) => stalls)) {
    if (uri === null || line === null) continue;
    links.set(`${uri}#L${line + 1}`, `[${escapeMarkdown(placeName(view, uri, line))}](${uri}#L${line + 1}) (${causeName(cause)})`);
  }
  return links.size === 0 ? '' : `\n\nCulprits: ${[...links.values()].slice(0, culpritsShown).join(', ')}`;
}

function placeName(view: FileView, uri: string, line: number): string {
  return `${uri === view.uri ? '' : fileName(pathOf(uri) ?? uri)}:${line + 1}`;
}

function listingLink(procedure: string, address: number | undefined): string {
  return `command:${showListingCommand}?${encodeURIComponent(JSON.stringify(address === undefined ? [procedure] : [procedure, address]))}`;
}
