/**
 * The tools' answers as text, which is what most assistants read. Every number has its unit, causes that overlap are ranges, uncertain
 * values are marked, and losses are reported.
 */
import { hex } from '../address';
import type { Listing, SqlAnswer } from '../core';
import { listingText } from '../listingText';
import { underText } from '../summary';
import { count, cpi, cyclesEach, cyclesRange, duration, entriesText, fileName, percent, quantity, shortCycles } from '../text';
import { signedPercent, verdictWords } from '../verdict';
import type { CallersAnswer, DiffAnswer, EpochsAnswer, HotAnswer, InclusiveAnswer, LinesAnswer, PathsAnswer, SummaryAnswer } from './answers';

export function epochsText({ epochs, warnings }: EpochsAnswer): string {
  if (epochs.length === 0) return ['No recordings: `dwell record COMMAND` makes one.', ...warnings].join('\n');
  const rows = epochs.map(({ id, name, start, end, host, scope, samples, losses, notes }) => {
    const events = Object.entries(samples).map(([event, number]) => `${count(number)} ${event}`);
    const head = `${id}${name === null ? '' : ` (${name})`}: ${start} to ${end ?? 'now (still running)'}, ${host}, ${scope}, samples: ${events.join(', ')}`;
    return [head, ...lossLines(losses), ...notes].join('\n  ');
  });
  return [...rows, ...warnings].join('\n');
}

function lossLines({ lost, throttled, unknown }: HotAnswer['losses']): string[] {
  const parts: [number, string][] = [[lost, 'samples were dropped'], [throttled, 'times the kernel throttled sampling'], [unknown, 'samples are of code in no known file']];
  return parts.filter(([number]) => number > 0).map(([number, words]) => `${count(number)} ${words}`);
}

export function hotText({ epochs, total, losses, rows, omittedRows, notes }: HotAnswer): string {
  const table = rows.map((row) => {
    const { id, label, image, file, line, share, cumulativeShare, cycles } = row;
    const each = cyclesEach({ ...row, bestCaseCpi: null });
    const place = file === null ? (image ?? '') : `${file}${line === null ? '' : `:${line}`}`;
    const cost = [cycles === null ? '' : quantity(cycles, 'cycles'), each ?? ''].filter((part) => part !== '');
    return `${percent(share).padStart(6)} (${percent(cumulativeShare)} so far)  ${label}  [${[id, ...cost, place].filter((part) => part !== '' && part !== label).join('; ')}]`;
  });
  const events = Object.entries(total).map(([event, number]) => `${count(number)} ${event}`).join(', ');
  return [
    `Recording ${epochs.join(' + ') || 'none'}: ${events === '' ? 'no' : events} samples`,
    ...table,
    ...(omittedRows > 0 ? [`${omittedRows} more rows`] : []),
    ...lossLines(losses),
    ...notes,
  ].join('\n');
}

export function callersText({ epochs, function: name, image, samples, own, total, rows, incomplete, notes }: CallersAnswer): string {
  const tree = rows.map(({ level, function: caller, image: of, inlined, share, file, line }) => {
    const place = file === null ? '' : ` at ${file}${line === null ? '' : `:${line}`}`;
    return `${percent(share).padStart(6)} ${'  '.repeat(level)}${caller}${inlined ? ' (inlined)' : ''} [${of}]${place}`;
  });
  return [
    `Recording ${epochs.join(' + ')}: ${name} [${image}] is in ${count(samples)} of ${count(total)} samples with a call stack, ${count(own)} of them in itself`,
    ...tree,
    ...incompleteLines(incomplete),
    ...notes,
  ].join('\n');
}

export function inclusiveText({ epochs, samples, allSamples, rows, others, incomplete, notes }: InclusiveAnswer): string {
  const table = rows.map(({ function: name, image, share, own }) => `${percent(share).padStart(6)}, in itself ${percent(own / Math.max(samples, 1))}  ${name} [${image}]`);
  return [
    `Recording ${epochs.join(' + ')}: ${count(samples)} of ${count(allSamples)} samples have a call stack`,
    ...table,
    ...(others > 0 ? [`${others} more rows`] : []),
    ...incompleteLines(incomplete),
    ...notes,
  ].join('\n');
}

