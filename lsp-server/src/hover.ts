/**
 * `textDocument/hover`: all that is known of the line's cost: the time that was measured and what it went to, then what is estimated;
 * its instructions with bubbles and culprits as ranges, its inlined copies apart; links to culprits, listings and the legend.
 */
import { MarkupKind, type Hover } from 'vscode-languageserver';
import { addressColumn, hex } from './address';
import { markdown, plainText, type Link, type Markup } from './markup';
import { culpritsOf, lineCosts, placeOf } from './fileCosts';
import { pathOf } from './fileUri';
import type { Callers } from './core';
import { locationOf, type FileView } from './fileView';
import {
  showLegendCommand, showListingCommand, type DiffChange, type LineCost, type LineInstruction, type LinePlace, type LineResult, type LineStall,
  type LineTie,
} from './protocol';
import { asOne, bubble, cyclesColumn, isBubble, scaleText, stallAmount } from './scale';
import {
  count, cpi, cyclesEach, cyclesRange, duration, eitherCause, entriesText, fileName, percent, quantity, shortCycles,
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
  /** Who calls the function of the line's first place; null where no call stacks were recorded. */
  callers: Callers | null;
  /** What the scale of the line's first place rests on, in words. */
  evidence: readonly string[];
  /** Whether the client follows links to listings and to the legend: `command:` links in Markdown, links as data in plain text. */
  commandLinks: boolean;
  /** Whether the client renders Markdown. */
  rendersMarkdown: boolean;
}

/** LSP's hover; of plain text the links are beside it. */
export type HoverWithLinks = Hover & { links?: Link[] };

/** The URIs of the client's commands. */
const commandMarkdown = markdown((target) => {
  if ('legend' in target) return `command:${showLegendCommand}`;
  const { procedure, address } = target;
  return `command:${showListingCommand}?${encodeURIComponent(JSON.stringify(address === null ? [procedure] : [procedure, address]))}`;
});

export function hover(view: FileView | undefined, line: number, parts: HoverParts): HoverWithLinks | null {
  const document = view?.document;
  if (view === undefined || document === undefined) return null;
  const cost = lineCosts(view).find((candidate) => candidate.line === line);
  if (cost === undefined) return null;
  const range = { start: { line, character: 0 }, end: { line, character: document.lineText(line).length } };
  if (parts.rendersMarkdown) return { contents: { kind: MarkupKind.Markdown, value: hoverText(view, cost, parts, commandMarkdown) }, range };
  const { markup, finished } = plainText();
  const { text, links } = finished(hoverText(view, cost, parts, markup));
  return { contents: { kind: MarkupKind.PlainText, value: text }, range, links };
}

function hoverText(view: FileView, cost: LineCost, { detail, change, callers, evidence, commandLinks }: HoverParts, markup: Markup): string {
  const places = detail === null || detail.places.length === 0 ? [procedureList(cost.procedures, markup)] : placeList(view, detail, commandLinks, markup);
  const since = change === null ? '' : changeText(change, markup);
  const known = `Scale: ${markup.plain(scaleText(cost.scale, evidence))}.`;
  const legend = commandLinks ? markup.link('What do these numbers mean?', { legend: true }) : '';
  return joined([timeLine(view.uri, cost, markup), countLine(cost, markup), since, ...places, callerList(view, callers, markup), lossList(view.uri, cost, markup), known, ...noteList(view, markup), legend]);
}

function joined(parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join('\n\n');
}

function noteList(view: FileView, markup: Markup): string[] {
  return view.costs.source === 'unchecked' ? [markup.emphasis('Nothing tells whether this file changed since the program was built.')] : [];
}

/** `slower ×1.8: 1,200 samples before, 2,160 after; …`. */
export function changeMarkdown(change: DiffChange): string {
  return changeText(change, commandMarkdown);
}

function changeText(change: DiffChange, markup: Markup): string {
  const { label, samplesBefore, samplesAfter, changeCycles, cpiBefore, cpiAfter, executionsBefore, executionsAfter, p } = change;
  const rows: [string, string, string][] = [['samples', count(samplesBefore), count(samplesAfter)]];
  const pair = (name: string, before: number | null, after: number | null, show: (value: number) => string): void => {
    if (before !== null || after !== null) rows.push([name, before === null ? '–' : show(before), after === null ? '–' : show(after)]);
  };
  pair('executions', executionsBefore, executionsAfter, quantity);
  pair('CPI', cpiBefore, cpiAfter, cpi);
  const table = markup.table(rows, ['', 'before', 'after'], [1, 2]);
  const cycles = changeCycles === null ? '' : `, ${signedNumber(changeCycles)} cycles`;
  return `${markup.strong(markup.plain(label))}${cycles} (by chance: p = ${p < 0.001 ? '<0.001' : p.toFixed(3)})\n\n${table}`;
}

