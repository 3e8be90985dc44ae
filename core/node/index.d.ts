// Made by `npm run types -w @dwell/core` from core/node/src.

/** Gives up one or several calls: their promises reject with code `cancelled`. */
export declare class Cancel {
  /** Nothing is cancelled yet. */
  constructor()
  /** Cancels, for good. */
  cancel(): void
}

/** A profile database, open for questions. */
export declare class Dwell {
  /** Opens a database; throws an error with a `code` when there is none to read. */
  static open(options: OpenOptions): Dwell
  /** The database's epochs. */
  epochs(cancel?: Cancel | undefined | null): Promise<EpochList>
  /** The ids of the epochs that selectors name, oldest first; a selector that names none is left out. */
  selectedEpochs(selectors: Array<string>): Promise<string[]>
  /** Where the time went, most costly first. */
  top(request: TopRequest, cancel?: Cancel | undefined | null): Promise<Top>
  /** A procedure's instructions with their costs; `procedure` is `NAME` or `IMAGE:NAME`. */
  listing(epochs: Array<string>, procedure: string, cancel?: Cancel | undefined | null): Promise<Listing>
  /** What the lines of the source file `path` cost. */
  fileCosts(epochs: Array<string>, path: string, cancel?: Cancel | undefined | null): Promise<FileCosts>
  /** One source line (from 1) of the file `path`, instruction by instruction. */
  lineDetail(epochs: Array<string>, path: string, line: number, cancel?: Cancel | undefined | null): Promise<LineDetail>
  /** What changed between two profiles. */
  diff(request: DiffRequest, cancel?: Cancel | undefined | null): Promise<Diff>
  /** What changed between two profiles in the source file `path`. */
  fileChanges(request: DiffRequest, path: string, cancel?: Cancel | undefined | null): Promise<FileChanges>
  /** Where the cycles of a procedure, an image or everything go. */
  summary(request: SummaryRequest, cancel?: Cancel | undefined | null): Promise<Summary>
  /** How much procedures vary over several epochs, and whether two groups of epochs differ. */
  stats(request: StatsRequest, cancel?: Cancel | undefined | null): Promise<Stats>
  /** Names an epoch; its id. */
  renameEpoch(epoch: string, name: string): Promise<string>
  /** Removes epochs for good; their ids. Whoever calls this has asked. */
  removeEpochs(epochs: Array<string>): Promise<string[]>
  /** Changes whenever the database does. */
  generation(): Promise<string>
  /** Calls `callback` within a second of each change of the database. A later call replaces the callback. */
  watch(callback: () => void): void
  /** Ends watching. */
  unwatch(): void
}

/** Parts of a procedure's cycles (DCPI Figure 4 in three numbers). Their sum is 1, up to the error of sampling. */
export interface CycleSplit {
  /** Issuing instructions. */
  execution: number
  /** Stalls that follow from the instructions alone. */
  static: number
  /** Stalls that do not: caches, mispredictions, … */
  dynamic: number
}

/** What changed between two profiles. */
export interface Diff {
  /** What changed … */
  a: DiffSide
  /** … into what. */
  b: DiffSide
  /** As in the request. */
  normalizedBy: string
  /** B's exposure over A's: B's samples are divided by it wherever they are set against A's. */
  exposure: number
  /** Everything. */
  total: DiffChange
  /** The largest change first. */
  procedures: Array<DiffProcedure>
  /** The largest change first. */
  lines: Array<DiffLine>
  /** Of one procedure: those of B in their order with A's between them. */
  instructions: Array<DiffInstruction>
  /** Procedures whose change may be chance … */
  insignificantProcedures: number
  /** … and such lines. */
  insignificantLines: number
  /** Rows beyond the limit. */
  omittedRows: number
  /** What one must know to read it. */
  notes: Array<string>
}

/** How samples changed, and whether that is more than chance. */
export interface DiffChange {
  /** Samples in A … */
  samplesA: number
  /** … and in B, as they are. */
  samplesB: number
  /** B's samples over exposure, less A's: positive where it became slower. */
  change: number
  /** The same as a part of all of A's samples. */
  changeShare: number
  /** B's samples over exposure, over A's; `null` where A has none. */
  ratio: number | null
  /** How likely a change as large is if there is none. */
  p: number
  /** The part of false calls among all rows as sure as this one. */
  falseDiscoveryRate: number
  /** Whether that is below one in twenty. */
  significant: boolean
}

