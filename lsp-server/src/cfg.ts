/**
 * `dwell/cfg`: a procedure's control-flow graph as an SVG without colours of its own, for clients to theme, and as blocks,
 * for those that show no pictures.
 *
 * Blocks stand below each other in the order of their addresses, as `dwell cfg` draws them: what is fallen into is right
 * below, jumps forward run on the right, loops on the left. An edge is as thick as it is frequent.
 */
import type { CancellationToken } from 'vscode-languageserver';
import { addressColumn, hex } from './address';
import type { Listing, ListingInstruction } from './core';
import { listingTitle } from './listingText';
import type { Profile } from './profile';
import type { CfgBlock, CfgResult } from './protocol';
import { cyclesColumn } from './scale';
import { count, cyclesEach, eitherCause, entriesText, percent, quantity, shortCycles } from './text';

/** The most instructions of a block that are drawn; the rest is given as a number. */
const instructionsMax = 24;
/** The most blocks that are drawn; a larger picture cannot be read. */
const blocksMax = 600;
const lineHeight = 17;
const blockWidth = 620;
const padding = 8;
const gap = 34;
const lane = 12;
const textWidth = 84;

export async function cfg(profile: Profile, procedure: string, token: CancellationToken): Promise<CfgResult> {
  return drawCfg(await profile.listing(procedure, token));
}

export function drawCfg(listing: Listing): CfgResult {
  const blocks = drawnBlocks(listing);
  const edges = drawnEdges(listing, blocks);
  return {
    title: listingTitle(listing),
    svg: svgOf(listing, blocks, edges),
    blocks: blocks.map((block, at) => blockOf(block, edges, at, blocks)),
    omittedBlocks: listing.blocks.length - blocks.length,
  };
}

interface Drawn {
  address: number;
  head: string;
  lines: CfgBlock['lines'];
  /** Of the procedure's time, 0 to 1. */
  share: number;
  top: number;
  height: number;
}

interface Edge {
  from: number;
  to: number;
  /** Null unless the scale is absolute. */
  executions: number | null;
  /** Of the block's executions, 0 to 1; null without an estimate. */
  part: number | null;
  /** As thick as this, 0 to 1. */
  weight: number;
  falls: boolean;
  lane: number;
}

/** A block in words, with where it stands in the picture. */
function blockOf({ address, head, share, lines, top, height }: Drawn, edges: readonly Edge[], at: number, blocks: readonly Drawn[]): CfgBlock {
  const successors = edges.filter(({ from }) => from === at).map(({ to, executions, part, falls }) => ({ to: blocks[to]?.address ?? address, executions, part, falls }));
  return { address, head, share, lines, successors, box: { x: leftOf(edges), y: top, width: blockWidth, height } };
}

/** How many edges run beside each other on one side. */
function lanesOf(edges: readonly Edge[], left: boolean): number {
  return Math.max(0, ...edges.filter((edge) => !edge.falls && isLeft(edge) === left).map((edge) => edge.lane + 1));
}

/** Where blocks begin, right of the edges that run back. */
function leftOf(edges: readonly Edge[]): number {
  return 24 + lane * lanesOf(edges, true);
}

