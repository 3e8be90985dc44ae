/**
 * The tools' answers: what the core says, in the shapes of schemas.ts. Arithmetic of losses only; texts are made elsewhere.
 */
import { readFile } from 'node:fs/promises';
import type * as z from 'zod/v4';
import type { Cancel, Core, Diff, DiffFactors, CoreChange, EpochList, Listing } from '../core';
import { rowIdentity } from '../hotProcedures';
import { splitLines } from '../lineMap';
import { summaryResult } from '../summary';
import { diffChange, noFactors } from '../verdict';
import type * as schemas from './schemas';

type In<T extends z.ZodType> = z.output<T>;
export type EpochsAnswer = z.input<typeof schemas.epochsOut>;
export type HotAnswer = z.input<typeof schemas.hotOut>;
export type ListingAnswer = z.input<typeof schemas.listingOut>;
export type LinesAnswer = z.input<typeof schemas.linesOut>;
export type SummaryAnswer = z.input<typeof schemas.summaryOut>;
export type DiffAnswer = z.input<typeof schemas.diffOut>;
type Losses = HotAnswer['losses'];

const latest = ['latest'];

export async function epochs(core: Core, cancel: Cancel): Promise<EpochsAnswer> {
  const { epochs: all, warnings } = await core.epochs(cancel);
  return {
    epochs: all.map(({ id, name, start, end, host, cpu, scope, events, notes }) => ({
      id, name, start, end, host, cpu, scope,
      samples: Object.fromEntries(Object.entries(events).map(([event, { samples }]) => [event, samples])),
      losses: lossesOf([events]),
      notes,
    })),
    warnings,
  };
}

function lossesOf(epochs: readonly EpochList['epochs'][number]['events'][]): Losses {
  const all = epochs.flatMap((events) => Object.values(events));
  const sum = (key: keyof Losses): number => all.reduce((total, event) => total + event[key], 0);
  return { lost: sum('lost'), throttled: sum('throttled'), unknown: sum('unknown') };
}

export async function hot(core: Core, asked: In<typeof schemas.hotIn>, cancel: Cancel): Promise<HotAnswer> {
  const { by } = asked;
  const top = await core.top({ epochs: latest, ...asked }, cancel);
  const { epochs: all } = await core.epochs(cancel);
  return {
    epochs: top.epochs,
    total: top.total,
    losses: lossesOf(all.filter(({ id }) => top.epochs.includes(id)).map(({ events }) => events)),
    rows: top.rows.map((row) => {
      const { image: path, file, line, samples, share, cumulativeShare, cycles, scale, cpi, cpiMin, cpiMax } = row;
      return { ...rowIdentity(row, by), image: path, file, line, samples, share, cumulativeShare, cycles, scale, cpi, cpiMin, cpiMax };
    }),
    omittedRows: top.omittedRows,
    notes: top.notes,
  };
}

export function listing(answer: Listing, { offset, limit }: In<typeof schemas.listingIn>): ListingAnswer {
  const page = answer.instructions.slice(offset, offset + limit);
  const end = offset + page.length;
  return {
    epoch: answer.epoch,
    procedure: answer.procedure.demangled,
    image: answer.image.path,
    machineModel: answer.machine_model,
    scale: answer.scale,
    share: answer.procedure.share,
    samples: answer.procedure.samples,
    instructions: page.map((instruction) => ({
      address: instruction.address,
      text: instruction.text,
      file: instruction.file,
      line: instruction.line,
      headSamples: instruction.head_samples,
      executions: instruction.executions,
      executionsMin: instruction.executions_min,
      executionsMax: instruction.executions_max,
      executionsRelative: instruction.executions_relative,
      cpi: instruction.cpi,
      cpiMin: instruction.cpi_min,
      cpiMax: instruction.cpi_max,
      confidence: instruction.confidence,
      stalls: instruction.stalls.map((stall) => ({
        kind: stall.kind,
        cause: stall.cause,
        label: stall.label,
        cyclesMin: stall.cycles_min,
        cyclesMax: answer.scale.kind === 'absolute' || stall.kind === 'static' ? stall.cycles_max : null,
        shareMin: stall.share_min,
        shareMax: stall.share_max,
        culpritAddress: stall.culprit_address,
        sources: stall.sources,
        levels: stall.levels,
      })),
    })),
    totalInstructions: answer.instructions.length,
    nextOffset: end < answer.instructions.length ? end : null,
    notes: answer.notes,
  };
}

export async function lines(core: Core, asked: In<typeof schemas.linesIn>, cancel: Cancel): Promise<LinesAnswer> {
  const { path, minShare, epochs: selected = latest } = asked;
  const costs = await core.fileCosts(selected, path, cancel);
  const text = await readFile(path, 'utf8').then(splitLines, () => undefined);
  const shown = costs.lines.filter(({ share }) => share >= minShare);
  return {
    epochs: costs.epochs,
    source: costs.source,
    lines: shown.map((cost) => ({ ...cost, text: text?.[cost.line - 1] ?? null })),
    procedures: costs.procedures.map(({ id, demangled, line, share, seconds, cycles, scale, cpi, cpiMin, cpiMax, bestCaseCpi }) => ({
      id, label: demangled, line, share, seconds, cycles, scale, cpi, cpiMin, cpiMax, bestCaseCpi,
    })),
    omittedLines: costs.lines.length - shown.length,
    notes: text === undefined ? [...costs.notes, `${path} cannot be read: its text is left out`] : costs.notes,
  };
}

export async function summary(core: Core, asked: In<typeof schemas.summaryIn>, cancel: Cancel): Promise<SummaryAnswer & { text: string }> {
  return summaryResult(await core.summary({ epochs: latest, ...asked }, cancel));
}

export async function diff(core: Core, asked: In<typeof schemas.diffIn>, cancel: Cancel): Promise<DiffAnswer> {
  const { before, after, ...options } = asked;
  return diffAnswer(await core.diff({ a: before, b: after, ...options }, cancel));
}

/** Changes say more than the schema has: it leaves the rest out. */
function diffAnswer({ a, b, total, procedures, lines, instructions, ...rest }: Diff): DiffAnswer {
  const changeOf = (change: CoreChange, factors: DiffFactors): DiffAnswer['total'] => diffChange(change, factors, a.periodCycles);
  return {
    ...rest,
    before: a,
    after: b,
    total: changeOf(total, noFactors),
    procedures: procedures.map(({ procedure, demangled, image, change, factors, confidence }) => ({
      ...changeOf(change, factors), id: `${image}:${procedure}`, label: demangled, image, confidence,
    })),
    lines: lines.map(({ file, lineA, lineB, change, factors }) => ({ file, lineBefore: lineA, lineAfter: lineB, ...changeOf(change, factors) })),
    instructions: instructions.map(({ kind, a: before, b: after, change, factors }) => ({ kind, before, after, ...changeOf(change, factors) })),
  };
}
