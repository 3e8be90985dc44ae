/**
 * The binding to Dwell's core, as the server uses it: tests put a fake in its place.
 */
import type * as core from '@dwell/core';

export type {
  Diff, DiffFactors, DiffRequest, EpochList, FileChanges, LineDetail, Stats, StatsRequest, Summary, SummaryRequest,
  Callers, CallersRequest, CallersRow, FileFunction, FileFunctions, HottestPaths, DiffChange, FileCosts, Flame, FlameAnalysis, FlameFunction, FlameNode, FlameRequest, Inclusive, LineCost, Listing, OpenOptions, SqlRequest, ListingInstruction, ListingStall, ProcedureCost, Top, TopRequest, TopRow,
} from '@dwell/core';

/** How an item of both profiles changed. */
export type CoreChange = core.DiffChange & core.DiffFactors;

export type SqlAnswer = Awaited<ReturnType<core.Dwell['sql']>>;

/** Cancels the calls that it was passed to: they reject with the code `cancelled`. */
export interface Cancel {
  cancel(): void;
}

/** An open database; see `core/node/index.d.ts`. */
export interface Core {
  epochs(cancel: Cancel): Promise<core.EpochList>;
  selectedEpochs(selectors: string[]): Promise<string[]>;
  top(request: core.TopRequest, cancel: Cancel): Promise<core.Top>;
  listing(epochs: string[], procedure: string, cancel: Cancel): Promise<core.Listing>;
  fileCosts(epochs: string[], path: string, cancel: Cancel): Promise<core.FileCosts>;
  lineDetail(epochs: string[], path: string, line: number, cancel: Cancel): Promise<core.LineDetail>;
  diff(request: core.DiffRequest, cancel: Cancel): Promise<core.Diff>;
  fileChanges(request: core.DiffRequest, path: string, cancel: Cancel): Promise<core.FileChanges>;
  summary(request: core.SummaryRequest, cancel: Cancel): Promise<core.Summary>;
  callers(request: core.CallersRequest, cancel: Cancel): Promise<core.Callers>;
  flame(request: core.FlameRequest, cancel: Cancel): Promise<core.Flame>;
  inclusive(epochs: string[], limit: number, cancel: Cancel): Promise<core.Inclusive>;
  hottestPaths(epochs: string[], limit: number, depth: number, cancel: Cancel): Promise<core.HottestPaths>;
  fileFunctions(epochs: string[], path: string, cancel: Cancel): Promise<core.FileFunctions>;
  stats(request: core.StatsRequest, cancel: Cancel): Promise<core.Stats>;
  sql(request: core.SqlRequest, cancel: Cancel): Promise<SqlAnswer>;
  renameEpoch(epoch: string, name: string): Promise<string>;
  removeEpochs(epochs: string[]): Promise<string[]>;
  watch(callback: () => void): void;
  unwatch(): void;
}

/** What the native module offers. */
export interface Binding {
  Dwell: { open(options: core.OpenOptions): Core };
  Cancel: new () => Cancel;
}

/** The `code` of an error of the core, or an empty text. */
export function errorCode(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : '';
  return typeof code === 'string' ? code : '';
}

export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