function svgOf(listing: Listing, blocks: readonly Drawn[], edges: readonly Edge[]): string {
  const x = leftOf(edges);
  const width = x + blockWidth + 24 + lane * lanesOf(edges, false);
  const last = blocks.at(-1);
  const height = last === undefined ? 0 : last.top + last.height + gap;
  const body = [...edges.map((edge) => edgeSvg(edge, blocks, x)), ...blocks.map((block) => blockSvg(block, x))];
  const label = `Control-flow graph of ${listing.procedure.demangled}: ${blocks.length} basic blocks`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" class="cfg" role="img" aria-label="${markup(label)}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`,
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 0 8 4 0 8z"/></marker></defs>',
    ...body,
    '</svg>',
  ].join('\n');
}

function drawnBlocks(listing: Listing): Drawn[] {
  const all = listing.instructions.reduce((sum, { head_samples: samples }) => sum + samples, 0);
  let top = 12;
  return listing.blocks.slice(0, blocksMax).map((block, at) => {
    const end = listing.blocks[at + 1]?.address ?? Infinity;
    const own = listing.instructions.filter(({ address }) => address >= block.address && address < end);
    const share = own.reduce((sum, { head_samples: samples }) => sum + samples, 0) / Math.max(1, all);
    const head = [percent(share), ...estimates(block)].join('   ');
    const lines = blockLines(own);
    const height = lineHeight * (1 + lines.length) + 2 * padding;
    const drawn = { address: block.address, head, lines, share, top, height };
    top += height + gap;
    return drawn;
  });
}

/** How often a block runs and what its instructions take, as far as that is known. */
function estimates(block: Listing['blocks'][number]): string[] {
  const executed = block.executions === null ? entriesText(block.per_entry) : `executed ${quantity(block.executions)}`;
  const each = cyclesEach({ cpi: block.cpi, cpiMin: block.cpi_min, bestCaseCpi: block.best_case_cpi }, '');
  const best = shortCycles(block.best_case_cpi);
  const cost = each === undefined ? `ideal CPI ${best}` : `CPI ${each.trim()} (ideal ${best})`;
  return [...(executed === undefined ? [] : [executed]), cost];
}

function blockLines(instructions: readonly ListingInstruction[]): CfgBlock['lines'] {
  const omitted = instructions.length - instructionsMax;
  const shown = instructions.slice(0, instructionsMax).map((instruction) => ({ address: instruction.address, text: instructionLine(instruction) }));
  return omitted > 0 ? [...shown, { address: null, text: `… ${count(omitted)} more instructions` }] : shown;
}

function drawnEdges(listing: Listing, blocks: readonly Drawn[]): Edge[] {
  const indices = new Map(blocks.map(({ address }, at) => [address, at]));
  // Frequencies are known at least up to a factor, which is one for all of the procedure.
  const busiest = Math.max(Number.MIN_VALUE, ...listing.blocks.flatMap((block) => block.successors.map(({ frequency }) => frequency ?? 0)));
  const edges = listing.blocks.slice(0, blocksMax).flatMap((block, from) => {
    const leaving = block.successors.reduce((sum, { frequency }) => sum + (frequency ?? 0), 0);
    return block.successors.flatMap(({ to: address, frequency, executions }): Edge[] => {
      const to = indices.get(address);
      if (to === undefined) return [];
      const part = frequency === null || leaving <= 0 ? null : frequency / leaving;
      const weight = Math.sqrt((frequency ?? 0) / busiest);
      return [{ from, to, executions, part, weight, falls: to === from + 1, lane: 0 }];
    });
  });
  edges.sort((a, b) => Math.abs(a.from - a.to) - Math.abs(b.from - b.to));
  assignLanes(edges);
  return edges;
}

/** Short ones inside, each in the first lane that nothing in its way occupies. */
function assignLanes(edges: readonly Edge[]): void {
  edges.forEach((edge, at) => {
    if (edge.falls) return;
    const [low, high] = span(edge);
    const inTheWay = edges.slice(0, at).filter((other) => {
      const [otherLow, otherHigh] = span(other);
      return !other.falls && isLeft(other) === isLeft(edge) && otherLow <= high && otherHigh >= low;
    });
    const taken = new Set(inTheWay.map((other) => other.lane));
    while (taken.has(edge.lane)) edge.lane++;
  });
}

function span({ from, to }: Edge): [number, number] {
  return [Math.min(from, to), Math.max(from, to)];
}

function isLeft({ from, to }: Edge): boolean {
  return to <= from;
}

function edgeSvg(edge: Edge, blocks: readonly Drawn[], x: number): string {
  const from = blocks[edge.from];
  const to = blocks[edge.to];
  if (from === undefined || to === undefined) return '';
  const told = edgeText(edge);
  const width = (1 + 4 * edge.weight).toFixed(1);
  const bottom = from.top + from.height;
  const title = `${hex(from.address)} → ${hex(to.address)}: ${told}`;
  return `<path class="edge" stroke-width="${width}" marker-end="url(#arrow)" d="${route(edge, bottom, to.top, x)}"><title>${title}</title></path>`;
}

/** `executed 96 M times`; without a scale the part of the block's executions that go this way. */
function edgeText({ executions, part }: Edge): string {
  if (executions !== null) return executions > 0 ? `executed ${quantity(executions)} times` : 'not seen';
  if (part === null) return 'no estimate';
  return part > 0 ? `${percent(part)} of the times` : 'not seen';
}

function route(edge: Edge, bottom: number, top: number, x: number): string {
  if (edge.falls) return `M${x + blockWidth / 2} ${bottom}V${top}`;
  const out = lane * (edge.lane + 1);
  const [side, at] = isLeft(edge) ? [x, x - out] : [x + blockWidth, x + blockWidth + out];
  return `M${side} ${bottom - 8}H${at}V${top + 8}H${side}`;
}

function blockSvg(block: Drawn, x: number): string {
  const heat = block.share <= 0 ? 0 : Math.max(1, Math.min(9, Math.ceil(Math.sqrt(block.share) * 9)));
  const lines = block.lines.map(({ address, text }, at) => {
    const mark = address === null ? '' : `data-address="${address}" `;
    return `<text ${mark}x="${x + padding}" y="${baseline(block, at + 1)}">${markup(text)}</text>`;
  });
  const address = hex(block.address);
  return [
    `<g class="block heat-${heat}" data-address="${block.address}" tabindex="0" role="button" aria-label="${markup(`block ${address}: ${block.head}`)}">`,
    `<rect x="${x}" y="${block.top}" width="${blockWidth}" height="${block.height}"/>`,
    `<text class="head" x="${x + padding}" y="${baseline(block, 0)}">${markup(block.head)}</text>`,
    ...lines,
    '</g>',
  ].join('');
}

function baseline(block: Drawn, line: number): number {
  return block.top + padding + lineHeight * (line + 1) - 4;
}

function instructionLine(instruction: ListingInstruction): string {
  const cost = instruction.head_samples < 0.5 ? '' : cyclesColumn(instruction, instruction.executions_relative === null ? null : instruction.cpi_min);
  const stalls = instruction.stalls.filter(({ kind }) => kind === 'dynamic').sort((a, b) => b.share_max - a.share_max);
  // What may explain nearly as much as the first is as good a cause.
  const causes = stalls.filter(({ share_max: share }) => share >= 0.5 * (stalls[0]?.share_max ?? 0)).map(({ label }) => label);
  const why = causes.length === 0 ? '' : `  ${eitherCause(causes)}`;
  const text = instruction.text.length > 40 ? `${instruction.text.slice(0, 39)}…` : instruction.text;
  return `${addressColumn(instruction.address)}${text.padEnd(41)}${cost.padStart(9)}${why}`.slice(0, textWidth);
}

function markup(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
