/**
 * `textDocument/hover`: all that is known of the line's cost: the time that was measured and what it went to, then what is estimated;
 * its instructions with bubbles and culprits as ranges, its inlined copies apart; links to culprits, listings and the legend.
 */
import { MarkupKind, type Hover } from 'vscode-languageserver';
import { culpritsOf, lineCosts, placeOf } from './fileCosts';
import { pathOf } from './fileUri';
import type { FileView } from './fileView';
import {
  showLegendCommand, showListingCommand, type DiffChange, type LineCost, type LineInstruction, type LinePlace, type LineResult, type LineStall,
  type LineTie,
} from './protocol';
import { asOne, bubble, cyclesColumn, isBubble, scaleText, stallAmount } from './scale';
import {
  code, count, cpi, cyclesEach, cyclesRange, duration, eitherCause, entriesText, escapeMarkdown, fileName, percent, quantity, shortCycles,
  signedNumber, sourcesText,
} from './text';

const culpritsShown = 6;
const proceduresShown = 5;
/** Shares are rounded. */
const wholeMax = 1.01;

/** What a hover is made of beside the costs. */
export interface HoverParts {
  detail: LineResult | null;
  change: DiffChange | null;
  /** What the scale of the line's first place rests on, in words. */
  evidence: readonly string[];
  /** Whether the client runs `command:` links. */
  commandLinks: boolean;
}

export function hover(view: FileView | undefined, line: number, { detail, change, evidence, commandLinks }: HoverParts): Hover | null {
  const document = view?.document;
  if (view === undefined || document === undefined) return null;
  const cost = lineCosts(view).find((candidate) => candidate.line === line);
  if (cost === undefined) return null;
  const range = { start: { line, character: 0 }, end: { line, character: document.lineText(line).length } };
  const places = detail === null || detail.places.length === 0 ? [procedureList(cost.procedures)] : placeList(view, detail, commandLinks);
  const since = change === null ? '' : changeMarkdown(change);
  const known = `Scale: ${escapeMarkdown(scaleText(cost.scale, evidence))}.`;
  const parts = [timeLine(view.uri, cost), countLine(cost), since, ...places, lossList(view.uri, cost), known, ...noteList(view), legendLink(commandLinks)];
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
  return joined([costTable(cost), lossList(view.uri, cost), procedureList(cost.procedures), ...noteList(view)]);
}

/** `**28.3%** of all time · 3.0 s · waits for memory (D-cache or DTLB miss) ← :41`: what was measured. A hover begins with it, since editors
 *  show a few lines of it at first. */
function timeLine(uri: string, cost: LineCost): string {
  const [tie] = cost.ties;
  const parts = [`**${percent(cost.share)}** of all time`];
  if (cost.seconds !== null) parts.push(`**${duration(cost.seconds)}**`);
  if (tie !== undefined) parts.push(`**${escapeMarkdown(tie.text)}**${culpritLink(uri, cost, tie)}`);
  return parts.join(' · ');
}

/** What is estimated, and what it is estimated from. */
function countLine(cost: LineCost): string {
  const { cpi: actual, cpiMin: min, cpiMax: max, bestCaseCpi: best, executions, perEntry, samples } = cost;
  const each = cyclesEach(cost, 'cycles per instruction');
  const range = actual !== null && min !== null && max !== null ? `90 % interval ${shortCycles(min)} to ${shortCycles(max)}` : '';
  const notes = [range, best === null ? '' : `ideal ${shortCycles(best)}`].filter((part) => part !== '').join(', ');
  const entries = entriesText(perEntry, ' times');
  const told = Object.entries(samples).filter(([event]) => !event.startsWith('branch-'));
  return [
    ...(each === undefined ? [] : [`${each}${notes === '' ? '' : ` (${notes})`}`]),
    ...(executions === null ? [] : [`executed ${quantity(executions)} times`]),
    ...(entries === undefined ? [] : [`executed ${entries}`]),
    ...told.map(([event, n]) => `${count(n)} ${escapeMarkdown(event)} samples`),
  ].join(' · ');
}

function costTable(cost: LineCost): string {
  const rows: [string, string][] = [];
  const entries = entriesText(cost.perEntry);
  const each = cyclesEach(cost, '');
  if (cost.seconds !== null) rows.push(['CPU time', duration(cost.seconds)]);
  if (each !== undefined) rows.push(['cycles per instruction', each.trim()]);
  if (cost.bestCaseCpi !== null) rows.push(['ideal', shortCycles(cost.bestCaseCpi)]);
  if (cost.executions !== null) rows.push(['executions', quantity(cost.executions)]);
  if (entries !== undefined) rows.push(['executions', entries]);
  for (const [event, samples] of Object.entries(cost.samples)) rows.push([`${escapeMarkdown(event)} samples`, count(samples)]);
  const table = rows.map(([name, value]) => `| ${name} | ${value} |`);
  return [`| **${percent(cost.share)}** | of all time |`, '| :-- | --: |', ...table].join('\n');
}

/** What the line's time went to: causes that cannot be told apart are one item. Where items may explain more than the whole together, it is
 *  said that they overlap. */