/** A path is a block: its share, then a line for each function. */
export function pathsText({ epochs, samples, paths, others, othersSamples, incomplete, notes }: PathsAnswer): string {
  const blocks = paths.flatMap(({ share, samples: own, shortened, frames }) => {
    const lines = frames.map(({ function: name, image, inlined, recursive, file, line }) => {
      const place = file === null ? '' : ` at ${file}${line === null ? '' : `:${line}`}`;
      const how = [...(inlined ? ['inlined'] : []), ...(recursive ? ['calls itself'] : [])];
      return `    ${name}${how.length === 0 ? '' : ` (${how.join(', ')})`} [${image}]${place}`;
    });
    return [`${percent(share)} (${count(own)} samples)`, ...(shortened ? ['    … outer functions left out'] : []), ...lines];
  });
  return [
    `Recording ${epochs.join(' + ')}: the hottest paths of ${count(samples)} samples with a call stack, outermost function first`,
    ...blocks,
    ...(others > 0 ? [`${count(others)} more paths have ${count(othersSamples)} samples`] : []),
    ...incompleteLines(incomplete),
    ...notes,
  ].join('\n');
}

function incompleteLines(incomplete: CallersAnswer['incomplete']): string[] {
  return incomplete.map(({ cause, image, samples }) => `${count(samples)} stacks are incomplete: they end in ${image} (${cause})`);
}

/** The page of the listing that begins at instruction `offset`, with the blocks, sources and bubbles around it. */
export function listingPage(answer: Listing, { offset, limit }: { offset: number; limit: number }): string {
  const lines = listingText(answer);
  const at = lines.flatMap(({ address }, line) => (address === null ? [] : [line]));
  if (offset > 0 && offset >= at.length) return `The listing has ${at.length} instructions: none from ${offset} on.`;
  const first = offset === 0 ? 0 : (at[offset - 1] ?? 0) + 1;
  const last = (at[Math.min(offset + limit, at.length) - 1] ?? lines.length - 1) + 1;
  const rest = at.length - Math.min(offset + limit, at.length);
  const page = lines.slice(first, last).map(({ text }) => text);
  return [...page, ...(rest > 0 ? [`… ${rest} more instructions: offset ${offset + limit}`] : [])].join('\n');
}

const sources: Readonly<Record<LinesAnswer['source'], string>> = {
  fresh: 'the file is as it was built',
  mapped: 'the file was edited since it was built: unchanged lines were found again, edited ones are left out',
  stale: 'the file differs too much from what was built: no line can be told',
  unchecked: 'whether the file is as it was built is not known: lines may be off',
};

type Line = LinesAnswer['lines'][number];

/** Causes that cannot be told apart, with the places to blame, the likeliest first. */
function tieText(path: string, { culprits }: Line, { text, culprits: indices, shareMax, cyclesMin, cyclesMax }: Line['ties'][number]): string {
  const tied = indices.flatMap((index) => culprits[index] ?? []);
  const places = tied.flatMap(({ file, line, label }) => {
    if (file === null || line === null) return [];
    const which = tied.length > 1 ? `${label} ` : '';
    return [`${which}of ${file === path ? 'line ' : `${file}:`}${line}`];
  });
  const range = cyclesRange(cyclesMin, cyclesMax);
  const isStatic = tied.length > 0 && tied.every(({ kind }) => kind === 'static');
  return `${text}${places.length === 0 ? '' : ` (${[...new Set(places)].join(', ')})`}: up to ${percent(shareMax)} of it${range === '' ? '' : `, ${range}`}${isStatic ? ' (static)' : ''}`;
}

export function linesText(path: string, { epochs, source, lines, procedures, omittedLines, notes }: LinesAnswer): string {
  const rows = lines.flatMap((cost) => {
    const { line, text, share, seconds, cycles, bestCaseCpi: best } = cost;
    const each = cyclesEach(cost);
    const entries = entriesText(cost.perEntry);
    const told = [
      percent(share),
      ...(seconds === null ? [] : [duration(seconds)]),
      ...(cycles === null ? [] : [quantity(cycles, 'cycles')]),
      ...(each === undefined ? [] : [`${each}${best === null ? '' : ` (ideal ${shortCycles(best)})`}`]),
      ...(entries === undefined ? [] : [entries]),
    ];
    return [`${String(line).padStart(6)}  ${text ?? ''}`.trimEnd(), `        ${told.join(' · ')}`, ...cost.ties.map((tie) => `        ${tieText(path, cost, tie)}`)];
  });
  const whole = procedures.map(({ id, label, line, share }) => `${percent(share)}  ${label} (line ${line}) [${id}]`);
  return [
    `${path}, recording ${epochs.join(' + ') || 'none'}: ${sources[source]}`,
    ...(lines.length === 0 ? ['No samples on its lines.'] : rows),
    ...(omittedLines > 0 ? [`${omittedLines} lines with less`] : []),
    ...(whole.length > 0 ? ['Functions that begin here:', ...whole] : []),
    ...notes,
  ].join('\n');
}

