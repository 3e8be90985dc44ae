/**
 * The tools' answers: what the core says, in the shapes of schemas.ts. Arithmetic of losses only; texts are made elsewhere.
 */
import { readFile } from 'node:fs/promises';
import type * as z from 'zod/v4';
import { camel } from '../camel';
import type { CallersRow, Cancel, Core, Diff, CoreChange, EpochList, Listing } from '../core';
import { placelessRow } from '../hotProcedures';
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
export type CallersAnswer = z.input<typeof schemas.callersOut>;
export type InclusiveAnswer = z.input<typeof schemas.inclusiveOut>;
export type PathsAnswer = z.input<typeof schemas.pathsOut>;
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
  const { rows, ...rest } = top;
  return {
    ...camel(rest),
    losses: lossesOf(all.filter(({ id }) => top.epochs.includes(id)).map(({ events }) => events)),
    rows: rows.map((row) => ({ ...placelessRow(row, by), file: row.file ?? null, line: row.line ?? null })),
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
    instructions: page.map(({ stalls, ...instruction }) => ({
      ...camel(instruction),
      stalls: stalls.map((stall) => ({
        ...camel(stall),
        cyclesMax: answer.scale.kind === 'absolute' || stall.kind === 'static' ? stall.cycles_max : null,
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
    lines: shown.map((cost) => ({
      ...camel(cost),
      culprits: cost.culprits.map((culprit) => camel(culprit)),
      ties: cost.ties.map((tie) => camel(tie)),
      text: text?.[cost.line - 1] ?? null,
    })),
    procedures: costs.procedures.map(({ demangled: label, ...cost }) => ({ ...camel(cost), label })),
    omittedLines: costs.lines.length - shown.length,
    notes: text === undefined ? [...costs.notes, `${path} cannot be read: its text is left out`] : costs.notes,
  };
}

export async function summary(core: Core, asked: In<typeof schemas.summaryIn>, cancel: Cancel): Promise<SummaryAnswer & { text: string }> {
  return summaryResult(await core.summary({ epochs: latest, ...asked }, cancel));
}

export async function callers(core: Core, asked: In<typeof schemas.callersIn>, cancel: Cancel): Promise<CallersAnswer> {
  const { minShare: shareMin, epochs: selected = latest, ...question } = asked;
  const { rows, ...answer } = await core.callers({ ...question, epochs: selected, shareMin }, cancel);
  return { ...answer, rows: levels(rows, 0) };
}

/** The rows of a tree in one list. */
function levels(rows: readonly CallersRow[], level: number): CallersAnswer['rows'] {
  return rows.flatMap(({ rows: next, sites: [site], ...row }) => [
    { ...row, level, file: site?.file ?? null, line: site?.line ?? null },
    ...levels(next, level + 1),
  ]);
}

export async function inclusive(core: Core, asked: In<typeof schemas.inclusiveIn>, cancel: Cancel): Promise<InclusiveAnswer> {
  return camel(await core.inclusive(asked.epochs ?? latest, asked.limit, cancel));
}

export async function hottestPaths(core: Core, asked: In<typeof schemas.pathsIn>, cancel: Cancel): Promise<PathsAnswer> {
  const { paths, ...answer } = await core.hottestPaths(asked.epochs ?? latest, asked.limit, asked.depth, cancel);
  return {
    ...camel(answer),
    paths: paths.map(({ frames, ...path }) => ({
      ...path,
      frames: frames.map(({ site, ...frame }) => ({ ...frame, file: site?.file ?? null, line: site?.line ?? null })),
    })),
  };
}

export async function diff(core: Core, asked: In<typeof schemas.diffIn>, cancel: Cancel): Promise<DiffAnswer> {
  const { before, after, ...options } = asked;
  return diffAnswer(await core.diff({ a: before, b: after, ...options }, cancel));
}

/** Changes say more than the schema has: it leaves the rest out. */
function diffAnswer({ a, b, total, procedures, lines, instructions, ...rest }: Diff): DiffAnswer {
  const changeOf = (change: CoreChange): DiffAnswer['total'] => diffChange(change, a.period_cycles);
  return {
    ...camel(rest),
    before: camel(a),
    after: camel(b),
    total: changeOf({ ...total, ...noFactors }),
    procedures: procedures.map(({ procedure, demangled: label, image, confidence, ...change }) => ({
      ...changeOf(change), id: `${image}:${procedure}`, label, image, confidence,
    })),
    lines: lines.map(({ file, line_a: lineBefore, line_b: lineAfter, ...change }) => ({ file, lineBefore, lineAfter, ...changeOf(change) })),
    instructions: instructions.map(({ kind, a: before, b: after, ...change }) => ({ kind, before, after, ...changeOf(change) })),
  };
}