/** The change factored: samples = executions × cycles per execution. */
export interface DiffFactors {
  /** Instructions executed (of an instruction: its executions) in A; `null` unless the scale is absolute … */
  executionsA: number | null
  /** … and in B. */
  executionsB: number | null
  /** Cycles per instruction in A, likewise … */
  cpiA: number | null
  /** … and in B. */
  cpiB: number | null
  /** B's executions over exposure, over A's: did it run more often? `null` unless the scales of both sides are absolute. */
  countRatio: number | null
  /** B's CPI over A's: did it take longer each time? `null` likewise. */
  costRatio: number | null
  /** Whether the evidence separates count from cost: which of the two changed further is certain at 90 %. */
  tellsApart: boolean
}

/** One instruction of either side, or of both. */
export interface DiffInstruction {
  /** Where it is in A. */
  a: DiffPlace | null
  /** Where it is in B. */
  b: DiffPlace | null
  /** How they relate: `edited` has another operand or a like instruction in its place. */
  kind: 'same' | 'edited' | 'removed' | 'added'
  /** How its samples changed. */
  change: DiffChange
  /** Cost apart from count. */
  factors: DiffFactors
}

/** One source line's change. */
export interface DiffLine {
  /** The file, as the debug information spells it. */
  file: string
  /** Its number in A, from 1; `null`: it is not there, or was edited. */
  lineA: number | null
  /** The same in B. */
  lineB: number | null
  /** How its samples changed. */
  change: DiffChange
  /** Cost apart from count. */
  factors: DiffFactors
}

/** An instruction on one side. */
export interface DiffPlace {
  /** First byte. */
  address: number
  /** Mnemonic and operands. */
  text: string
  /** Source file. */
  file: string | null
  /** Its line, from 1. */
  line: number | null
}

/** One procedure's change. */
export interface DiffProcedure {
  /** Linkage name. */
  procedure: string
  /** As the programmer wrote it. */
  demangled: string
  /** The image's file name. */
  image: string
  /** How its samples changed. */
  change: DiffChange
  /** Cost apart from count. */
  factors: DiffFactors
  /** The lesser of the two sides' confidences. */
  confidence: 'low' | 'medium' | 'high'
}

/** What to compare. */
export interface DiffRequest {
  /** Selectors of the epochs before the change … */
  a: Array<string>
  /** … and after it. */
  b: Array<string>
  /** This procedure alone (`NAME` or `IMAGE:NAME`), instruction by instruction. */
  procedure?: string
  /** What makes them comparable: `run` (unless said), `time`, `samples`, or a procedure that did the same work in both. */
  normalize?: string
  /** What may be chance, too. */
  all?: boolean
  /** Procedures and lines at most. */
  limit?: number
}

/** One of the two profiles. */
export interface DiffSide {
  /** Ids of its epochs. */
  epochs: Array<string>
  /** The processor's marketing name. */
  cpu: string
  /** Name of the machine model that was used. */
  machineModel: string
  /** What was counted. */
  event: string
  /** Its samples. */
  samples: number
  /** Cycles between two of them; `null` where the clock is unknown. */
  periodCycles: number | null
}

/** The database's epochs. */
export interface EpochList {
  /** Newest last. */
  epochs: Array<EpochSummary>
  /** Files that were skipped, each with its reason. */
  warnings: Array<string>
}

/** One epoch in a list. */
export interface EpochSummary {
  /** Its id. */
  id: string
  /** The name a user gave it. */
  name: string | null
  /** RFC 3339, UTC. */
  start: string
  /** RFC 3339, UTC; `null` while it is being collected. */
  end: string | null
  /** Node name. */
  host: string
  /** The processor's marketing name. */
  cpu: string
  /** `perf`, `bpf`, `kmod`, `import`. */
  backend: string
  /** What was sampled, in words. */
  scope: string
  /** By event name. */
  events: Record<string, EventSummary>
  /** What one must know to read it. */
  notes: Array<string>
}