/** Returns a hint's tooltip: the line's cost table, its culprits and the procedures that its instructions lie in. */
export function lineMarkdown(view: FileView, cost: LineCost): string {
  const markup = commandMarkdown;
  return joined([costTable(cost, markup), lossList(view.uri, cost, markup), procedureList(cost.procedures, markup), ...noteList(view, markup)]);
}

/** `**28.3%** of all time · 3.0 s · waits for memory (D-cache or DTLB miss) ← :41`: what was measured. A hover begins with it, since editors
 *  show a few lines of it at first. */
function timeLine(uri: string, cost: LineCost, markup: Markup): string {
  const [tie] = cost.ties;
  const parts = [`${markup.strong(percent(cost.share))} of all time`];
  if (cost.seconds !== null) parts.push(markup.strong(duration(cost.seconds)));
  if (tie !== undefined) parts.push(`${markup.strong(markup.plain(tie.text))}${culpritLink(uri, cost, tie, markup)}`);
  return parts.join(' · ');
}

/** What is estimated, and what it is estimated from. */
function countLine(cost: LineCost, markup: Markup): string {
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
    ...told.map(([event, n]) => `${count(n)} ${markup.plain(event)} samples`),
  ].join(' · ');
}

function costTable(cost: LineCost, markup: Markup): string {
  const rows: [string, string][] = [];
  const entries = entriesText(cost.perEntry);
  const each = cyclesEach(cost, '');
  if (cost.seconds !== null) rows.push(['CPU time', duration(cost.seconds)]);
  if (each !== undefined) rows.push(['cycles per instruction', each.trim()]);
  if (cost.bestCaseCpi !== null) rows.push(['ideal', shortCycles(cost.bestCaseCpi)]);
  if (cost.executions !== null) rows.push(['executions', quantity(cost.executions)]);
  if (entries !== undefined) rows.push(['executions', entries]);
  for (const [event, samples] of Object.entries(cost.samples)) rows.push([`${markup.plain(event)} samples`, count(samples)]);
  return markup.table(rows, [markup.strong(percent(cost.share)), 'of all time'], [1]);
}

/** What the line's time went to: causes that cannot be told apart are one item. Where items may explain more than the whole together, it is
 *  said that they overlap. */
function lossList(uri: string, cost: LineCost, markup: Markup): string {
  const tied = new Set(cost.ties.flatMap(({ culprits }) => culprits));
  const single = cost.culprits.flatMap((culprit, at): LineTie[] => (tied.has(at) ? [] : [{ ...culprit, text: culprit.label, culprits: [at] }]));
  const losses = [...cost.ties, ...single].slice(0, culpritsShown);
  const whole = losses.reduce((sum, { shareMax }) => sum + shareMax, 0);
  const head = whole > wholeMax ? 'Time lost to one of these or a mixture' : 'Time lost to';
  return losses.length === 0 ? '' : [head, ...losses.map((tie) => `- ${lossText(uri, cost, tie, markup)}`)].join('\n');
}

/** `waits for memory (D-cache or DTLB miss) ← [:41](…) · up to 85.0% of the line's time (1.2 G cycles to 3.4 G cycles)`. */
function lossText(uri: string, cost: LineCost, tie: LineTie, markup: Markup): string {
  const isStatic = culpritsOf(tie, cost.culprits).every(({ kind }) => kind === 'static');
  const cycles = cyclesRange(tie.cyclesMin, tie.cyclesMax).replace(/^up to /, '');
  const amount = `up to ${percent(tie.shareMax)} of the line's time${cycles === '' ? '' : ` (${cycles})`}`;
  return `${markup.plain(tie.text)}${isStatic ? ', static' : ''}${culpritLink(uri, cost, tie, markup)} · ${amount}`;
}

/** ` ← [:41](…), [hash.h:12](…)`: where the instructions to blame are, the likeliest first; nothing of those on the line itself. */
function culpritLink(uri: string, { line, culprits }: LineCost, tie: LineTie, markup: Markup): string {
  const links = culpritsOf(tie, culprits).flatMap((culprit) => {
    const place = placeOf(uri, line, culprit);
    return place === null ? [] : [{ place, uri: culprit.uri ?? '', line: culprit.line ?? 0 }];
  });
  const once = links.filter(({ uri, line }, at) => links.findIndex((other) => other.uri === uri && other.line === line) === at);
  return once.length === 0 ? '' : ` ← ${once.map(({ place, ...target }) => markup.link(markup.plain(place), target)).join(', ')}`;
}

