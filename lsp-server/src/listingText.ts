/**
 * A listing as text, after DCPI's Figure 2: blocks with best-case and actual CPI, source lines between instructions,
 * bubbles above the stalled ones; on top the procedure's summary (Figure 4). Where the scale is not absolute, shares of the procedure's
 * time, ratios and bounds stand for executions and CPI. Each line of text knows the address, the source line and the culprits it is about.
 */
import { addressColumn, addressOf, hex } from './address';
import type { Listing, ListingInstruction, ListingStall, Summary } from './core';
import { asOne, bubble, cyclesColumn, isBubble, scaleText, stallAmount, type Stall } from './scale';
import { summaryText } from './summary';
import { count, cpi, duration, entriesText, fileName, percent, quantity, shortCycles, sourcesText } from './text';

export interface TextLine {
  text: string;
  /** Of the instruction on this line; null: there is none. */
  address: number | null;
  file: string | null;
  /** From 1. */
  line: number | null;
  /** Addresses of the instructions that caused what this line shows. */
  culprits: number[];
  /** Address that it branches to or calls. */
  target: number | null;
  /** Registers that it reads, with the addresses of those who wrote them. */
  operands: ListingInstruction['operands'];
  /** A fold begins here. */
  fold?: 'summary' | 'block';
}

type Block = Listing['blocks'][number];

const samplesWidth = 10;
const shareWidth = 8;
const cpiWidth = 9;
const instructionWidth = { min: 24, max: 56 };

export function listingTitle(listing: Listing): string {
  return `${listing.procedure.demangled} · ${fileName(listing.image.path)}`;
}

export function listingText(listing: Listing, summary: Summary | null = null): TextLine[] {
  const table = tableOf(listing);
  const blockAt = new Map(listing.blocks.map((block) => [block.address, block]));
  const blockSums = sums(listing);
  const legend = new Set<string>();
  const lines = [...head(listing), ...summaryLines(summary), plain(''), plain(tableHead(table))];
  let source = '';
  for (const instruction of listing.instructions) {
    const block = blockAt.get(instruction.address);
    if (block) lines.push(plain(''), { ...plain(blockHead(block, blockSums.get(block.address), table)), fold: 'block' });
    const place = instruction.file === null || instruction.line === null ? '' : `${instruction.file}:${instruction.line}`;
    if (place !== '' && place !== source) {
      lines.push(sourceLine(listing, instruction));
      source = place;
    }
    lines.push(...bubbles(instruction, legend, table), ...kernelTime(instruction, table), instructionLine(instruction, table));
  }
  return lines;
}

function plain(text: string): TextLine {
  return { text, address: null, file: null, line: null, culprits: [], target: null, operands: [] };
}

function summaryLines(summary: Summary | null): TextLine[] {
  if (summary === null) return [];
  return [plain(''), { ...plain('Where the cycles go'), fold: 'summary' }, ...summaryText(summary).map((text) => plain(`  ${text}`))];
}

function head(listing: Listing): TextLine[] {
  const { procedure, image, time_event: event, period_cycles: periodCycles } = listing;
  const samples = procedure.samples[event] ?? 0;
  const cycles = periodCycles === null ? '' : `, ${quantity(samples * periodCycles, 'cycles')}`;
  const period = listing.period[event];
  const time = period?.unit === 'ns' ? `, ${duration(samples * period.value * 1e-9)}` : '';
  const every = period === undefined ? '' : `, a sample every ${count(period.value)} ${period.unit}`;
  return [
    `${procedure.demangled}  ${image.path}`,
    `${percent(procedure.share)} of recording ${listing.epoch}: ${count(samples)} ${event} samples${time}${cycles}`,
    `machine model ${listing.machine_model}${every}`,
    scaleText(listing.scale.kind, listing.scale.evidence),
    ...listing.notes.map((note) => `note: ${note}`),
  ].map(plain);
}

interface BlockSums {
  readonly instructions: number;
  readonly samples: number;
}