/** An event's tallies. */
export interface EventSummary {
  /** Mean period, in `unit`. */
  period: number
  /** The period's unit. */
  unit: 'cycles' | 'ns' | 'events'
  /** Samples stored. */
  samples: number
  /** Samples dropped. */
  lost: number
  /** Times the kernel throttled. */
  throttled: number
  /** Of `samples`, those without an image. */
  unknown: number
  /** Part of the time for which the event counted, 0 to 1. Below 1, events took turns. `null`: not recorded. */
  runningShare: number | null
}

/** What changed in one source file between two profiles. */
export interface FileChanges {
  /** What changed … */
  a: DiffSide
  /** … into what. */
  b: DiffSide
  /** B's exposure over A's. */
  exposure: number
  /** Ascending; numbers are those of the file as it is now. */
  lines: Array<LineChange>
  /** Those that begin in the file, by ascending line. */
  procedures: Array<ProcedureChange>
  /** What one must know to read it. */
  notes: Array<string>
}

/** The costs of one source file's lines. */
export interface FileCosts {
  /** Ids of the epochs that were merged. */
  epochs: Array<string>
  /** How the file as it is relates to the file as it was built. */
  source: 'fresh' | 'mapped' | 'stale' | 'unchecked'
  /** Ascending, only lines with samples. */
  lines: Array<LineCost>
  /** Procedures that begin in this file and have samples, by ascending line. */
  procedures: Array<ProcedureCost>
  /** Lines that were edited since the program was built, ascending. */
  stale: Array<StaleLine>
  /** The programs whose samples these are. */
  programs: Array<Program>
  /** What one must know to read it. */
  notes: Array<string>
}

/** A call that was inlined. */
export interface LineCaller {
  /** Who calls, as the source spells it. */
  function: string | null
  /** The call's source file … */
  file: string | null
  /** … and its line as it was built, from 1. */
  line: number | null
}

/** One line's change. */
export interface LineChange {
  /** From 1. */
  line: number
  /** How its samples changed. */
  change: DiffChange
  /** Cost apart from count. */
  factors: DiffFactors
}

/** One source line's cost, inlined copies included. */
export interface LineCost {
  /** From 1. */
  line: number
  /** By event name. */
  samples: Record<string, number>
  /** Of the epoch's time samples, 0 to 1. */
  share: number
  /** Cycles over the epoch; `null` where the clock is unknown. */
  cycles: number | null
  /** CPU time over the epoch in seconds; `null`: not known. */
  seconds: number | null
  /** The least that is known of the scale of its executions. */
  scale: 'absolute' | 'program' | 'procedure'
  /** Executions of the line's most executed instruction; `null` unless the scale is absolute. */
  executions: number | null
  /** The 90 % interval of the same … */
  executionsMin: number | null
  /** … `null` likewise. */
  executionsMax: number | null
  /** Executions of its most executed instruction for each entry of what that lies in. */
  perEntry: PerEntry | null
  /** Cycles per instruction; `null` unless the scale is absolute. */
  cpi: number | null
  /** The 90 % interval of the same; without an absolute scale, the least that is possible. */
  cpiMin: number
  /** `null`: nothing bounds it. */
  cpiMax: number | null
  /** Cycles per instruction without dynamic stalls: the model's. */
  bestCaseCpi: number | null
  /** How far to trust them. */
  confidence: 'low' | 'medium' | 'high'
  /** Leading causes of lost cycles, most costly first. */
  culprits: Array<LineCulprit>
  /** The same causes, those that cannot be told apart together, most costly first. */
  ties: Array<LineTie>
  /** `IMAGE:NAME` of the procedures the line's instructions lie in, most samples first. */
  procedures: Array<string>
}

/** Who is to blame for a line's lost cycles. */
export interface LineCulprit {
  /** Whether it follows from the instructions alone. */
  kind: 'static' | 'dynamic'
  /** As in `ListingStall`. */
  cause: string
  /** The cause's name for people. */
  label: string
  /** Cycles over the epoch, at least … */
  cyclesMin: number | null
  /** … and at most. */
  cyclesMax: number | null
  /** Of the line's cycles that it may explain at most, 0 to 1. */
  shareMax: number
  /** Source file of the instruction to blame … */
  file: string | null
  /** … and its line, from 1. */
  line: number | null
}

