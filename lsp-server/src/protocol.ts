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
  line: 'dwell/line',
  summary: 'dwell/summary',
  diff: 'dwell/diff',
  fileChanges: 'dwell/fileChanges',
  stats: 'dwell/stats',
  cfg: 'dwell/cfg',
  legend: 'dwell/legend',
  processes: 'dwell/processes',
  profileDidChange: 'dwell/profileDidChange',
} as const;

/** Commands for `workspace/executeCommand`. */
export const commands = {
  selectEpochs: 'dwell.server.selectEpochs',
  record: 'dwell.server.record',
  newEpoch: 'dwell.server.newEpoch',
  renameEpoch: 'dwell.server.renameEpoch',
  removeEpochs: 'dwell.server.removeEpochs',
  importPerf: 'dwell.server.importPerf',
  compare: 'dwell.server.compare',
  listing: 'dwell.server.listing',
  legend: 'dwell.server.legend',
} as const;

/** The command of a code lens; the client runs it, its argument is a procedure's id. */
export const showListingCommand = 'dwell.showListing';
/** The command that a hover links to: the client shows `dwell/legend`. */
export const showLegendCommand = 'dwell.showLegend';

/** Version of this protocol, as announced in `capabilities.experimental.dwell`. */
export const protocolVersion = 1;

/** `initializationOptions`, and `dwell` in `workspace/didChangeConfiguration`. */
export interface Settings {
  database?: string;
  epochs?: string[];
  hints?: HintLevel;
  hotShare?: number;
  dwellPath?: string;
  diagnostics?: boolean;
  sourceMap?: Record<string, string>;
  debugDirs?: string[];
}
/** Which lines get an inlay hint. */
export type HintLevel = 'off' | 'hot' | 'all';

/** What a client sends in `capabilities.experimental.dwell`. */
export interface ClientDwellCapabilities {
  profileDidChange?: boolean;
  commandLinks?: boolean;
  drawsLineEnds?: boolean;
}

/** How far executions and cycles per instruction are known: as numbers, or up to one factor of the program or of the procedure. */
export type ScaleKind = 'absolute' | 'program' | 'procedure';
/** Executions for each entry of the innermost loop, or of the procedure where there is none; a ratio, known without a scale. */
export interface PerEntry {
  executions: number;
  of: 'loop' | 'procedure';
}

/** `dwell/profileDidChange`. */
export interface ProfileDidChangeParams {
  epochs: string[];
}

export interface EpochsResult {
  selected: string[];
  baseline: string[] | null;
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
  runningShare: number | null;
}

export interface HotProceduresParams {
  by?: 'procedure' | 'image' | 'line' | 'app';
  offset?: number;
  limit?: number;
  bare?: boolean;
  split?: boolean;
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
  scale: ScaleKind | null;
  cpi: number | null;
  cpiMin: number | null;
  cpiMax: number | null;
  location: { uri: string; line: number } | null;
  split: CycleSplit | null;
}
/** Parts of the cycles: together 1, but for the error of sampling. */
export interface CycleSplit {
  execution: number;
  static: number;
  dynamic: number;
}

export interface ListingParams {
  procedure: string;
}
export interface ListingResult {
  title: string;
  text: string;
  lines: ListingLine[];
  folds: { start: number; end: number; kind: 'summary' | 'block' }[];
  listing: object;
}
export interface ListingLine {
  address: number | null;
  target: number | null;
  source: { uri: string; line: number } | null;
  culpritLines: number[];
  operands: { text: string; lines: number[] }[];
}