/** Instructions and samples of each block, by its address. */
function sums(listing: Listing): Map<number, BlockSums> {
  const result = new Map<number, BlockSums>();
  const starts = new Set(listing.blocks.map((block) => block.address));
  let current = NaN;
  for (const { address, head_samples: samples } of listing.instructions) {
    if (starts.has(address)) current = address;
    const sum = result.get(current) ?? { instructions: 0, samples: 0 };
    result.set(current, { instructions: sum.instructions + 1, samples: sum.samples + samples });
  }
  return result;
}

function blockHead(block: Block, { instructions: size, samples }: BlockSums = { instructions: 1, samples: 0 }, { all, absolute }: Table): string {
  const perBlock = (value: number): string => `${cpi(value * size)}/${size} = ${value.toFixed(2)} CPI`;
  const best = `*** best case ${perBlock(block.best_case_cpi)}`;
  if (samples < 0.5) return `${best}, no samples`;
  if (!absolute) {
    const least = block.frequency === null ? 'no estimate' : block.cpi_min < 0.005 ? undefined : `actual at least ${perBlock(block.cpi_min)}`;
    const entries = entriesText(block.per_entry);
    return [best, least, entries, `${percent(samples / all)} of the function`].filter((part) => part !== undefined).join(', ');
  }
  const actual = block.cpi === null ? 'no estimate' : `actual ${perBlock(block.cpi)}${range(block.cpi_min, block.cpi_max, shortCycles)}`;
  const times = block.executions === null ? '' : `, executed ${quantity(block.executions)} times${range(block.executions_min, block.executions_max, quantity) || ` (${block.confidence} confidence)`}`;
  return `${best}, ${actual}${times}`;
}

/** ` (90 M to 102 M)`: the 90 % interval of an estimate; nothing where it is the estimate itself. */
function range(min: number | null, max: number | null, show: (value: number) => string): string {
  if (min === null || max === null || show(min) === show(max)) return '';
  return ` (${show(min)} to ${show(max)})`;
}

function sourceLine(listing: Listing, { file, line }: ListingInstruction): TextLine {
  const path = file ?? '';
  const text = listing.source_lines[path]?.[line ?? 0]?.trim() ?? '';
  return { ...plain(`  ${fileName(path)}:${line ?? 0}  ${text}`.trimEnd()), file, line };
}

/** What may have held the instruction up and for how long: static causes first; a letter is explained once. */
function bubbles(instruction: ListingInstruction, legend: Set<string>, { indent, absolute }: Table): TextLine[] {
  return (['static', 'dynamic'] as const).flatMap((kind) => {
    const stalls = instruction.stalls.filter((stall) => stall.kind === kind);
    const together = asOne(stalls.map((stall) => stallOf(stall, absolute)));
    if (stalls.length === 0 || !isBubble(together)) return [];
    const text = `${stalls.map(({ letter }) => letter).join('')} ${bubble(together, 24)} ${stallAmount(together)}${origin(stalls)}${explain(stalls, legend)}`;
    const culprits = culpritsOf(stalls);
    return [{ ...plain(' '.repeat(indent) + text), file: instruction.file, line: instruction.line, culprits }];
  });
}

/** Without an absolute scale the most that a dynamic stall lasts is no bound, and its share of the time stands for it. */
function stallOf({ kind, cycles_min: cyclesMin, cycles_max: most, share_min: shareMin, share_max: shareMax }: ListingStall, absolute: boolean): Stall {
  return { cyclesMin, cyclesMax: absolute || kind === 'static' ? most : null, shareMin, shareMax };
}

/** Why the instruction entered the kernel, and for how long: samples are counted; without a scale cycles are not known. */
function kernelTime({ kernel, file, line }: ListingInstruction, { indent, all }: Table): TextLine[] {
  if (kernel === null || (kernel.cycles === null ? kernel.samples < 0.5 : kernel.cycles < 0.05)) return [];
  const cycles = kernel.cycles === null ? '' : `${kernel.cycles < 9.95 ? kernel.cycles.toFixed(1) : quantity(kernel.cycles)} cy `;
  const share = kernel.cycles === null ? `, as much as ${percent(kernel.samples / all)} of the function` : '';
  return [{ ...plain(`${' '.repeat(indent)}${kernel.letter} ${cycles}in the kernel, ${count(kernel.samples)} samples${share}   (${kernel.label})`), file, line }];
}

