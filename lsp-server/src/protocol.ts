/**
 * What Dwell's clients and server say to each other beyond LSP 3.17: the types of PROTOCOL.md, which a test holds to
 * this file. Positions are UTF-16, lines from 0. Types and names only; nothing here runs.
 */

/** Requests, by the name this code uses. */
export const methods = {
  epochs: 'dwell/epochs',
  hotProcedures: 'dwell/hotProcedures',
  listing: 'dwell/listing',
  fileCosts: 'dwell/fileCosts',
  profileDidChange: 'dwell/profileDidChange',
} as const;

/** Commands for `workspace/executeCommand`. */
export const commands = {
  selectEpochs: 'dwell.server.selectEpochs',
  record: 'dwell.server.record',
  newEpoch: 'dwell.server.newEpoch',
  listing: 'dwell.server.listing',
} as const;

/** The command of a code lens; the client runs it, its argument is a procedure's id. */
export const showListingCommand = 'dwell.showListing';

/** Version of this protocol, as announced in `capabilities.experimental.dwell`. */
export const protocolVersion = 1;

/** `initializationOptions`, and `dwell` in `workspace/didChangeConfiguration`. */
export interface Settings {
  database?: string;
  epochs?: string[];
  hints?: HintLevel;
  hotShare?: number;
  dwellPath?: string;
}
/** Which lines get an inlay hint. */
export type HintLevel = 'off' | 'hot' | 'all';

/** What a client sends in `capabilities.experimental.dwell`. */
export interface ClientDwellCapabilities {
  profileDidChange?: boolean;
}

/** `dwell/profileDidChange`. */
export interface ProfileDidChangeParams {
  epochs: string[];
}

export interface EpochsResult {
  selected: string[];
  epochs: EpochSummary[];
  warnings: string[];
}
export interface EpochSummary {
  id: string;
  name: string | null;
  start: string;
  end: string | null;
  host: string;
  cpu: string;
  backend: string;
  scope: string;
  events: Record<string, EventSummary>;
  notes: string[];
}
export interface EventSummary {
  period: number;
  unit: 'cycles' | 'ns' | 'events';
  samples: number;
  lost: number;
  throttled: number;
  unknown: number;
}

export interface HotProceduresParams {
  by?: 'procedure' | 'image' | 'line' | 'app';
  limit?: number;
}
export interface HotProceduresResult {
  epochs: string[];
  total: Record<string, number>;
  rows: HotRow[];
  omittedRows: number;
  notes: string[];
}
export interface HotRow {
  id: string;
  label: string;
  image: string | null;
  samples: Record<string, number>;
  share: number;
  cumulativeShare: number;
  cycles: number | null;
  cpi: number | null;
  location: { uri: string; line: number } | null;
}

export interface ListingParams {
  procedure: string;
}
export interface ListingResult {
  title: string;
  text: string;
  lines: ListingLine[];
  listing: object;
}
export interface ListingLine {
  address: number | null;
  source: { uri: string; line: number } | null;
  culpritLines: number[];
}

export interface FileCostsParams {
  textDocument: { uri: string };
}
export interface FileCostsResult {
  epochs: string[];
  source: 'fresh' | 'mapped' | 'stale' | 'unchecked';
  lines: LineCost[];
  procedures: ProcedureCost[];
  notes: string[];
}
export interface LineCost {
  line: number;
  label: string;
  samples: Record<string, number>;
  share: number;
  cycles: number | null;
  executions: number | null;
  cpi: number | null;
  bestCaseCpi: number | null;
  confidence: 'low' | 'medium' | 'high';
  culprits: LineCulprit[];
  procedures: string[];
}
export interface LineCulprit {
  kind: 'static' | 'dynamic';
  cause: string;
  cyclesMin: number | null;
  cyclesMax: number | null;
  shareMax: number;
  uri: string | null;
  line: number | null;
}
export interface ProcedureCost {
  id: string;
  label: string;
  line: number;
  samples: Record<string, number>;
  share: number;
  cycles: number | null;
  cpi: number | null;
  bestCaseCpi: number | null;
}

/** `dwell.server.record`'s argument. */
export interface RecordParams {
  command: string[];
  cwd?: string;
  name?: string;
}
/** `dwell.server.record`'s result. */
export interface RecordResult {
  epoch: string;
  output: string;
}
/** `dwell.server.newEpoch`'s argument. */
export interface NewEpochParams {
  name?: string;
}