function procedureList(procedures: readonly string[], markup: Markup): string {
  if (procedures.length === 0) return '';
  const more = procedures.length - proceduresShown;
  const names = procedures.slice(0, proceduresShown).map(markup.code).join(', ');
  return `In ${names}${more > 0 ? ` and ${more} more` : ''}`;
}

const callersShown = 4;

/** `` `copy` is called from `parse` 75.1% (:43), `load` 24.9% (main.c:60) ``: by the call stacks of the function's samples. */
function callerList(view: FileView, callers: Callers | null, markup: Markup): string {
  if (callers === null || callers.rows.length === 0) return '';
  const shown = callers.rows.slice(0, callersShown).map(({ function: name, share, inlined, sites: [site] }) => {
    const at = site === undefined ? null : locationOf(site.file, site.line);
    const place = at === null ? '' : ` (${placeLink(view, at.uri, at.line, markup)})`;
    return `${markup.code(name)} ${percent(share)}${inlined ? ', inlined' : ''}${place}`;
  });
  const more = callers.rows.length - shown.length;
  return `${markup.code(callers.function)} is called from ${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

const placesShown = 3;
const textWidth = 40;

/** The procedures that the line was compiled into, each with the line's instructions. */
function placeList(view: FileView, detail: LineResult, commandLinks: boolean, markup: Markup): string[] {
  const shown = detail.places.slice(0, placesShown);
  const more = detail.places.length - shown.length + detail.omittedPlaces;
  return [...shown.map((place) => placeText(view, place, commandLinks, markup)), ...(more > 0 ? [`… and ${more} more places`] : [])];
}

function placeText(view: FileView, place: LinePlace, commandLinks: boolean, markup: Markup): string {
  const by = place.callers.map((caller) => {
    const at = caller.uri === null || caller.line === null ? '' : ` ${placeLink(view, caller.uri, caller.line, markup)}`;
    return `${markup.code(caller.function ?? '?')}${at}`;
  });
  const inlined = by.length === 0 ? '' : `, inlined into ${by.join(', into ')}`;
  const [first] = place.instructions;
  const listing = commandLinks ? ` · ${markup.link('listing', { procedure: place.procedure, address: first?.address ?? null })}` : '';
  const each = cyclesEach({ ...place, bestCaseCpi: null });
  const head = `In ${markup.code(place.label)}${inlined} · ${percent(place.share)}${each === undefined ? '' : ` · ${each}`}${listing}`;
  const omitted = place.omittedInstructions > 0 ? [`… ${place.omittedInstructions} more`] : [];
  const lines = [...place.instructions.flatMap(instructionLines), ...omitted];
  return `${head}\n${markup.block(lines)}${culpritLinks(view, place, markup)}`;
}

/** The bubbles that stand before an instruction, static ones first, then the instruction. */
function instructionLines(instruction: LineInstruction): string[] {
  const { address, text, samples, cpiMin: least, stalls } = instruction;
  const waits = (['static', 'dynamic'] as const).flatMap((kind) => stallLine(stalls.filter((stall) => stall.kind === kind && isBubble(stall)), address));
  const cycles = samples < 0.5 ? '·' : cyclesColumn(instruction, least);
  const fitted = text.length > textWidth ? `${text.slice(0, textWidth - 1)}…` : text;
  const line = `${addressColumn(address)}${fitted.padEnd(textWidth)}${(samples < 0.5 ? '' : count(samples)).padStart(9)}${cycles.padStart(9)}`;
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
    return [at === own ? 'itself' : `${hex(at)} ${culpritText ?? ''}`.trimEnd()];
  }));
  const by = culprits.size === 0 ? '' : `← ${[...culprits].join(', ')}`;
  return [[' '.repeat(addressColumn(own).length - 1), bubble(together, 12), stallAmount(together), causes, from, by].filter((part) => part !== '').join(' ')];
}

/** The lines to blame, each with what it is blamed for, since a code block holds no links. */
function culpritLinks(view: FileView, place: LinePlace, markup: Markup): string {
  const causes = new Map<string, { uri: string; line: number; labels: string[] }>();
  for (const { uri, line, label } of place.instructions.flatMap(({ stalls }) => stalls)) {
    if (uri === null || line === null) continue;
    const key = `${uri}#${line}`;
    causes.set(key, { uri, line, labels: [...(causes.get(key)?.labels ?? []), label] });
  }
  const links = [...causes.values()].slice(0, culpritsShown).map(({ uri, line, labels }) => `${placeLink(view, uri, line, markup)} (${eitherCause(labels)})`);
  return links.length === 0 ? '' : `\n\nCulprits: ${links.join(', ')}`;
}

function placeLink(view: FileView, uri: string, line: number, markup: Markup): string {
  return markup.link(markup.plain(`${uri === view.uri ? '' : fileName(pathOf(uri) ?? uri)}:${line + 1}`), { uri, line });
}
