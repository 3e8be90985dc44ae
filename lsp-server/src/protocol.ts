/**
 * What Dwell's clients and server say to each other beyond LSP 3.17: names, and the types of the schemas in results.ts and
 * requests.ts. Types and names only, so that a client loads no schema; nothing here runs.
 */
import type { Settings } from './requests';

export type * from './requests';
export type * from './results';

/** Requests, by the name this code uses. */
export const methods = {
  epochs: 'dwell/epochs',
  hotProcedures: 'dwell/hotProcedures',
  listing: 'dwell/listing',
  fileCosts: 'dwell/fileCosts',
  line: 'dwell/line',
  summary: 'dwell/summary',
  diff: 'dwell/diff',
  fileChanges: 'dwell/fileChanges',
  stats: 'dwell/stats',
  callers: 'dwell/callers',
  cfg: 'dwell/cfg',
  flame: 'dwell/flame',
  sql: 'dwell/sql',
  legend: 'dwell/legend',
  processes: 'dwell/processes',
  callPaths: 'dwell/callPaths',
  callsDidChange: 'dwell/callsDidChange',
  profileDidChange: 'dwell/profileDidChange',
} as const;

/** Commands for `workspace/executeCommand`. */
export const commands = {
  selectEpochs: 'dwell.server.selectEpochs',
  record: 'dwell.server.record',
  recordCommandLine: 'dwell.server.recordCommandLine',
  newEpoch: 'dwell.server.newEpoch',
  renameEpoch: 'dwell.server.renameEpoch',
  removeEpochs: 'dwell.server.removeEpochs',
  importPerf: 'dwell.server.importPerf',
  report: 'dwell.server.report',
  compare: 'dwell.server.compare',
  listing: 'dwell.server.listing',
  legend: 'dwell.server.legend',
  countCalls: 'dwell.server.countCalls',
  stopCounting: 'dwell.server.stopCounting',
} as const;

/** The command of a code lens; the client runs it, its argument is a procedure's id. */
export const showListingCommand = 'dwell.showListing';
/** The command of a lens that names callers; the client goes to a call, its argument is a `CallersLens`. */
export const goToCallerCommand = 'dwell.goToCaller';
/** The command of a lens above a function whose calls are counted; the client shows `dwell/callPaths`, its argument is the id. */
export const showCallPathsCommand = 'dwell.showCallPaths';
/** The command that a hover links to: the client shows `dwell/legend`. */
export const showLegendCommand = 'dwell.showLegend';

/** Version of this protocol, as announced in `capabilities.experimental.dwell`. */
export const protocolVersion = 1;

/** Which lines get an inlay hint. */
export type HintLevel = NonNullable<Settings['hints']>;

/** `dwell/profileDidChange`. */
export interface ProfileDidChangeParams {
  epochs: string[];
}

/** The argument of `dwell.goToCaller`: the calls of a function that a lens names. */
export interface CallersLens {
  /** `BINARY:NAME`. */
  id: string;
  function: string;
  calls: { label: string; details: string; uri: string | null; line: number | null }[];
}

/** `dwell.server.recordCommandLine`'s result: what a client runs in a terminal. */
export interface CommandLine {
  program: string;
  args: string[];
  /** A file that has `{"epoch": …}` when it ended, if anything was recorded. The client removes it. */
  report: string;
}

/** `dwell.server.record`'s result. */
export interface RecordResult {
  epoch: string;
  output: string;
}