export interface FileCostsParams {
  textDocument: { uri: string };
}
export interface FileCostsResult {
  epochs: string[];
  source: 'fresh' | 'mapped' | 'stale' | 'unchecked';
  lines: LineCost[];
  stale: StaleLine[];
  procedures: ProcedureCost[];
  rebuilt: string[];
  notes: string[];
}
export interface LineCost {
  line: number;
  label: string;
  lineEnd: string;
  samples: Record<string, number>;
  share: number;
  seconds: number | null;
  cycles: number | null;
  scale: ScaleKind;
  executions: number | null;
  executionsMin: number | null;
  executionsMax: number | null;
  perEntry: PerEntry | null;
  cpi: number | null;
  cpiMin: number | null;
  cpiMax: number | null;
  bestCaseCpi: number | null;
  confidence: 'low' | 'medium' | 'high';
  culprits: LineCulprit[];
  ties: LineTie[];
  procedures: string[];
}
/** A line that was edited since it was measured; `share`: what it had. */
export interface StaleLine {
  line: number;
  share: number;
}
export interface LineCulprit {
  kind: 'static' | 'dynamic';
  cause: string;
  label: string;
  cyclesMin: number | null;
  cyclesMax: number | null;
  shareMax: number;
  uri: string | null;
  line: number | null;
}
/** Causes that cannot be told apart, as one; `culprits`: indices into those of the line, the likeliest first. */
export interface LineTie {
  text: string;
  culprits: number[];
  shareMax: number;
  cyclesMin: number | null;
  cyclesMax: number | null;
}
export interface ProcedureCost {
  id: string;
  label: string;
  line: number;
  samples: Record<string, number>;
  share: number;
  seconds: number | null;
  cycles: number | null;
  scale: ScaleKind;
  cpi: number | null;
  cpiMin: number | null;
  cpiMax: number | null;
  bestCaseCpi: number | null;
}

export interface LineParams {
  textDocument: { uri: string };
  line: number;
}
export interface LineResult {
  line: number;
  places: LinePlace[];
  omittedPlaces: number;
}
export interface LinePlace {
  procedure: string;
  label: string;
  callers: LineCaller[];
  share: number;
  scale: ScaleKind;
  cpi: number | null;
  cpiMin: number | null;
  cpiMax: number | null;
  instructions: LineInstruction[];
  omittedInstructions: number;
}
export interface LineCaller {
  function: string | null;
  uri: string | null;
  line: number | null;
}
export interface LineInstruction {
  address: number;
  text: string;
  samples: number;
  executions: number | null;
  executionsRelative: number | null;
  cpi: number | null;
  cpiMin: number | null;
  cpiMax: number | null;
  confidence: 'low' | 'medium' | 'high';
  stalls: LineStall[];
}
export interface DataSource {
  level: 'l2' | 'last-level' | 'memory';
  part: number | null;
}
export interface LineStall {
  kind: 'static' | 'dynamic';
  cause: string;
  label: string;
  cyclesMin: number;
  cyclesMax: number | null;
  shareMin: number;
  shareMax: number;
  sources: DataSource[];
  levels: string[];
  culpritAddress: number | null;
  culpritText: string | null;
  uri: string | null;
  line: number | null;
}

export interface SummaryParams {
  procedure?: string;
  image?: string;
  epochs?: string[];
}
export interface SummaryResult {
  epochs: string[];
  scope: { kind: 'procedure' | 'image' | 'epoch'; name: string };
  machineModel: string;
  timeEvent: string;
  periodCycles: number | null;
  samples: number;
  samplesTallied: number;
  talliedShare: number;
  procedures: number;
  proceduresLeftOut: number;
  cycles: number | null;
  scale: ScaleKind | null;
  instructions: number | null;
  cpi: number | null;
  cpiMin: number | null;
  cpiMax: number | null;
  bestCaseCpi: number | null;
  dynamic: SummaryRange[];
  unexplainedStall: number;
  unexplainedGain: number;
  subtotalDynamic: number;
  staticCauses: SummaryPart[];
  subtotalStatic: number;
  totalStall: number;
  execution: number;
  netSamplingError: number;
  notes: string[];
  text: string;
}
export interface SummaryRange {
  cause: string;
  label: string;
  shareMin: number;
  shareMax: number;
}
export interface SummaryPart {
  cause: string;
  label: string;
  share: number;
}