/** One source line's instructions, apart by where its code ended up. */
export interface LineDetail {
  /** Ids of the epochs that were merged. */
  epochs: Array<string>
  /** From 1, of the file as it is now. */
  line: number
  /** Most samples first. */
  places: Array<LinePlace>
  /** How many more places the line has. */
  omittedPlaces: number
}

/** One instruction of the line. */
export interface LineInstruction {
  /** First byte. */
  address: number
  /** Mnemonic and operands. */
  text: string
  /** Time samples during which it was at the head of the machine. */
  headSamples: number
  /** Executions over the epoch; `null` unless the scale is absolute. */
  executions: number | null
  /** Executions up to what the scale leaves open. */
  executionsRelative: number | null
  /** Cycles at the head of the machine, per execution; `null` unless the scale is absolute. */
  cpi: number | null
  /** As for places. */
  cpiMin: number
  /** As for places. */
  cpiMax: number | null
  /** How far to trust them. */
  confidence: 'low' | 'medium' | 'high'
  /** Why it took longer, static causes first. */
  stalls: Array<LineStall>
}

/** One procedure that the line was compiled into, by one chain of inlined calls. */
export interface LinePlace {
  /** What `listing` takes. */
  procedure: string
  /** As the programmer wrote it. */
  demangled: string
  /** The calls that were inlined to get there, innermost first; empty: the line is the procedure's own. */
  callers: Array<LineCaller>
  /** Of the epoch's time samples, 0 to 1. */
  share: number
  /** The kind of the scale of its executions. */
  scale: 'absolute' | 'program' | 'procedure'
  /** Cycles per instruction; `null` unless the scale is absolute. */
  cpi: number | null
  /** The 90 % interval of the same; without an absolute scale, the least that is possible. */
  cpiMin: number
  /** `null`: nothing bounds it. */
  cpiMax: number | null
  /** By ascending address. */
  instructions: Array<LineInstruction>
  /** How many more instructions the place has; those that cost least are left out. */
  omittedInstructions: number
}

/** See `LineInstruction`. */
export interface LineStall {
  /** Whether it follows from the instructions alone. */
  kind: 'static' | 'dynamic'
  /** As in `ListingStall`. */
  cause: string
  /** The cause's name for people. */
  label: string
  /** Cycles per execution, at least … */
  cyclesMin: number
  /** … and at most; `null` of a dynamic stall unless the scale is absolute. */
  cyclesMax: number | null
  /** Of the instruction's time, at least … */
  shareMin: number
  /** … and at most, 0 to 1. */
  shareMax: number
  /** As in `ListingStall`. */
  levels: Array<'L2' | 'LLC' | 'DRAM'>
  /** As in `ListingStall`. */
  sources: Array<ListingSource>
  /** Address of the instruction to blame … */
  culpritAddress: number | null
  /** … its text … */
  culpritText: string | null
  /** … its source file … */
  file: string | null
  /** … and its line, from 1; in the file that was asked about, as it is now. */
  line: number | null
}

/** Causes that may explain the same lost cycles of a line, and that cannot be told apart. */
export interface LineTie {
  /** What the line waits for: `waits for memory (D-cache or DTLB miss)`. */
  text: string
  /** Indices of its causes among the line's culprits, the likeliest first. */
  culprits: Array<number>
  /** Of the line's time that they explain together at most, 0 to 1. */
  shareMax: number
  /** Cycles over the epoch, at least … */
  cyclesMin: number | null
  /** … and at most. */
  cyclesMax: number | null
}

/** One procedure's instructions with their costs: `dwell annotate --json`. */
export interface Listing {
  /** Version of this answer's shape. */
  schema: number
  /** Where the procedure lies. */
  image: ListingImage
  /** Which it is. */
  procedure: ListingProcedure
  /** The epoch's id (several merged: joined by `+`). */
  epoch: string
  /** Name of the machine model that was used. */
  machine_model: string
  /** By event name. */
  period: Record<string, Period>
  /** The event that measures time here. */
  time_event: string
  /** Cycles between two time samples; `null` where the clock is unknown. */
  period_cycles: number | null
  /** What is known of the scale of executions. */
  scale: ListingScale
  /** By ascending address. */
  blocks: Array<ListingBlock>
  /** By ascending address. */
  instructions: Array<ListingInstruction>
  /** Text of the source lines named above as it was when it was built, by file and line. */
  source_lines: Record<string, Record<string, string>>
  /** What one must know to read it. */
  notes: Array<string>
}