export function summaryText({ epochs, scope, machineModel, samples, talliedShare, proceduresLeftOut, under, notes, text }: SummaryAnswer & { text: string }): string {
  const rests = underText({ under, scope });
  const head = `${scope.name}, recording ${epochs.join(' + ')}: ${count(samples)} samples, ${percent(talliedShare)} of them tallied; machine model ${machineModel}`;
  const left = proceduresLeftOut > 0 ? [`${proceduresLeftOut} functions with samples are left out`] : [];
  return [head, ...(rests === undefined ? [] : [rests]), 'Each cause: at least to at most, of the tallied cycles. Ranges of causes overlap.', text.trimEnd(), ...left, ...notes].join('\n');
}

type Change = DiffAnswer['total'];

export function diffText({ before, after, normalizedBy, total, procedures, lines, instructions, ...rest }: DiffAnswer): string {
  const hidden = [
    ...(rest.insignificantProcedures > 0 ? [`${rest.insignificantProcedures} functions changed within chance`] : []),
    ...(rest.insignificantLines > 0 ? [`${rest.insignificantLines} lines changed within chance`] : []),
    ...(rest.omittedRows > 0 ? [`${rest.omittedRows} more rows`] : []),
  ];
  return [
    `${before.epochs.join(' + ')} (${count(before.samples)} samples) → ${after.epochs.join(' + ')} (${count(after.samples)} samples), normalized by ${normalizedBy}`,
    `In all: ${changeText(total)}`,
    'Procedures:',
    ...procedures.map((row) => `  ${row.label} [${row.id}]: ${changeText(row)}`),
    'Lines:',
    ...lines.map((row) => `  ${row.file}:${placeText(row.lineBefore, row.lineAfter)}: ${changeText(row)}`),
    ...(instructions.length > 0 ? ['Instructions (before | after):', ...instructions.map(instructionText)] : []),
    ...hidden,
    ...rest.notes,
  ].join('\n');
}

function changeText(change: Change): string {
  const { verdict, changeShare, changeCycles, countRatio, cpiBefore, cpiAfter, samplesBefore, samplesAfter, p, significant } = change;
  const parts = [
    verdictWords(verdict),
    `${signedPercent(changeShare)} of all time before`,
    ...(changeCycles === null ? [] : [`${changeCycles < 0 ? '−' : '+'}${quantity(Math.abs(changeCycles), 'cycles')}`]),
    ...(countRatio === null ? [] : [`executions ×${countRatio.toFixed(2)}`]),
    ...(cpiBefore === null || cpiAfter === null ? [] : [`CPI ${cpi(cpiBefore)} → ${cpi(cpiAfter)}`]),
    `samples ${count(samplesBefore)} → ${count(samplesAfter)}`,
    significant ? `p ${p.toPrecision(2)}` : `may be chance, p ${p.toPrecision(2)}`,
  ];
  return parts.join(' · ');
}

function placeText(before: number | null, after: number | null): string {
  if (before === after) return String(before ?? '?');
  if (after === null) return `${before ?? '?'} (there no more, or edited)`;
  return before === null ? `${after} (new, or edited)` : `${after} (was ${before})`;
}

function instructionText({ kind, before, after, ...change }: DiffAnswer['instructions'][number]): string {
  const side = (at: typeof before): string => (at === null ? '-' : `${hex(at.address)} ${at.text}${at.file === null ? '' : ` (${fileName(at.file)}:${at.line ?? '?'})`}`);
  const what = change.significant ? ` · ${changeText(change)}` : '';
  return `  ${kind === 'same' ? '' : `${kind}: `}${side(before)} | ${side(after)}${what}`;
}

/** A row is a line. */
export function sqlText({ columns, rows, more, notes }: SqlAnswer): string {
  const cell = (value: SqlAnswer['rows'][number][number]): string => (value === null ? '' : String(value).replace(/\s+/g, ' '));
  return [
    columns.map(({ name }) => cell(name)).join(' | '),
    ...rows.map((row) => row.map(cell).join(' | ')),
    ...(rows.length === 0 ? ['No rows.'] : []),
    ...(more ? [`These are the first ${count(rows.length)} rows: there are more.`] : []),
    ...notes,
  ].join('\n');
}