function lossList(uri: string, cost: LineCost): string {
  const tied = new Set(cost.ties.flatMap(({ culprits }) => culprits));
  const single = cost.culprits.flatMap((culprit, at): LineTie[] => (tied.has(at) ? [] : [{ ...culprit, text: culprit.label, culprits: [at] }]));
  const losses = [...cost.ties, ...single].slice(0, culpritsShown);
  const whole = losses.reduce((sum, { shareMax }) => sum + shareMax, 0);
  const head = whole > wholeMax ? 'Time lost to one of these or a mixture' : 'Time lost to';
  return losses.length === 0 ? '' : [head, ...losses.map((tie) => `- ${lossText(uri, cost, tie)}`)].join('\n');
}

/** `waits for memory (D-cache or DTLB miss) ← [:41](…) · up to 85.0% of the line's time (1.2 G cycles to 3.4 G cycles)`. */
function lossText(uri: string, cost: LineCost, tie: LineTie): string {
  const isStatic = culpritsOf(tie, cost.culprits).every(({ kind }) => kind === 'static');
  const cycles = cyclesRange(tie.cyclesMin, tie.cyclesMax).replace(/^up to /, '');
  const amount = `up to ${percent(tie.shareMax)} of the line's time${cycles === '' ? '' : ` (${cycles})`}`;
  return `${escapeMarkdown(tie.text)}${isStatic ? ', static' : ''}${culpritLink(uri, cost, tie)} · ${amount}`;
}

/** ` ← [:41](…), [hash.h:12](…)`: where the instructions to blame are, the likeliest first; nothing of those on the line itself. */
function culpritLink(uri: string, { line, culprits }: LineCost, tie: LineTie): string {
  const links = culpritsOf(tie, culprits).flatMap((culprit) => {
    const place = placeOf(uri, line, culprit);
    return place === null ? [] : [`[${escapeMarkdown(place)}](${culprit.uri ?? ''}#L${(culprit.line ?? 0) + 1})`];
  });
  return links.length === 0 ? '' : ` ← ${[...new Set(links)].join(', ')}`;
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
  const each = cyclesEach({ ...place, bestCaseCpi: null });
  const head = `In ${code(place.label)}${inlined} · ${percent(place.share)}${each === undefined ? '' : ` · ${each}`}${listing}`;
  const omitted = place.omittedInstructions > 0 ? [`… ${place.omittedInstructions} more`] : [];
  const lines = [...place.instructions.flatMap(instructionLines), ...omitted];
  return `${head}\n\`\`\`dwell-listing\n${lines.join('\n')}\n\`\`\`${culpritLinks(view, place)}`;
}

/** The bubbles that stand before an instruction, static ones first, then the instruction. */
function instructionLines(instruction: LineInstruction): string[] {
  const { address, text, samples, cpi: actual, cpiMin: least, stalls } = instruction;
  const waits = (['static', 'dynamic'] as const).flatMap((kind) => stallLine(stalls.filter((stall) => stall.kind === kind && isBubble(stall)), address));
  const cycles = samples < 0.5 ? '·' : cyclesColumn(actual, least);
  const fitted = text.length > textWidth ? `${text.slice(0, textWidth - 1)}…` : text;
  const line = `${address.toString(16).padEnd(10)}${fitted.padEnd(textWidth)}${(samples < 0.5 ? '' : count(samples)).padStart(9)}${cycles.padStart(9)}`;
  return [...waits, line.trimEnd()];
}

/** Causes of one stall, of the instruction at `own`, in a line: they are alternatives, and lines of their own would seem to add up. */
function stallLine(stalls: readonly LineStall[], own: number): string[] {
  if (stalls.length === 0) return [];
  const together = asOne(stalls);
  const causes = eitherCause(stalls.map(({ label }) => label));
  const [from = ''] = stalls.map(({ sources }) => sourcesText(sources)).filter((words) => words !== '');
  const culprits = new Set(stalls.flatMap(({ culpritAddress: at, culpritText }) => {
    if (at === null) return [];
    return [at === own ? 'itself' : `${at.toString(16)} ${culpritText ?? ''}`.trimEnd()];
  }));
  const by = culprits.size === 0 ? '' : `← ${[...culprits].join(', ')}`;
  return [['         ', bubble(together, 12), stallAmount(together), causes, from, by].filter((part) => part !== '').join(' ')];
}

/** The lines to blame, each with what it is blamed for, since a code block holds no links. */
function culpritLinks(view: FileView, place: LinePlace): string {
  const causes = new Map<string, string[]>();
  for (const { uri, line, label } of place.instructions.flatMap(({ stalls }) => stalls)) {
    if (uri === null || line === null) continue;
    const link = `[${escapeMarkdown(placeName(view, uri, line))}](${uri}#L${line + 1})`;
    causes.set(link, [...(causes.get(link) ?? []), label]);
  }
  const links = [...causes].slice(0, culpritsShown).map(([link, of]) => `${link} (${eitherCause(of)})`);
  return links.length === 0 ? '' : `\n\nCulprits: ${links.join(', ')}`;
}

function placeName(view: FileView, uri: string, line: number): string {
  return `${uri === view.uri ? '' : fileName(pathOf(uri) ?? uri)}:${line + 1}`;
}

function listingLink(procedure: string, address: number | undefined): string {
  return `command:${showListingCommand}?${encodeURIComponent(JSON.stringify(address === undefined ? [procedure] : [procedure, address]))}`;
}

/** Leads to what the numbers mean, for clients that can go there. */
function legendLink(commandLinks: boolean): string {
  return commandLinks ? `[What do these numbers mean?](command:${showLegendCommand})` : '';
}