/** See `Listing`. */
export interface ListingBlock {
  /** First byte. */
  address: number
  /** Executions over the sampling period, up to what the scale leaves open. */
  frequency: number | null
  /** Executions over the epoch; `null` unless the scale is absolute. */
  executions: number | null
  /** The 90 % interval of the same … */
  executions_min: number | null
  /** … `null` likewise. */
  executions_max: number | null
  /** Executions up to what the scale leaves open: only their ratios mean something. */
  executions_relative: number | null
  /** Executions for each entry of what the block lies in. */
  per_entry: PerEntry | null
  /** How far to trust them. */
  confidence: 'low' | 'medium' | 'high'
  /** Measured cycles per instruction; `null` unless the scale is absolute. */
  cpi: number | null
  /** The 90 % interval of the same; without an absolute scale, the least that is possible. */
  cpi_min: number
  /** `null`: nothing bounds it. */
  cpi_max: number | null
  /** The same without dynamic stalls. */
  best_case_cpi: number
  /** Where control goes next. */
  successors: Array<ListingSuccessor>
}

/** See `Listing`. */
export interface ListingImage {
  /** Path. */
  path: string
  /** Image id. */
  build_id: string
  /** `x86_64`, `aarch64`, `riscv64`. */
  arch: string
}

/** See `Listing`. */
export interface ListingInstruction {
  /** First byte. */
  address: number
  /** Mnemonic and operands. */
  text: string
  /** Source file of the innermost inlined call. */
  file: string | null
  /** Its line, from 1. */
  line: number | null
  /** By event name, where they landed; absent events have none. */
  samples: Record<string, number>
  /** Time samples during which it was at the head of the machine. */
  head_samples: number
  /** Executions over the epoch; `null` unless the scale is absolute. */
  executions: number | null
  /** As for blocks. */
  executions_min: number | null
  /** As for blocks. */
  executions_max: number | null
  /** As for blocks. */
  executions_relative: number | null
  /** Cycles at the head of the machine, per execution; `null` unless the scale is absolute. */
  cpi: number | null
  /** As for blocks. */
  cpi_min: number
  /** As for blocks. */
  cpi_max: number | null
  /** The least of them. */
  issue_cycles_min: number
  /** Cycles by which it was faster than the model's best case, unexplained; 0 where it was not. */
  gain_cycles: number
  /** How far to trust them. */
  confidence: 'low' | 'medium' | 'high'
  /** Why it took longer. */
  stalls: Array<ListingStall>
  /** Time in the kernel on its behalf: beside its own cycles, no part of `cpi`. */
  kernel: ListingKernel | null
  /** Registers that the text names and that it reads, with who wrote them. */
  operands: Array<ListingOperand>
}

/** See `ListingInstruction`. */
export interface ListingKernel {
  /** `page-fault`, or `system`: a call or an interrupt. */
  cause: string
  /** The cause's name for people. */
  label: string
  /** The cause's letter in the bubbles of a listing. */
  letter: string
  /** Time samples in the kernel. */
  samples: number
  /** Cycles per execution; `null` unless the scale is absolute. */
  cycles: number | null
}

/** See `ListingInstruction`. */
export interface ListingOperand {
  /** The register, as the text spells it. */
  text: string
  /** Addresses of the instructions that may have written it last, ascending. */
  writers: Array<number>
}

/** See `Listing`. */
export interface ListingProcedure {
  /** Linkage name. */
  name: string
  /** As the programmer wrote it. */
  demangled: string
  /** First byte. */
  address: number
  /** Size in bytes. */
  size: number
  /** Its samples by event. */
  samples: Record<string, number>
  /** Of all time samples of the epoch, 0 to 1. */
  share: number
}