export interface DiffParams {
  before?: string[];
  after?: string[];
  procedure?: string;
  normalize?: string;
  all?: boolean;
  limit?: number;
}
export interface DiffResult {
  before: DiffSide;
  after: DiffSide;
  normalizedBy: string;
  exposure: number;
  total: DiffChange;
  procedures: DiffProcedure[];
  lines: DiffLine[];
  instructions: DiffInstruction[];
  insignificantProcedures: number;
  insignificantLines: number;
  omittedRows: number;
  notes: string[];
}
export interface DiffSide {
  epochs: string[];
  cpu: string;
  machineModel: string;
  event: string;
  samples: number;
  periodCycles: number | null;
}
/** `new` … `noise`; `more` and `less` where nothing tells cost from count. */
export type Verdict = 'new' | 'gone' | 'slower' | 'faster' | 'more-often' | 'less-often' | 'more' | 'less' | 'noise';
export interface DiffChange {
  verdict: Verdict;
  label: string;
  samplesBefore: number;
  samplesAfter: number;
  change: number;
  changeShare: number;
  changeCycles: number | null;
  ratio: number | null;
  executionsBefore: number | null;
  executionsAfter: number | null;
  countRatio: number | null;
  cpiBefore: number | null;
  cpiAfter: number | null;
  costRatio: number | null;
  p: number;
  falseDiscoveryRate: number;
  significant: boolean;
}
export interface DiffProcedure extends DiffChange {
  id: string;
  name: string;
  image: string;
  confidence: 'low' | 'medium' | 'high';
}
export interface DiffLine extends DiffChange {
  file: string;
  uri: string | null;
  lineBefore: number | null;
  lineAfter: number | null;
}
export interface DiffInstruction extends DiffChange {
  kind: 'same' | 'edited' | 'removed' | 'added';
  before: DiffPlace | null;
  after: DiffPlace | null;
}
export interface DiffPlace {
  address: number;
  text: string;
  uri: string | null;
  line: number | null;
}

export interface FileChangesParams {
  textDocument: { uri: string };
}
export interface FileChangesResult {
  before: string[];
  after: string[];
  lines: LineChange[];
  procedures: ProcedureChange[];
  notes: string[];
}
export interface LineChange extends DiffChange {
  line: number;
}
export interface ProcedureChange extends DiffChange {
  name: string;
  line: number;
}

export interface StatsParams {
  epochs: string[];
  against?: string[];
  normalize?: string;
  limit?: number;
  shareMin?: number;
  image?: string;
}
export interface StatsResult {
  event: string;
  sets: StatsSet[];
  total: number;
  rows: StatsRow[];
  omittedRows: number;
  notes: string[];
}
export interface StatsSet {
  epoch: string;
  name: string | null;
  against: boolean;
  samples: number;
  exposure: number;
}
export interface StatsRow {
  procedure: string;
  demangled: string;
  image: string;
  samples: number[];
  rangeShare: number;
  sum: number;
  sumShare: number;
  n: number;
  mean: number;
  stdDev: number;
  min: number;
  max: number;
  comparison: StatsComparison | null;
}
export interface StatsComparison {
  mean: number;
  meanAgainst: number;
  ratio: number | null;
  dispersion: number | null;
  p: number;
  falseDiscoveryRate: number;
  significant: boolean;
}

export interface CfgParams {
  procedure: string;
}
export interface CfgResult {
  title: string;
  svg: string;
  blocks: CfgBlock[];
  omittedBlocks: number;
}
export interface CfgBlock {
  address: number;
  head: string;
  share: number;
  lines: CfgLine[];
  successors: CfgSuccessor[];
  box: CfgBox;
}
export interface CfgLine {
  address: number | null;
  text: string;
}
export interface CfgSuccessor {
  to: number;
  executions: number | null;
  part: number | null;
  falls: boolean;
}
export interface CfgBox {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** `dwell/legend`: what the numbers mean. */
export interface LegendResult {
  markdown: string;
}

export interface ProcessesResult {
  processes: ProcessSummary[];
}
export interface ProcessSummary {
  pid: number;
  name: string;
  command: string;
  user: string;
  own: boolean;
  cpuSeconds: number;
}

/** `dwell.server.record`'s argument: a command, or processes that run. */
export interface RecordParams {
  command?: string[];
  pids?: number[];
  cwd?: string;
  name?: string;
  seconds?: number;
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
/** `dwell.server.renameEpoch`'s argument. */
export interface RenameEpochParams {
  epoch: string;
  name: string;
}
/** `dwell.server.importPerf`'s argument. */
export interface ImportPerfParams {
  path: string;
  name?: string;
}
/** `dwell.server.compare`'s argument; null ends the comparison. */
export interface CompareParams {
  before: string[];
  after?: string[];
}
