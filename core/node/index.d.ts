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
  /** Where the time went, most costly first. */
  top(request: TopRequest, cancel?: Cancel | undefined | null): Promise<Top>
  /** A procedure's instructions with their costs; `procedure` is `NAME` or `IMAGE:NAME`. */
  listing(epochs: Array<string>, procedure: string, cancel?: Cancel | undefined | null): Promise<Listing>
  /** What the lines of the source file `path` cost. */
  fileCosts(epochs: Array<string>, path: string, cancel?: Cancel | undefined | null): Promise<FileCosts>
  /** Changes whenever the database does. */
  generation(): Promise<string>
  /** Calls `callback` within a second of each change of the database. A later call replaces the callback. */
  watch(callback: () => void): void
  /** Ends watching. */
  unwatch(): void
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
  /** What one must know to read it. */
  notes: Array<string>
}

/** One source line's cost, inlined copies included. */
export interface LineCost {
  /** From 1. */
  line: number
  /** By event name. */
  samples: Record<string, number>
  /** Of the epoch's time samples, 0 to 1. */
  share: number
  /** Estimated cycles over the epoch; `null` where the clock is unknown. */
  cycles: number | null
  /** Estimated executions of the line's most executed instruction. */
  executions: number | null
  /** Cycles per instruction. */
  cpi: number | null
  /** The same without dynamic stalls. */
  bestCaseCpi: number | null
  /** How far to trust them. */
  confidence: 'low' | 'medium' | 'high'
  /** Leading causes of lost cycles, most costly first. */
  culprits: Array<LineCulprit>
  /** `IMAGE:NAME` of the procedures the line's instructions lie in, most samples first. */
  procedures: Array<string>
}

/** Who is to blame for a line's lost cycles. */
export interface LineCulprit {
  /** Whether it follows from the instructions alone. */
  kind: 'static' | 'dynamic'
  /** As in `ListingStall`. */
  cause: string
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
  /** Executions over the sampling period. */
  frequency: number | null
  /** Executions over the epoch. */
  executions: number | null
  /** How far to trust them. */
  confidence: 'low' | 'medium' | 'high'
  /** Measured cycles per instruction. */
  cpi: number | null
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
  /** Executions over the epoch. */
  executions: number | null
  /** Cycles at the head of the machine, per execution. */
  cpi: number | null
  /** The least of them. */
  issue_cycles_min: number
  /** Cycles by which it was faster than the model's best case, unexplained; 0 where it was not. */
  gain_cycles: number
  /** How far to trust them. */
  confidence: 'low' | 'medium' | 'high'
  /** Why it took longer. */
  stalls: Array<ListingStall>
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

/** See `ListingInstruction`. */
export interface ListingStall {
  /** Whether it follows from the instructions alone. */
  kind: 'static' | 'dynamic'
  /** `d-cache-miss`, `branch-mispredict`, … */
  cause: string
  /** Cycles per execution, at least … */
  cycles_min: number
  /** … and at most. */
  cycles_max: number
  /** Address of the instruction to blame. */
  culprit_address: number | null
}

/** See `ListingBlock`. */
export interface ListingSuccessor {
  /** Address of the block. */
  to: number
  /** As for blocks. */
  frequency: number | null
  /** As for blocks. */
  executions: number | null
}

/** What `Dwell.open` needs. */
export interface OpenOptions {
  /** The profile database's folder. */
  database: string
  /** Folders with separate debug files, beside the system's. */
  debugDirs?: Array<string>
}

/** A sampling period. */
export interface Period {
  /** Mean. */
  value: number
  /** Its unit. */
  unit: 'cycles' | 'ns' | 'events'
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
  /** Estimated cycles. */
  cycles: number | null
  /** Cycles per instruction. */
  cpi: number | null
  /** The same without dynamic stalls. */
  bestCaseCpi: number | null
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
  /** Rows at most. */
  limit?: number
  /** Only samples of images whose path, file name or id contains this. */
  image?: string
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
  /** Cycles per instruction; `null` without an estimate. */
  cpi: number | null
}