/** What is known of the scale of a procedure's executions. */
export interface ListingScale {
  /**
   * `absolute`: executions are numbers; `program`: ratios between procedures of the program are known; `procedure`: ratios within
   * the procedure.
   */
  kind: 'absolute' | 'program' | 'procedure'
  /** What that rests on, in words. */
  evidence: Array<string>
}

/** See `ListingStall`. */
export interface ListingSource {
  /** Where the data may have come from. */
  level: 'l2' | 'last-level' | 'memory'
  /** The part of executions whose data must have come from there, were it the only one; `null` unless the scale is absolute. */
  part: number | null
}

/** See `ListingInstruction`. */
export interface ListingStall {
  /** Whether it follows from the instructions alone. */
  kind: 'static' | 'dynamic'
  /** `d-cache-miss`, `branch-mispredict`, … */
  cause: string
  /** The cause's name for people. */
  label: string
  /** The cause's letter in the bubbles of a listing. */
  letter: string
  /** Cycles per execution, at least … */
  cycles_min: number
  /**
   * … and at most. Of a dynamic stall, unless the scale is absolute, that is what it would be if `executions_relative` were
   * absolute: no bound.
   */
  cycles_max: number
  /** Of the instruction's time, at least … */
  share_min: number
  /** … and at most, 0 to 1. */
  share_max: number
  /** Address of the instruction to blame. */
  culprit_address: number | null
  /** Of a `d-cache-miss`: the levels that alone can explain it, nearest first; nearer ones cannot. */
  levels: Array<'L2' | 'LLC' | 'DRAM'>
  /** The same levels with what each would have to do. */
  sources: Array<ListingSource>
}

/** See `ListingBlock`. */
export interface ListingSuccessor {
  /** Address of the block. */
  to: number
  /** As for blocks. */
  frequency: number | null
  /** As for blocks. */
  executions: number | null
  /** As for blocks. */
  executions_relative: number | null
}

/** What `Dwell.open` needs. */
export interface OpenOptions {
  /** The profile database's folder. */
  database: string
  /** Folders with separate debug files, beside the system's. */
  debugDirs?: Array<string>
  /** Pairs of a folder of sources as the debug information spells it, and where it is here; the first that fits counts. */
  sourceMap?: Array<[string, string]>
}

/** Executions for each entry of what they lie in. */
export interface PerEntry {
  /** How many. */
  executions: number
  /** What is entered. */
  of: 'loop' | 'procedure'
}

/** A sampling period. */
export interface Period {
  /** Mean. */
  value: number
  /** Its unit. */
  unit: 'cycles' | 'ns' | 'events'
}

/** One procedure's change, for the line it begins at. */
export interface ProcedureChange {
  /** Linkage name. */
  procedure: string
  /** Line it begins at, from 1. */
  line: number
  /** How its samples changed. */
  change: DiffChange
  /** Cost apart from count. */
  factors: DiffFactors
}

/** One procedure's cost, for the line it begins at. */
export interface ProcedureCost {
  /** `IMAGE:NAME`, which names it to `listing`. */
  id: string
  /** As the programmer wrote it. */
  demangled: string
  /** Line it begins at, from 1. */
  line: number
  /** By event name. */
  samples: Record<string, number>
  /** Of the epoch's time samples, 0 to 1. */
  share: number
  /** Cycles; `null` where the clock is unknown. */
  cycles: number | null
  /** CPU time in seconds; `null`: not known. */
  seconds: number | null
  /** The kind of the scale of its executions. */
  scale: 'absolute' | 'program' | 'procedure'
  /** Cycles per instruction; `null` unless the scale is absolute. */
  cpi: number | null
  /** The 90 % interval of the same; without an absolute scale, the least that is possible. */
  cpiMin: number
  /** `null`: nothing bounds it. */
  cpiMax: number | null
  /** Cycles per instruction without dynamic stalls: the model's. */
  bestCaseCpi: number | null
}

/** A program that a file was compiled into. */
export interface Program {
  /** Where it lies. */
  path: string
  /** What lies there now was built since, and no sample is of it. */
  rebuilt: boolean
}

/** A line whose text is not what was sampled. */
export interface StaleLine {
  /** Of the file as it is now, from 1. */
  line: number
  /** What it had of the time samples before the edit, 0 to 1. */
  share: number
}