/** Where the data of the longest data miss may have come from. */
function origin(stalls: readonly ListingStall[]): string {
  const [longest] = stalls.filter(({ sources }) => sources.length > 0).sort((a, b) => b.share_max - a.share_max);
  return longest === undefined ? '' : ` ${sourcesText(longest.sources)}`;
}

function explain(stalls: readonly ListingStall[], legend: Set<string>): string {
  const fresh = stalls.filter(({ cause }) => !legend.has(cause) && legend.add(cause));
  if (fresh.length === 0) return '';
  return `   (${fresh.map(({ letter, label }) => `${letter} = ${label}`).join(', ')})`;
}

function culpritsOf(stalls: readonly ListingStall[]): number[] {
  return [...new Set(stalls.flatMap((stall) => stall.culprit_address ?? []))];
}

/** What the columns are of. */
interface Table {
  /** Of the column of addresses. */
  indent: number;
  /** Of the column of instructions. */
  width: number;
  absolute: boolean;
  /** Samples of the whole procedure; at least one. */
  all: number;
}

function tableOf({ instructions, scale }: Listing): Table {
  const all = instructions.reduce((sum, { head_samples: samples }) => sum + samples, 0);
  const indent = addressColumn(instructions.at(-1)?.address ?? 0).length;
  return { indent, width: columnWidth(instructions), absolute: scale.kind === 'absolute', all: Math.max(1, all) };
}

function tableHead(table: Table): string {
  return columns({ address: 'Address', instruction: 'Instruction', samples: 'Samples', share: 'Share', cost: table.absolute ? 'CPI' : 'CPI ≥', culprit: 'Culprit' }, table);
}

function instructionLine(instruction: ListingInstruction, table: Table): TextLine {
  const { address, file, line } = instruction;
  // At the instruction that was waited for, like CPI and bubbles; where they landed is in the answer.
  const samples = Math.round(instruction.head_samples);
  const culprits = culpritsOf(instruction.stalls);
  // Issued or retired together with its predecessor (the paper's "(dual issue)"), or too short to be seen.
  const cost = samples === 0 ? '·' : cyclesColumn(instruction, instruction.executions_relative === null ? null : instruction.cpi_min);
  const culprit = culprits.map(hex).join(' ');
  const share = samples === 0 ? '' : percent(instruction.head_samples / table.all);
  const text = columns({ address: hex(address), instruction: instruction.text, samples: samples === 0 ? '' : count(samples), share, cost, culprit }, table);
  return { text, address, file, line, culprits, target: targetOf(instruction.text), operands: instruction.operands };
}

/** What a direct branch or call goes to: the only operand, an address (`jne 0x1150`, `call 4011a0`, `bne t4, 0x9810`). */
function targetOf(text: string): number | null {
  const [, address] = /^(?:j|call|loop|b|cb|tb|xbegin)[a-z.]*\s+(?:[^[\]]*,\s*)?(?:0x)?([0-9a-f]{2,16})(?:\s|$)/.exec(text) ?? [];
  return address === undefined ? null : addressOf(address);
}

type Columns = Record<'address' | 'instruction' | 'samples' | 'share' | 'cost' | 'culprit', string>;

/** The share of the procedure's time has a column where the scale is not absolute, since there is no CPI then. */
function columns({ address, instruction, samples, share, cost, culprit }: Columns, { indent, width, absolute }: Table): string {
  const fitted = instruction.length > width ? `${instruction.slice(0, width - 1)}…` : instruction;
  const left = `${address.padEnd(indent)}${fitted.padEnd(width)}`;
  const part = absolute ? '' : share.padStart(shareWidth);
  return `${left}${samples.padStart(samplesWidth)}${part}${cost.padStart(cpiWidth)}  ${culprit}`.trimEnd();
}

function columnWidth(instructions: readonly ListingInstruction[]): number {
  const longest = instructions.reduce((width, { text }) => Math.max(width, text.length), 0);
  return Math.min(instructionWidth.max, Math.max(instructionWidth.min, longest + 1));
}