/** Procedures over several sets of samples (DCPI Figure 3). */
export interface Stats {
  /** What was counted. */
  event: string
  /** The sets in the order asked, those compared against last. */
  sets: Array<StatsSet>
  /** Samples of all sets. */
  total: number
  /** By range over sum, largest first; of compared groups the surest difference first. */
  rows: Array<StatsRow>
  /** Rows beyond the limit or below the least share. */
  omittedRows: number
  /** What one must know to read it. */
  notes: Array<string>
}

/** Two groups of sets compared. */
export interface StatsComparison {
  /** Average count per exposure of the first group … */
  mean: number
  /** … and of those it is compared against. */
  meanAgainst: number
  /** The first over the second. */
  ratio: number | null
  /** Variance over mean within the groups, at least 1. */
  dispersion: number | null
  /** How likely a difference as large is if there is none. */
  p: number
  /** The part of false calls among all rows as sure as this one. */
  falseDiscoveryRate: number
  /** Whether that is below one in twenty. */
  significant: boolean
}

/** What to take statistics of. */
export interface StatsRequest {
  /** Sets of samples, an epoch each. */
  epochs: Array<string>
  /** Sets that they are compared against. */
  against?: Array<string>
  /** As for `DiffRequest`. */
  normalize?: string
  /** Rows at most. */
  limit?: number
  /** Procedures with less of all samples (0 to 1) are left out. */
  shareMin?: number
  /** Only procedures of images whose path, file name or id contains this. */
  image?: string
}

/** One procedure over the sets. */
export interface StatsRow {
  /** Linkage name. */
  procedure: string
  /** As the programmer wrote it. */
  demangled: string
  /** The image's file name. */
  image: string
  /** Samples of each set, in their order. */
  samples: Array<number>
  /** Largest less smallest count, over the sum. */
  rangeShare: number
  /** Of all sets. */
  sum: number
  /** The sum over the samples of all procedures. */
  sumShare: number
  /** How many sets. */
  n: number
  /** Average count. */
  mean: number
  /** Standard deviation (n − 1). */
  stdDev: number
  /** Smallest count. */
  min: number
  /** Largest count. */
  max: number
  /** The groups compared, where there are two. */
  comparison: StatsComparison | null
}

/** One set of samples. */
export interface StatsSet {
  /** Its epoch's id. */
  epoch: string
  /** The name a user gave that. */
  name: string | null
  /** Whether it is of the group that the first one is compared against. */
  against: boolean
  /** Its samples. */
  samples: number
  /** What its counts are divided by in a comparison. */
  exposure: number
}

/**
 * Where the cycles go (DCPI Figure 4). Shares are parts of the tallied samples: those of `subtotalDynamic`, `subtotalStatic`,
 * `execution` and `netSamplingError` add up to 1.
 */
export interface Summary {
  /** Ids of the epochs that were merged. */
  epochs: Array<string>
  /** What it is of. */
  scope: SummaryScope
  /** Name of the machine model that was used. */
  machineModel: string
  /** The event that measures time here. */
  timeEvent: string
  /** Cycles between two time samples; `null` where the clock is unknown. */
  periodCycles: number | null
  /** Time samples of the scope … */
  samples: number
  /** … and of these, the tallied ones. */
  samplesTallied: number
  /** Tallied samples over all of the scope's, 0 to 1. */
  talliedShare: number
  /** Procedures that were analysed … */
  procedures: number
  /** … and those with samples that could not be or are too small to matter. */
  proceduresLeftOut: number
  /** Estimated cycles of the tallied samples. */
  cycles: number | null
  /** The least that is known of the scale of executions; `null` where nothing was tallied. */
  scale: 'absolute' | 'program' | 'procedure' | null | null
  /** Instructions executed; `null` unless the scale is absolute. */
  instructions: number | null
  /** Cycles per instruction; `null` unless the scale is absolute. */
  cpi: number | null
  /** The 90 % interval of the same; without an absolute scale, the least that is possible. */
  cpiMin: number | null
  /** `null`: nothing bounds it. */
  cpiMax: number | null
  /** The same without dynamic stalls. */
  bestCaseCpi: number | null
  /** Each dynamic cause, in the order of Figure 4; ranges of several causes overlap. */
  dynamic: Array<SummaryRange>
  /** Stalls for which every cause was ruled out. */
  unexplainedStall: number
  /** Cycles by which instructions were faster than the model's best case: never positive. */
  unexplainedGain: number
  /** All dynamic stalls, less the gain. */
  subtotalDynamic: number
  /** Each static cause. */
  staticCauses: Array<SummaryPart>
  /** Their sum. */
  subtotalStatic: number
  /** Both subtotals. */
  totalStall: number
  /** What instructions take that wait for nothing. */
  execution: number
  /** What is neither: samples that chance gave or took. */
  netSamplingError: number
  /** What one must know to read it. */
  notes: Array<string>
}

/** A cause that explains a part. */
export interface SummaryPart {
  /** `slotting`, `functional-unit`, `dependency-address`, … */
  cause: string
  /** The cause's name for people. */
  label: string
  /** The part. */
  share: number
}

/** A cause that may explain a part, as a range. */
export interface SummaryRange {
  /** As in `ListingStall`; `other` stands for the rare ones together. */
  cause: string
  /** The cause's name for people. */
  label: string
  /** At least … */
  shareMin: number
  /** … and at most. */
  shareMax: number
}

/** What to summarize. */
export interface SummaryRequest {
  /** Selectors of the epochs to merge. */
  epochs: Array<string>
  /** This procedure alone … */
  procedure?: string
  /** … or the images whose path, file name or id contains this; neither: everything. */
  image?: string
}

/** What a summary is of. */
export interface SummaryScope {
  /** `procedure`, `image` or `epoch`. */
  kind: string
  /** `IMAGE:NAME`, the images' paths, or the epochs' ids. */
  name: string
}

/** Where the time went. */
export interface Top {
  /** Ids of the epochs that were merged. */
  epochs: Array<string>
  /** Samples in all. */
  total: Record<string, number>
  /** Most costly first. */
  rows: Array<TopRow>
  /** Rows beyond the limit. */
  omittedRows: number
  /** What one must know to read it. */
  notes: Array<string>
}

/** What to rank. */
export interface TopRequest {
  /** Selectors of the epochs to merge: ids, names, `latest`, `latest~N`. */
  epochs: Array<string>
  /** One row for each of these; `procedure` unless said. */
  by?: 'procedure' | 'image' | 'line' | 'app'
  /** So many of the most costly rows are passed over. */
  offset?: number
  /** Rows at most, after those. */
  limit?: number
  /** By procedure: leave out CPI, file and line, which take long to compute. */
  bare?: boolean
  /** Only samples of images whose path, file name or id contains this. */
  image?: string
  /** By procedure: also where its cycles go. */
  split?: boolean
}

/** A row of `Top`; which keys are not `null` depends on what it is by. */
export interface TopRow {
  /** By procedure: what `listing` takes, unique among the procedures. */
  id: string | null
  /** By procedure: the linkage name, or `0x…` where there is no symbol. */
  procedure: string | null
  /** By procedure: as the programmer wrote it. */
  demangled: string | null
  /** By procedure and image: the image's path. */
  image: string | null
  /** By procedure and image: its id. */
  buildId: string | null
  /** By line and, where known, by procedure: the source file … */
  file: string | null
  /** … and its line, from 1. */
  line: number | null
  /** By application: its executable's name. */
  app: string | null
  /** By application: which execution of it. */
  instance: number | null
  /** By event. */
  samples: Record<string, number>
  /** Of the time samples, 0 to 1. */
  share: number
  /** This row's and all rows' before it. */
  cumulativeShare: number
  /** Estimated cycles; `null` where the clock is unknown. */
  cycles: number | null
  /** The kind of the scale of its executions, where it was analysed. */
  scale: 'absolute' | 'program' | 'procedure' | null | null
  /** Cycles per instruction; `null` unless the scale is absolute. */
  cpi: number | null
  /** The least that it can be at 90 % … */
  cpiMin: number | null
  /** … and the most; `null`: nothing bounds it. */
  cpiMax: number | null
  /** Where its cycles go, where that was asked for and is known. */
  split: CycleSplit | null
}
