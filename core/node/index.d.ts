// Made by `npm run types -w @dwell/core` from core/node/src and core/query/src/answer.

/** Cancels the calls that it is passed to: their promises reject with the code `cancelled`. */
export declare class Cancel {
    /** Makes a token that cancels nothing yet. */
    constructor();
    /** Cancels all calls that have this token, now and later. */
    cancel(): void;
}
/** A profile database, open for questions. */
export declare class Dwell {
    /** Opens a database. Throws an error with a `code` if there is none that can be read. */
    static open(options: OpenOptions): Dwell;
    /** Lists the epochs of the database. */
    epochs(cancel?: Cancel | undefined | null): Promise<EpochList>;
    /** Returns the ids of the epochs that selectors name, oldest first. A selector that names no epoch is ignored. */
    selectedEpochs(selectors: Array<string>): Promise<string[]>;
    /** Ranks procedures, images, lines or applications by their samples, the most costly first. */
    top(request: TopRequest, cancel?: Cancel | undefined | null): Promise<Top>;
    /**
     * Returns the instructions of a procedure with their costs; `procedure` is `NAME` or `IMAGE:NAME`. Here and in other
     * answers, an address of kernel code is the negative number with the same 64 bits, because it exceeds 2^53.
     */
    listing(epochs: Array<string>, procedure: string, cancel?: Cancel | undefined | null): Promise<Listing>;
    /** Returns the costs of the lines of the source file `path`. */
    fileCosts(epochs: Array<string>, path: string, cancel?: Cancel | undefined | null): Promise<FileCosts>;
    /** Returns the instructions of one source line (from 1) of the file `path`. */
    lineDetail(epochs: Array<string>, path: string, line: number, cancel?: Cancel | undefined | null): Promise<LineDetail>;
    /** Compares two profiles. */
    diff(request: DiffRequest, cancel?: Cancel | undefined | null): Promise<Diff>;
    /** Compares two profiles in the source file `path`. */
    fileChanges(request: DiffRequest, path: string, cancel?: Cancel | undefined | null): Promise<FileChanges>;
    /** Returns where the cycles of a procedure, of an image or of everything go. */
    summary(request: SummaryRequest, cancel?: Cancel | undefined | null): Promise<Summary>;
    /** Returns who calls a function or what it calls, by the call stacks of its samples. */
    callers(request: CallersRequest, cancel?: Cancel | undefined | null): Promise<Callers>;
    /** Returns all call stacks as one tree of functions. */
    flame(request: FlameRequest, cancel?: Cancel | undefined | null): Promise<Flame>;
    /** Ranks functions by the samples in them and in what they call, by the call stacks of samples. */
    inclusive(epochs: Array<string>, limit: number, cancel?: Cancel | undefined | null): Promise<Inclusive>;
    /** Returns the `limit` call paths with the most samples, each with its innermost `depth` functions at most. */
    hottestPaths(epochs: Array<string>, limit: number, depth: number, cancel?: Cancel | undefined | null): Promise<HottestPaths>;
    /** Returns the functions of the source file `path` that are in call stacks, with their callers. */
    fileFunctions(epochs: Array<string>, path: string, cancel?: Cancel | undefined | null): Promise<FileFunctions>;
    /** Returns how much procedures vary over several epochs, and whether two groups of epochs differ. */
    stats(request: StatsRequest, cancel?: Cancel | undefined | null): Promise<Stats>;
    /**
     * Runs a query in SQL over all epochs (docs/sql.md) and returns its first rows. A value is a boolean, a number, a text or
     * null; an integer beyond 2^53, a list or a structure is a text.
     */
    sql(request: SqlRequest, cancel?: Cancel | undefined | null): Promise<{
        columns: Array<{
            name: string;
            type: string;
        }>;
        rows: Array<Array<boolean | number | string | null>>;
        more: boolean;
        notes: string[];
    }>;
    /** Gives an epoch a name and returns its id. */
    renameEpoch(epoch: string, name: string): Promise<string>;
    /** Removes epochs permanently and returns their ids. The caller has asked the user. */
    removeEpochs(epochs: Array<string>): Promise<string[]>;
    /** Returns a text that changes whenever the database changes. */
    generation(): Promise<string>;
    /** Calls `callback` within a second of each change of the database. A later call replaces the callback. */
    watch(callback: () => void): void;
    /** Stops calling the callback of `watch`. */
    unwatch(): void;
}
/** Request for who calls a function, or what it calls. */
export interface CallersRequest {
    /** Selectors of the epochs to merge. */
    epochs: Array<string>;
    /** The function: `NAME` or `IMAGE:NAME`. */
    function: string;
    /** What the function calls, instead of who calls it. */
    callees?: boolean;
    /** The way to the rows, from the function on; the rows are those that follow it. */
    through?: Array<CallStep>;
    /** Number of levels; 6 by default. */
    depth?: number;
    /** Least share of the function's samples, 0 to 1; rows with a smaller share are left out. 0.01 by default. */
    shareMin?: number;
}
/** One call on the way from a function to its callers or callees. */
export interface CallStep {
    /** Demangled name of the caller or callee. */
    function: string;
    /** File name of its binary. */
    image: string;
    /** Whether the call is inlined. */
    inlined: boolean;
}
/** Request for a comparison of two profiles. */
export interface DiffRequest {
    /** Selectors of the epochs before the change. */
    a: Array<string>;
    /** Selectors of the epochs after the change. */
    b: Array<string>;
    /** Limits the comparison to one procedure (`NAME` or `IMAGE:NAME`) and adds its instructions. */
    procedure?: string;
    /**
     * What both profiles are assumed to have in common: `run` (the default), `time`, `samples`, or the name of a procedure
     * that did the same work in both.
     */
    normalize?: string;
    /** Whether to include changes that may be chance. */
    all?: boolean;
    /** Largest number of procedures and of lines. */
    limit?: number;
}
/** Request for all call stacks as one tree. */
export interface FlameRequest {
    /** Selectors of the epochs to merge. */
    epochs: Array<string>;
    /** Events whose stacks are in the tree; none: the event of time. */
    events?: Array<string>;
    /** Number of the largest frames that are kept apart; 20,000 by default. */
    frames?: number;
    /** Whether to leave out the analysis of functions, which takes long to compute. */
    bare?: boolean;
}
/** Options of `Dwell.open`. */
export interface OpenOptions {
    /** Folder of the profile database, or `s3://BUCKET/PREFIX`. */
    database: string;
    /** Folders with separate debug files, in addition to those of the system. */
    debugDirs?: Array<string>;
    /**
     * Pairs of a folder of sources, as the debug information spells it, and its place on this machine. The first pair that
     * matches counts.
     */
    sourceMap?: Array<[
        string,
        string
    ]>;
}
/** Request for the rows of a query in SQL. */
export interface SqlRequest {
    /** The text of one query. */
    query: string;
    /** Largest number of rows to return; 1,000 by default. */
    limit?: number;
    /** Time that the query may take, in seconds; 60 by default. */
    seconds?: number;
    /** File of the program that asks. DuckDB's library is looked for beside it and in `node_modules` above it. */
    program: string;
}
/** Request for statistics over several sets of samples. */
export interface StatsRequest {
    /** Sets of samples: one epoch each. */
    epochs: Array<string>;
    /** Sets that those are compared against. */
    against?: Array<string>;
    /** What the sets are assumed to have in common, as in `DiffRequest`. */
    normalize?: string;
    /** Largest number of rows. */
    limit?: number;
    /** Least share of all samples, 0 to 1; procedures with a smaller share are left out. */
    shareMin?: number;
    /** Limits the rows to procedures of images whose path, file name or id contains this text. */
    image?: string;
}
/** Request for a summary of everything, or of a part. */
export interface SummaryRequest {
    /** Selectors of the epochs to merge. */
    epochs: Array<string>;
    /** Limits the summary to this procedure. */
    procedure?: string;
    /** Limits the summary to images whose path, file name or id contains this text. */
    image?: string;
    /** Limits the summary to the samples in this function (`NAME` or `BINARY:NAME`) and in what it calls, by their call stacks. */
    under?: string;
}
/** Request for a ranking. */
export interface TopRequest {
    /** Selectors of the epochs to merge: ids, names, `latest`, `latest~N`. */
    epochs: Array<string>;
    /** Dimension that the rows are grouped by; `procedure` by default. */
    by?: "procedure" | "image" | "line" | "app";
    /** Only samples of this application (the name of its executable). */
    app?: string;
    /** Number of the most costly rows to skip. */
    offset?: number;
    /** Largest number of rows to return after those. */
    limit?: number;
    /** By procedure: whether to leave out CPI, file and line, which take long to compute. */
    bare?: boolean;
    /** Limits the samples to images whose path, file name or id contains this text. */
    image?: string;
    /** By procedure: whether to include the parts of the cycles of each row. */
    split?: boolean;
}
/** Samples that were reached through the same functions. */
export type CallPath = {
    /** The functions, outermost first; the samples are in the last one. */
    frames: Array<PathFrame>;
    /** Whether outer frames were left out, so that stacks that differ in them are one path. */
    shortened: boolean;
    /** Number of samples. */
    samples: number;
    /** Share of `samples` of all samples that have a stack, 0 to 1. */
    share: number;
};
/** A line that calls. */
export type CallSite = {
    /** Source file. */
    file: string;
    /** Line, from 1. */
    line: number;
    /** Samples of the stacks through this call. */
    samples: number;
};
/** The callers of a function, or what it calls. */
export type Callers = {
    /** Version of this object's form. */
    schema: number;
    /** Ids of the epochs whose stacks were merged. */
    epochs: Array<string>;
    /** The event whose samples have stacks. */
    event: string;
    /** Demangled name of the function. */
    function: string;
    /** File name of its binary. */
    image: string;
    /** Where the source code of the function begins, if that is known. */
    begins: CodeLine | null;
    /** Samples whose stack contains the function. */
    samples: number;
    /** Samples in the function itself. */
    own: number;
    /** Number of samples that have a stack. */
    total: number;
    /** Callers (or callees), most samples first. Each sample is counted at one of them. */
    rows: Array<CallersRow>;
    /** How many samples have an incomplete stack. */
    incomplete: Array<IncompleteStacks>;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** A caller or callee. */
export type CallersRow = {
    /** Demangled name. */
    function: string;
    /** File name of the binary. */
    image: string;
    /** Whether the call was inlined. */
    inlined: boolean;
    /** Where the source code of the function begins, if that is known. */
    begins: CodeLine | null;
    /** Samples of the stacks through this row. */
    samples: number;
    /** Share of the samples of the function that was asked for, 0 to 1. */
    share: number;
    /** The lines of the calls, most samples first: in the caller, for callees in the function itself. */
    sites: Array<CallSite>;
    /** The callers of the caller, or the callees of the callee. */
    rows: Array<CallersRow>;
};
/** A line of source code. */
export type CodeLine = {
    /** Source file. */
    file: string;
    /** Line, from 1. */
    line: number;
};
/** How far to trust an estimate (DCPI §6.1.5). */
export type Confidence = "low" | "medium" | "high";
/** Shares of a procedure's cycles (DCPI Figure 4 in three numbers). They add up to 1, except for sampling error. */
export type CycleSplit = {
    /** Share of issuing instructions. */
    execution: number;
    /** Share of static stalls: those that follow from the instructions alone. */
    static: number;
    /** Share of dynamic stalls: cache misses, mispredicted branches, … */
    dynamic: number;
};
/** Two profiles compared. Wherever samples of B are compared with those of A, they are divided by `exposure`. */
export type Diff = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** The profile before the change. */
    a: DiffSide;
    /** The profile after the change. */
    b: DiffSide;
    /**
     * What both profiles are assumed to have in common: `run`, `time`, `samples`, or the name of a procedure that did the
     * same work in both.
     */
    normalized_by: string;
    /** Factor by which B would have more samples than A if nothing had changed. */
    exposure: number;
    /** The change of all samples together. */
    total: DiffChange;
    /** Procedures, the largest change first. If the comparison is limited to one procedure, only that procedure. */
    procedures: Array<DiffProcedure>;
    /** Source lines, the largest change first. */
    lines: Array<DiffLine>;
    /** Instructions, if the comparison is limited to one procedure: those of B in their order, with those of A in between. */
    instructions: Array<DiffInstruction>;
    /** Number of procedures whose change may be chance. They are left out of `procedures` unless the request includes all. */
    insignificant_procedures: number;
    /** Number of lines whose change may be chance, left out of `lines` likewise. */
    insignificant_lines: number;
    /** Number of rows left out because of the limit. */
    omitted_rows: number;
    /** Notes that a reader needs to interpret the answer: different machines, different events, … */
    notes: Array<string>;
};
/** How the number of samples changed, and whether the change is more than chance. */
export type DiffChange = {
    /** Samples in A. */
    samples_a: number;
    /** Samples in B, not divided by the exposure. */
    samples_b: number;
    /** Samples of B divided by the exposure, minus those of A: positive if B is slower. */
    change: number;
    /** The change divided by all samples of A. */
    change_share: number;
    /** Samples of B divided by the exposure, over those of A; `null` if A has none. */
    ratio: number | null;
    /** Probability that chance alone makes a change at least this large. */
    p: number;
    /** Expected share of false positives among all rows with a `p` at most as large as this row's. */
    false_discovery_rate: number;
    /** Whether `false_discovery_rate` is below 0.05. */
    significant: boolean;
};
/** The change split into two factors: samples = executions × cycles per execution. */
export type DiffFactors = {
    /** Instructions executed in A (for a row of one instruction: its executions); `null` unless the scale is absolute. */
    executions_a: number | null;
    /** Instructions executed in B; `null` unless the scale is absolute. */
    executions_b: number | null;
    /** Cycles per instruction in A; `null` unless the scale is absolute. */
    cpi_a: number | null;
    /** Cycles per instruction in B; `null` unless the scale is absolute. */
    cpi_b: number | null;
    /**
     * Executions of B divided by the exposure, over those of A: above 1 if the code ran more often. `null` unless the
     * scales of both sides are absolute.
     */
    count_ratio: number | null;
    /** CPI of B over that of A: above 1 if each execution took longer. `null` unless the scales of both sides are absolute. */
    cost_ratio: number | null;
    /** Whether the evidence separates count from cost: it is certain at 90 % which of the two changed more. */
    tells_apart: boolean;
};
/** An instruction that is in A, in B or in both. */
export type DiffInstruction = {
    /** Place of the instruction in A; `null` if it is not in A. */
    a: DiffPlace | null;
    /** Place of the instruction in B; `null` if it is not in B. */
    b: DiffPlace | null;
    /** `same`, `edited` (another operand or a similar instruction in the same place), `removed` or `added`. */
    kind: "same" | "edited" | "removed" | "added";
    /** Samples in A. */
    samples_a: number;
    /** Samples in B, not divided by the exposure. */
    samples_b: number;
    /** Samples of B divided by the exposure, minus those of A: positive if B is slower. */
    change: number;
    /** The change divided by all samples of A. */
    change_share: number;
    /** Samples of B divided by the exposure, over those of A; `null` if A has none. */
    ratio: number | null;
    /** Probability that chance alone makes a change at least this large. */
    p: number;
    /** Expected share of false positives among all rows with a `p` at most as large as this row's. */
    false_discovery_rate: number;
    /** Whether `false_discovery_rate` is below 0.05. */
    significant: boolean;
    /** Instructions executed in A (for a row of one instruction: its executions); `null` unless the scale is absolute. */
    executions_a: number | null;
    /** Instructions executed in B; `null` unless the scale is absolute. */
    executions_b: number | null;
    /** Cycles per instruction in A; `null` unless the scale is absolute. */
    cpi_a: number | null;
    /** Cycles per instruction in B; `null` unless the scale is absolute. */
    cpi_b: number | null;
    /**
     * Executions of B divided by the exposure, over those of A: above 1 if the code ran more often. `null` unless the
     * scales of both sides are absolute.
     */
    count_ratio: number | null;
    /** CPI of B over that of A: above 1 if each execution took longer. `null` unless the scales of both sides are absolute. */
    cost_ratio: number | null;
    /** Whether the evidence separates count from cost: it is certain at 90 % which of the two changed more. */
    tells_apart: boolean;
};
/** The change of one source line. */
export type DiffLine = {
    /** The source file, as the debug information of B spells it, or that of A if B does not have the file. */
    file: string;
    /** Line number in A, from 1; `null` if the line is not in A or was edited. */
    line_a: number | null;
    /** Line number in B, from 1; `null` if the line is not in B or was edited. */
    line_b: number | null;
    /** Samples in A. */
    samples_a: number;
    /** Samples in B, not divided by the exposure. */
    samples_b: number;
    /** Samples of B divided by the exposure, minus those of A: positive if B is slower. */
    change: number;
    /** The change divided by all samples of A. */
    change_share: number;
    /** Samples of B divided by the exposure, over those of A; `null` if A has none. */
    ratio: number | null;
    /** Probability that chance alone makes a change at least this large. */
    p: number;
    /** Expected share of false positives among all rows with a `p` at most as large as this row's. */
    false_discovery_rate: number;
    /** Whether `false_discovery_rate` is below 0.05. */
    significant: boolean;
    /** Instructions executed in A (for a row of one instruction: its executions); `null` unless the scale is absolute. */
    executions_a: number | null;
    /** Instructions executed in B; `null` unless the scale is absolute. */
    executions_b: number | null;
    /** Cycles per instruction in A; `null` unless the scale is absolute. */
    cpi_a: number | null;
    /** Cycles per instruction in B; `null` unless the scale is absolute. */
    cpi_b: number | null;
    /**
     * Executions of B divided by the exposure, over those of A: above 1 if the code ran more often. `null` unless the
     * scales of both sides are absolute.
     */
    count_ratio: number | null;
    /** CPI of B over that of A: above 1 if each execution took longer. `null` unless the scales of both sides are absolute. */
    cost_ratio: number | null;
    /** Whether the evidence separates count from cost: it is certain at 90 % which of the two changed more. */
    tells_apart: boolean;
};
/** Place and text of an instruction on one side. */
export type DiffPlace = {
    /** Address of the first byte. */
    address: number;
    /** Disassembled text: mnemonic and operands. */
    text: string;
    /** Source file, as the debug information spells it. */
    file: string | null;
    /** Line in that file, from 1. */
    line: number | null;
};
/**
 * The change of one procedure. Procedures with equal names, in images with equal file names, share one row, so that a
 * rebuilt program can be compared with its predecessor.
 */
export type DiffProcedure = {
    /** Linkage (mangled) name. */
    procedure: string;
    /** Demangled name, as the source code spells it. */
    demangled: string;
    /** File name of the image, without folders. */
    image: string;
    /** The lower of the two sides' confidences in executions and CPI: `low`, `medium` or `high`. */
    confidence: Confidence;
    /** Samples in A. */
    samples_a: number;
    /** Samples in B, not divided by the exposure. */
    samples_b: number;
    /** Samples of B divided by the exposure, minus those of A: positive if B is slower. */
    change: number;
    /** The change divided by all samples of A. */
    change_share: number;
    /** Samples of B divided by the exposure, over those of A; `null` if A has none. */
    ratio: number | null;
    /** Probability that chance alone makes a change at least this large. */
    p: number;
    /** Expected share of false positives among all rows with a `p` at most as large as this row's. */
    false_discovery_rate: number;
    /** Whether `false_discovery_rate` is below 0.05. */
    significant: boolean;
    /** Instructions executed in A (for a row of one instruction: its executions); `null` unless the scale is absolute. */
    executions_a: number | null;
    /** Instructions executed in B; `null` unless the scale is absolute. */
    executions_b: number | null;
    /** Cycles per instruction in A; `null` unless the scale is absolute. */
    cpi_a: number | null;
    /** Cycles per instruction in B; `null` unless the scale is absolute. */
    cpi_b: number | null;
    /**
     * Executions of B divided by the exposure, over those of A: above 1 if the code ran more often. `null` unless the
     * scales of both sides are absolute.
     */
    count_ratio: number | null;
    /** CPI of B over that of A: above 1 if each execution took longer. `null` unless the scales of both sides are absolute. */
    cost_ratio: number | null;
    /** Whether the evidence separates count from cost: it is certain at 90 % which of the two changed more. */
    tells_apart: boolean;
};
/** One of the two profiles. */
export type DiffSide = {
    /** Ids of the epochs of this side. */
    epochs: Array<string>;
    /** Marketing name of the processor. */
    cpu: string;
    /** Name of the machine model that was used. */
    machine_model: string;
    /** Name of the event that was sampled. */
    event: string;
    /** Number of samples of the event. */
    samples: number;
    /** Mean number of cycles between two samples; `null` if the clock rate is unknown. */
    period_cycles: number | null;
};
/** What executions per entry refer to. */
export type Entered = "loop" | "procedure";
/** List of the epochs of a database: the root object of `dwell epoch list --json`. */
export type EpochList = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** Epochs, the newest last. */
    epochs: Array<EpochSummary>;
    /** Files that were skipped, each with the reason. */
    warnings: Array<string>;
};
/** One epoch in an `EpochList`. */
export type EpochSummary = {
    /** Id of the epoch. */
    id: string;
    /** Name that a user gave the epoch. */
    name: string | null;
    /** Time when the epoch began, as RFC 3339 in UTC. */
    start: string;
    /** Time when the epoch ended, as RFC 3339 in UTC; `null` while it is being recorded. */
    end: string | null;
    /** Node name of the machine that recorded the epoch. */
    host: string;
    /** Marketing name of the processor. */
    cpu: string;
    /** Backend that took the samples: `perf`, `bpf`, `kmod` or `import`. */
    backend: string;
    /** What was sampled, as text: `system`, `pid 12`, `./a.out 3`, `import table.tsv`. */
    scope: string;
    /** Events of the epoch, by event name. */
    events: {
        [key in string]: EventSummary;
    };
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** Period and sample counts of one event. */
export type EventSummary = {
    /** Mean period, in units of `unit`. */
    period: number;
    /** Unit of the period: `cycles`, `ns` or `events`. */
    unit: "cycles" | "ns" | "events";
    /** Number of samples that were stored. */
    samples: number;
    /** Number of samples that were lost because there was no room for them. */
    lost: number;
    /** Number of times that the kernel throttled the event. */
    throttled: number;
    /** Number of `samples` whose image is unknown. */
    unknown: number;
    /**
     * Share of the requested time that the event was counted, if known. It is below 1 if several events shared a counter in
     * turns.
     */
    running_share?: number;
};
/** What changed in one source file between two profiles. */
export type FileChanges = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** The profile before the change. */
    a: DiffSide;
    /** The profile after the change. */
    b: DiffSide;
    /** Factor by which B would have more samples than A if nothing had changed. */
    exposure: number;
    /** Lines with samples on either side, ascending. Line numbers refer to the current file. */
    lines: Array<LineChange>;
    /** Procedures that begin in the file, by ascending line. */
    procedures: Array<ProcedureChange>;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** The costs of the lines and procedures of one source file. */
export type FileCosts = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** Ids of the epochs whose samples were merged. */
    epochs: Array<string>;
    /** Path of the file, as the request spells it. */
    file: string;
    /** How the current file relates to the file that was built. */
    source: SourceState;
    /** Lines with samples, ascending. Line numbers refer to the current file. */
    lines: Array<LineCost>;
    /** Procedures that begin in this file and have samples, by ascending line. */
    procedures: Array<ProcedureCost>;
    /** Lines that were edited since the program was built, ascending. */
    stale: Array<StaleLine>;
    /** Programs that the samples are from. */
    programs: Array<Program>;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** A function of a source file, with its callers. */
export type FileFunction = {
    /** Demangled name. */
    function: string;
    /** File name of the binary. */
    image: string;
    /** First line in the file as it is now, from 1; `null` if the line was edited, or if all calls of the function are inlined. */
    line: number | null;
    /** First and last line with samples or calls in call stacks, in the file as it is now, from 1. */
    lines: [
        number,
        number
    ] | null;
    /** Samples whose stack contains the function. */
    samples: number;
    /** Samples in the function itself. */
    own: number;
    /** Direct callers, most samples first. Their `rows` are empty. */
    rows: Array<CallersRow>;
};
/** The functions of a source file that are in call stacks, with their callers. */
export type FileFunctions = {
    /** Version of this object's form. */
    schema: number;
    /** Ids of the epochs whose stacks were merged. */
    epochs: Array<string>;
    /** The event whose samples have stacks. */
    event: string;
    /** Number of samples that have a stack. */
    samples: number;
    /** The functions, by their first line. */
    functions: Array<FileFunction>;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** The call stacks of some epochs as a tree of functions. */
export type Flame = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** Ids of the epochs whose stacks were merged. */
    epochs: Array<string>;
    /** Events whose samples are in the tree. */
    events: Array<FlameEvent>;
    /** Unit of `total` and `own`: `samples`; with several events, the unit that their periods have in common (`ns`, `cycles`). */
    unit: string;
    /** Sum over all stacks, in `unit`. */
    total: number;
    /** Functions and what else frames stand for, each once. */
    functions: Array<FlameFunction>;
    /** Frames. A caller precedes what it calls; frames with one caller are ordered by `total`, the largest first. */
    nodes: Array<FlameNode>;
    /** Number of frames that share a node with others, because the answer would be too large. */
    merged: number;
    /** Share of `total` in functions whose causes were analysed, 0 to 1. */
    analysed_share: number;
    /** How many samples have an incomplete stack. */
    incomplete: Array<IncompleteStacks>;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** What the analysis knows of the instructions of a function, inlined copies included, calls not. */
export type FlameAnalysis = {
    /** Time samples of instructions with a known frequency, with and without a stack. All shares are relative to these. */
    samples: number;
    /** Kind of the scale of the executions: the weakest one of the copies. */
    scale: ScaleKind | null;
    /** Cycles per instruction; `null` unless the scale is absolute. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible. */
    cpi_min: number | null;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** Share of time that instructions take when they wait for nothing; `null` unless the scale is absolute. */
    execution: number | null;
    /** Least possible share of execution. */
    execution_min: number;
    /** Largest possible share of execution. */
    execution_max: number;
    /** What takes the other time, the largest possible share first. The ranges of several causes overlap. */
    causes: Array<FlameCause>;
};
/** A cause of the stalls of a function. */
export type FlameCause = {
    /** Whether the code itself causes the stalls (`static`) or the execution does (`dynamic`). */
    kind: StallKind;
    /** Cause in kebab-case, as in a summary; `unexplained` if every cause was ruled out. */
    cause: string;
    /** Name of the cause for users, such as `D-cache miss`. */
    label: string;
    /** Least share that the cause explains. */
    share_min: number;
    /** Largest share that the cause may explain. */
    share_max: number;
};
/** An event of a `Flame`. */
export type FlameEvent = {
    /** Name of the event. */
    name: string;
    /** Mean period, in `unit`. */
    period: number;
    /** Unit of the period: `cycles`, `ns` or `events`. */
    unit: "cycles" | "ns" | "events";
    /** Number of samples that have a stack. */
    samples: number;
    /** Number of all samples. */
    all_samples: number;
};
/** A function of a `Flame`. */
export type FlameFunction = {
    /** What the name stands for. */
    kind: FlameKind;
    /** Demangled name, as the source code spells it. */
    name: string;
    /** File name of the binary; empty unless this is a function. */
    image: string;
    /** Unique name of the procedure, as other answers have it; `null` if it has no samples of its own or is inlined only. */
    id: string | null;
    /** Whether the code is the kernel's. */
    kernel: boolean;
    /** Source file of the function, where it is known. */
    file: string | null;
    /** Line that the function begins at, from 1. */
    line: number | null;
    /** Sum over the stacks that contain the function; a recursive function counts once. */
    total: number;
    /** Sum over the stacks whose innermost frame is the function. */
    own: number;
    /** What the analysis knows of the function itself; `null` if it was not analysed. */
    analysis: FlameAnalysis | null;
};
/** What a frame of a `Flame` stands for. */
export type FlameKind = "function" | "application" | "event" | "incomplete";
/** A frame of a `Flame`. */
export type FlameNode = {
    /** Index of the caller's node; `null` if this is an outermost frame. */
    parent: number | null;
    /** Index of the function; `null` if the node stands for several small frames of its caller, with all that they call. */
    function: number | null;
    /** Whether the function was inlined into its caller. */
    inlined: boolean;
    /** Sum over the stacks through this frame. */
    total: number;
    /** Sum over the stacks that end here. */
    own: number;
    /** Number of frames that the node stands for if it has no function; otherwise 0. */
    merged: number;
};
/** The call paths with the most samples. */
export type HottestPaths = {
    /** Version of this object's form. */
    schema: number;
    /** Ids of the epochs whose stacks were merged. */
    epochs: Array<string>;
    /** The event whose samples have stacks. */
    event: string;
    /** Number of samples that have a stack. */
    samples: number;
    /** The paths, most samples first. Each sample is counted at one path. */
    paths: Array<CallPath>;
    /** Number of paths that are not in `paths`. */
    others: number;
    /** Number of samples of those. */
    others_samples: number;
    /** How many samples have an incomplete stack. */
    incomplete: Array<IncompleteStacks>;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** Functions by the samples in them and in what they call. */
export type Inclusive = {
    /** Version of this object's form. */
    schema: number;
    /** Ids of the epochs whose stacks were merged. */
    epochs: Array<string>;
    /** The event whose samples have stacks. */
    event: string;
    /** Number of samples that have a stack. */
    samples: number;
    /** Number of all samples of the event. */
    all_samples: number;
    /** How many samples have an incomplete stack. */
    incomplete: Array<IncompleteStacks>;
    /** The functions, most samples first. */
    rows: Array<InclusiveRow>;
    /** Number of functions that are not in `rows`. */
    others: number;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** A function, with the samples in it and in what it calls. */
export type InclusiveRow = {
    /** Demangled name. */
    function: string;
    /** File name of the binary. */
    image: string;
    /** Samples whose stack contains the function; a recursive function counts once. */
    samples: number;
    /** Share of `samples` of all samples that have a stack, 0 to 1. */
    share: number;
    /** Samples in the function itself. */
    own: number;
};
/** Samples whose stack is incomplete for one cause. */
export type IncompleteStacks = {
    /** Why the next frame is not known, as `FORMAT.md` of the database spells it. */
    cause: string;
    /** File name of the binary where the stacks end. */
    image: string;
    /** Number of samples. */
    samples: number;
};
/** Levels of the memory beyond the first-level cache. */
export type Level = "l2" | "last-level" | "memory";
/** A call that was inlined. */
export type LineCaller = {
    /** Name of the calling function, as the source code spells it. */
    function: string | null;
    /** Source file of the call. */
    file: string | null;
    /** Line of the call in the file as it was built, from 1. */
    line: number | null;
};
/** The change of one line. */
export type LineChange = {
    /** Line number, from 1. */
    line: number;
    /** Samples in A. */
    samples_a: number;
    /** Samples in B, not divided by the exposure. */
    samples_b: number;
    /** Samples of B divided by the exposure, minus those of A: positive if B is slower. */
    change: number;
    /** The change divided by all samples of A. */
    change_share: number;
    /** Samples of B divided by the exposure, over those of A; `null` if A has none. */
    ratio: number | null;
    /** Probability that chance alone makes a change at least this large. */
    p: number;
    /** Expected share of false positives among all rows with a `p` at most as large as this row's. */
    false_discovery_rate: number;
    /** Whether `false_discovery_rate` is below 0.05. */
    significant: boolean;
    /** Instructions executed in A (for a row of one instruction: its executions); `null` unless the scale is absolute. */
    executions_a: number | null;
    /** Instructions executed in B; `null` unless the scale is absolute. */
    executions_b: number | null;
    /** Cycles per instruction in A; `null` unless the scale is absolute. */
    cpi_a: number | null;
    /** Cycles per instruction in B; `null` unless the scale is absolute. */
    cpi_b: number | null;
    /**
     * Executions of B divided by the exposure, over those of A: above 1 if the code ran more often. `null` unless the
     * scales of both sides are absolute.
     */
    count_ratio: number | null;
    /** CPI of B over that of A: above 1 if each execution took longer. `null` unless the scales of both sides are absolute. */
    cost_ratio: number | null;
    /** Whether the evidence separates count from cost: it is certain at 90 % which of the two changed more. */
    tells_apart: boolean;
};
/**
 * The cost of one source line, including inlined copies. Cycles and shares are computed from the time that the line's
 * instructions spent at the head of the queue; `samples` are counted at the instruction that the interrupt reported.
 */
export type LineCost = {
    /** Line number, from 1. */
    line: number;
    /** Sample counts by event name. */
    samples: {
        [key in string]: number;
    };
    /** Share of the epoch's time samples, 0 to 1. */
    share: number;
    /** Cycles in the epoch; `null` if the clock rate is unknown. */
    cycles: number | null;
    /** CPU time in the epoch in seconds; `null` if it is unknown. */
    seconds: number | null;
    /** Kind of the scale of the executions, as in `ListingScale`: the weakest one of the line's instructions. */
    scale: ScaleKind;
    /** Executions of the line's most executed instruction; `null` unless the scale is absolute. */
    executions: number | null;
    /** Lower end of the 90 % interval of `executions`; `null` unless the scale is absolute. */
    executions_min: number | null;
    /** Upper end of the 90 % interval of `executions`; `null` unless the scale is absolute. */
    executions_max: number | null;
    /** Executions of the most executed instruction per entry of the loop or procedure that contains it. */
    per_entry: ListingPerEntry | null;
    /** Measured cycles per instruction; `null` unless the scale is absolute. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible. */
    cpi_min: number;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** Cycles per instruction without dynamic stalls, by the machine model. */
    best_case_cpi: number | null;
    /** The lowest confidence among the instructions that matter: `low`, `medium` or `high`. */
    confidence: Confidence;
    /** Main causes of lost cycles, most costly first. */
    culprits: Array<LineCulprit>;
    /** The same causes, grouped so that causes that cannot be told apart are together; most costly first. */
    ties: Array<LineTie>;
    /** `IMAGE:NAME` of the procedures that contain the line's instructions, most samples first. */
    procedures: Array<string>;
};
/** A cause of a line's lost cycles, with the place of the instruction to blame. */
export type LineCulprit = {
    /** Whether the code itself causes the stall (`static`) or the execution does (`dynamic`). */
    kind: StallKind;
    /** Cause in kebab-case, as in `ListingStall`. */
    cause: string;
    /** Name of the cause for users, such as `D-cache miss`. */
    label: string;
    /** Least number of cycles in the epoch that the cause takes. */
    cycles_min: number | null;
    /** Largest number of cycles in the epoch that the cause may take. */
    cycles_max: number | null;
    /** Largest share of the line's cycles that the cause may explain, 0 to 1. */
    share_max: number;
    /** Source file of the instruction to blame. */
    file: string | null;
    /** Line of the instruction to blame, from 1. */
    line: number | null;
};
/** Instructions of one source line, grouped by the places that the line was compiled into. */
export type LineDetail = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** Ids of the epochs whose samples were merged. */
    epochs: Array<string>;
    /** Line number in the current file, from 1. */
    line: number;
    /** Places that the line was compiled into, most samples first. */
    places: Array<LinePlace>;
    /** Number of places that were left out of `places`. */
    omitted_places: number;
};
/** One instruction of the line. */
export type LineInstruction = {
    /** Address of the first byte. */
    address: number;
    /** Disassembled text: mnemonic and operands. */
    text: string;
    /** Time samples during which the instruction was at the head of the queue. */
    head_samples: number;
    /** Estimated executions in the epoch; `null` unless the scale is absolute. */
    executions: number | null;
    /** Executions up to an unknown factor: only ratios between them are meaningful. */
    executions_relative: number | null;
    /** Cycles at the head of the queue per execution; `null` unless the scale is absolute. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible. */
    cpi_min: number;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** How far the estimate can be trusted: `low`, `medium` or `high`. */
    confidence: Confidence;
    /** Stalls: reasons why the instruction took longer than its best case, static ones first. */
    stalls: Array<LineStall>;
};
/** A procedure that the line was compiled into through one particular chain of inlined calls. */
export type LinePlace = {
    /** `IMAGE:NAME` of the procedure, as `annotate` accepts it. */
    procedure: string;
    /** Demangled name, as the source code spells it. */
    demangled: string;
    /** Inlined calls that lead to the line, innermost first; empty if the line is the procedure's own. */
    callers: Array<LineCaller>;
    /** Share of the epoch's time samples, 0 to 1. */
    share: number;
    /** Kind of the scale of the executions, as in `ListingScale`. */
    scale: ScaleKind;
    /** Measured cycles per instruction; `null` unless the scale is absolute. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible. */
    cpi_min: number;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** Instructions of the line in this place, by ascending address. */
    instructions: Array<LineInstruction>;
    /** Number of instructions that were left out of `instructions`: the ones with the least cost. */
    omitted_instructions: number;
};
/** Stall of a `LineInstruction`. */
export type LineStall = {
    /** Whether the code itself causes the stall (`static`) or the execution does (`dynamic`). */
    kind: StallKind;
    /** Cause in kebab-case, as in `ListingStall`. */
    cause: string;
    /** Name of the cause for users, such as `D-cache miss`. */
    label: string;
    /** Least number of cycles per execution that the stall takes. */
    cycles_min: number;
    /** Largest number of cycles per execution that the stall may take; `null` for a dynamic stall without an absolute scale. */
    cycles_max: number | null;
    /** Least share of the instruction's time that the stall takes, 0 to 1. */
    share_min: number;
    /** Largest share of the instruction's time that the stall may take, 0 to 1. */
    share_max: number;
    /** For a `d-cache-miss`: levels that can explain the stall alone, as in `ListingStall`. */
    levels: Array<string>;
    /** The same levels with the share of accesses, as in `ListingStall`. */
    sources: Array<ListingSource>;
    /** Address of the instruction to blame. */
    culprit_address: number | null;
    /** Disassembled text of the instruction to blame. */
    culprit_text: string | null;
    /** Source file of the instruction to blame. */
    file: string | null;
    /** Line of the instruction to blame, from 1. It refers to the current text of the file that the request names. */
    line: number | null;
};
/** Causes that may explain the same lost cycles of a line and that no evidence separates. */
export type LineTie = {
    /** What the line waits for, as text: `waits for memory (D-cache or DTLB miss)`. */
    text: string;
    /** Indices of the causes in the line's `culprits`, the most likely first. */
    culprits: Array<number>;
    /** Largest share of the line's time that the causes together may explain, 0 to 1. */
    share_max: number;
    /** Least number of cycles in the epoch that the causes together take. */
    cycles_min: number | null;
    /** Largest number of cycles in the epoch that the causes together may take. */
    cycles_max: number | null;
};
/** One procedure with the samples, costs and stalls of each instruction: the root object of `dwell annotate --json`. */
export type Listing = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** Image that contains the procedure. */
    image: ListingImage;
    /** The procedure itself, with its samples. */
    procedure: ListingProcedure;
    /** Id of the epoch; the ids of several merged epochs are joined by `+`. */
    epoch: string;
    /** Name of the machine model that was used. */
    machine_model: string;
    /** Sampling period of each event, by event name. */
    period: {
        [key in string]: Period;
    };
    /** The event that measures time here (`cycles` or `cpu-clock`). */
    time_event: string;
    /** Mean number of cycles between two time samples; `null` if the clock rate is unknown. */
    period_cycles: number | null;
    /** Mean CPU time in seconds between two time samples; `null` if it is unknown. */
    period_seconds: number | null;
    /** Scale of the executions: whether they are absolute numbers or ratios only. */
    scale: ListingScale;
    /** Basic blocks, by ascending address. */
    blocks: Array<ListingBlock>;
    /** Instructions, by ascending address. */
    instructions: Array<ListingInstruction>;
    /**
     * Text of the source lines that instructions refer to, by file and line, as it was when the samples were taken. A file
     * that is missing, or has changed without a snapshot, is absent.
     */
    source_lines: {
        [key in string]: {
            [key in number]: string;
        };
    };
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** Basic block of a `Listing`. */
export type ListingBlock = {
    /** Image address of the first byte. */
    address: number;
    /** Executions divided by the sampling period; without an absolute scale, up to an unknown factor. */
    frequency: number | null;
    /** Estimated executions in the epoch; `null` unless the scale is absolute. */
    executions: number | null;
    /** Lower end of the 90 % interval of `executions`; `null` unless the scale is absolute. */
    executions_min: number | null;
    /** Upper end of the 90 % interval of `executions`; `null` unless the scale is absolute. */
    executions_max: number | null;
    /** Executions up to an unknown factor: only ratios between them are meaningful. */
    executions_relative: number | null;
    /** Executions per entry of the loop or procedure that contains the block. */
    per_entry: ListingPerEntry | null;
    /** How far the estimate can be trusted: `low`, `medium` or `high`. */
    confidence: Confidence;
    /** Measured cycles per instruction; `null` unless the scale is absolute. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible. */
    cpi_min: number;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** Cycles per instruction without dynamic stalls, by the machine model. */
    best_case_cpi: number;
    /** Blocks that control may go to next. */
    successors: Array<ListingSuccessor>;
};
/** Image that contains the procedure of a `Listing`. */
export type ListingImage = {
    /** Path of the image's file. */
    path: string;
    /** Id of the image (its build ID in hex, `kernel`, …). */
    build_id: string;
    /** Instruction set: `x86_64`, `aarch64` or `riscv64`. */
    arch: string;
};
/** Instruction of a `Listing`. */
export type ListingInstruction = {
    /**
     * Image address of the first byte. It is an offset in the file if the image is not at hand, and 0 if the profile gave
     * no address.
     */
    address: number;
    /** Disassembled text: mnemonic and operands; empty if the image is not at hand. */
    text: string;
    /** Source file of the innermost inlined call, as the debug information spells it. */
    file: string | null;
    /** Line in that file, from 1. */
    line: number | null;
    /** Samples by event name, counted at the instruction that the interrupt reported; events without samples are absent. */
    samples: {
        [key in string]: number;
    };
    /**
     * Time samples during which the instruction was at the head of the queue. They differ from `samples` on an out-of-order
     * processor, where a sample lands on a later instruction than the one that was waited for. CPI and stalls are computed
     * from these.
     */
    head_samples: number;
    /** Estimated executions in the epoch; `null` unless the scale is absolute. */
    executions: number | null;
    /** Lower end of the 90 % interval of `executions`; `null` unless the scale is absolute. */
    executions_min: number | null;
    /** Upper end of the 90 % interval of `executions`; `null` unless the scale is absolute. */
    executions_max: number | null;
    /** Executions up to an unknown factor: only ratios between them are meaningful. */
    executions_relative: number | null;
    /** Cycles at the head of the queue per execution; `null` unless the scale is absolute. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible. */
    cpi_min: number;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** Least number of cycles at the head of the queue per execution, by the machine model (DCPI's M). */
    issue_cycles_min: number;
    /**
     * Unexplained gain: cycles per execution by which the instruction was faster than the model's best case; 0 if it was
     * not.
     */
    gain_cycles: number;
    /** How far the estimate can be trusted: `low`, `medium` or `high`. */
    confidence: Confidence;
    /** Stalls: reasons why the instruction took longer than its best case. */
    stalls: Array<ListingStall>;
    /**
     * Time spent in the kernel on behalf of the instruction. It is in addition to the instruction's own cycles and not part
     * of `cpi`.
     */
    kernel: ListingKernel | null;
    /** Registers that the text names and the instruction reads, each with the instructions that may have written it. */
    operands: Array<ListingOperand>;
};
/** Time in the kernel on behalf of a `ListingInstruction`. */
export type ListingKernel = {
    /** Reason for entering the kernel: `page-fault`, or `system` for a system call or an interrupt. */
    cause: string;
    /** Name of the cause for users, such as `D-cache miss`. */
    label: string;
    /** Letter of the cause in the bubbles of a listing. */
    letter: string;
    /** Number of time samples in the kernel. */
    samples: number;
    /** Cycles in the kernel per execution; `null` unless the scale is absolute. */
    cycles: number | null;
};
/** Register that a `ListingInstruction` reads. */
export type ListingOperand = {
    /** The register, as the instruction's text spells it. */
    text: string;
    /** Addresses of the instructions that may have written the register last, ascending. */
    writers: Array<number>;
};
/** Executions per entry of the enclosing loop or procedure. This ratio is known even when the scale of executions is not. */
export type ListingPerEntry = {
    /** Executions per entry. */
    executions: number;
    /** What is entered: `loop` (the innermost enclosing loop) or `procedure`. */
    of: Entered;
};
/** Procedure that a `Listing` shows. */
export type ListingProcedure = {
    /** Linkage (mangled) name. */
    name: string;
    /** Demangled name, as the source code spells it. */
    demangled: string;
    /** Image address of the first byte. */
    address: number;
    /** Size in bytes. */
    size: number;
    /** Samples of the procedure by event name. */
    samples: {
        [key in string]: number;
    };
    /** Share of all time samples of the epoch, 0 to 1. */
    share: number;
};
/** What is known of the scale of a procedure's executions. */
export type ListingScale = {
    /**
     * How far executions can be compared. `absolute`: executions are numbers. `program`: only ratios are known, within the
     * procedure and to other procedures of the program whose scale is `program` or `absolute`. `procedure`: only ratios
     * within the procedure are known.
     */
    kind: ScaleKind;
    /** Observations that the scale is based on, as text. */
    evidence: Array<string>;
};
/** Level of the memory hierarchy that may explain a `ListingStall`. */
export type ListingSource = {
    /** Level in kebab-case: `l2`, `last-level` or `memory`. */
    level: Level;
    /**
     * Share of executions whose data must have come from this level if it were the only cause; `null` unless the scale is
     * absolute.
     */
    part: number | null;
};
/** Stall of a `ListingInstruction`. */
export type ListingStall = {
    /** Whether the code itself causes the stall (`static`) or the execution does (`dynamic`). */
    kind: StallKind;
    /** Cause in kebab-case: `d-cache-miss`, `branch-mispredict`, … */
    cause: string;
    /** Name of the cause for users, such as `D-cache miss`. */
    label: string;
    /** Letter of the cause in the bubbles of a listing. */
    letter: string;
    /** Least number of cycles per execution that the stall takes. */
    cycles_min: number;
    /**
     * Largest number of cycles per execution that the stall may take. For a dynamic stall without an absolute scale this is
     * no bound: it is the value that would hold if `executions_relative` were absolute.
     */
    cycles_max: number;
    /** Least share of the instruction's time that the stall takes, 0 to 1. */
    share_min: number;
    /** Largest share of the instruction's time that the stall may take, 0 to 1. */
    share_max: number;
    /** Address of the instruction to blame. */
    culprit_address: number | null;
    /**
     * For a `d-cache-miss`: the levels that can explain the stall alone, nearest first: `L2`, `LLC`, `DRAM`. Nearer levels
     * cannot explain it.
     */
    levels: Array<string>;
    /** The same levels, each with the share of accesses that would explain the stall. */
    sources: Array<ListingSource>;
};
/** Edge from a `ListingBlock` to one of its successors. */
export type ListingSuccessor = {
    /** Address of the block that the edge leads to. */
    to: number;
    /** Executions of the edge divided by the sampling period, as for blocks. */
    frequency: number | null;
    /** Executions of the edge; `null` unless the scale is absolute. */
    executions: number | null;
    /** Executions of the edge up to an unknown factor, as for blocks. */
    executions_relative: number | null;
};
/** A function in a call path. */
export type PathFrame = {
    /** Demangled name. */
    function: string;
    /** File name of the binary. */
    image: string;
    /** Whether the function was inlined into its caller. */
    inlined: boolean;
    /** Whether the function calls itself directly here. Calls by itself are one frame. */
    recursive: boolean;
    /** Source line with the most samples: of the call, or of the samples in the last frame. */
    site: CodeLine | null;
};
/** A sampling period. */
export type Period = {
    /** Mean period, in units of `unit`. */
    value: number;
    /** Unit of the period: `cycles`, `ns` or `events`. */
    unit: "cycles" | "ns" | "events";
};
/** The change of one procedure, for an editor to show at the line that the procedure begins at. */
export type ProcedureChange = {
    /** Linkage (mangled) name. */
    procedure: string;
    /** Line that the procedure begins at, from 1. */
    line: number;
    /** Samples in A. */
    samples_a: number;
    /** Samples in B, not divided by the exposure. */
    samples_b: number;
    /** Samples of B divided by the exposure, minus those of A: positive if B is slower. */
    change: number;
    /** The change divided by all samples of A. */
    change_share: number;
    /** Samples of B divided by the exposure, over those of A; `null` if A has none. */
    ratio: number | null;
    /** Probability that chance alone makes a change at least this large. */
    p: number;
    /** Expected share of false positives among all rows with a `p` at most as large as this row's. */
    false_discovery_rate: number;
    /** Whether `false_discovery_rate` is below 0.05. */
    significant: boolean;
    /** Instructions executed in A (for a row of one instruction: its executions); `null` unless the scale is absolute. */
    executions_a: number | null;
    /** Instructions executed in B; `null` unless the scale is absolute. */
    executions_b: number | null;
    /** Cycles per instruction in A; `null` unless the scale is absolute. */
    cpi_a: number | null;
    /** Cycles per instruction in B; `null` unless the scale is absolute. */
    cpi_b: number | null;
    /**
     * Executions of B divided by the exposure, over those of A: above 1 if the code ran more often. `null` unless the
     * scales of both sides are absolute.
     */
    count_ratio: number | null;
    /** CPI of B over that of A: above 1 if each execution took longer. `null` unless the scales of both sides are absolute. */
    cost_ratio: number | null;
    /** Whether the evidence separates count from cost: it is certain at 90 % which of the two changed more. */
    tells_apart: boolean;
};
/** The cost of one procedure, for an editor to show at the line that the procedure begins at. */
export type ProcedureCost = {
    /** `IMAGE:NAME` of the procedure, as `annotate` accepts it. */
    id: string;
    /** Demangled name, as the source code spells it. */
    demangled: string;
    /** Line that the procedure begins at, from 1. */
    line: number;
    /** Sample counts by event name. */
    samples: {
        [key in string]: number;
    };
    /** Share of the epoch's time samples, 0 to 1. */
    share: number;
    /** Cycles in the epoch; `null` if the clock rate is unknown. */
    cycles: number | null;
    /** CPU time in seconds; `null` if it is unknown. */
    seconds: number | null;
    /** Kind of the scale of the executions, as in `ListingScale`. */
    scale: ScaleKind;
    /** Measured cycles per instruction; `null` unless the scale is absolute. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible. */
    cpi_min: number;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** Cycles per instruction without dynamic stalls, by the machine model. */
    best_case_cpi: number | null;
};
/** A program that a file was compiled into. */
export type Program = {
    /** Path of the program. */
    path: string;
    /** Whether the program was rebuilt after it was sampled, so that no sample is from the file that is at `path` now. */
    rebuilt: boolean;
};
/** Which frequencies can be compared with each other. */
export type ScaleKind = "procedure" | "program" | "absolute";
/** Whether line numbers in the current file can be trusted. */
export type SourceState = "fresh" | "mapped" | "stale" | "unchecked";
/** A line that was edited after the program was built, so that its current text is not what was sampled. */
export type StaleLine = {
    /** Line number in the current file, from 1. */
    line: number;
    /** Share of the time samples that the line had before the edit, 0 to 1. */
    share: number;
};
/** Whether a stall follows from the instructions alone. */
export type StallKind = "static" | "dynamic";
/** How the samples of procedures vary over several sets of samples. */
export type Stats = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** Name of the event that was sampled (`cycles`, `cpu-clock`, …). */
    event: string;
    /** The sets, in the order of the request; the sets that are compared against come last. */
    sets: Array<StatsSet>;
    /** Number of samples of all sets together. */
    total: number;
    /** Rows, the largest `range_share` first. If two groups are compared, the most certain difference is first. */
    rows: Array<StatsRow>;
    /** Number of rows left out because of the limit or because their share is too small. */
    omitted_rows: number;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** Two groups of sets compared. */
export type StatsComparison = {
    /** Mean count per exposure of the first group. */
    mean: number;
    /** Mean count per exposure of the second group, which the first one is compared against. */
    mean_against: number;
    /** Mean of the first group over that of the second; `null` if the second has no samples. */
    ratio: number | null;
    /** Variance over mean within the groups, at least 1; `null` if there is one set on each side. */
    dispersion: number | null;
    /** Probability that chance alone makes a difference at least this large. */
    p: number;
    /** Expected share of false positives among all rows with a `p` at most as large as this row's. */
    false_discovery_rate: number;
    /** Whether `false_discovery_rate` is below 0.05. */
    significant: boolean;
};
/** One procedure over all sets. A set without samples of the procedure counts as zero. */
export type StatsRow = {
    /**
     * Linkage name. Procedures with equal names, in images with equal file names, share one row, so that a rebuilt program
     * can be compared with its predecessor.
     */
    procedure: string;
    /** Demangled name, as the source code spells it. */
    demangled: string;
    /** File name of the image, without folders. */
    image: string;
    /** Samples of each set, in the order of `Stats::sets`. */
    samples: Array<number>;
    /** Largest count minus smallest count, divided by the sum. */
    range_share: number;
    /** Samples of all sets together. */
    sum: number;
    /** The sum divided by the samples of all procedures. */
    sum_share: number;
    /** Number of sets. */
    n: number;
    /** Mean count per set. */
    mean: number;
    /** Standard deviation of the counts, with n − 1 in the denominator. */
    std_dev: number;
    /** Smallest count of a set. */
    min: number;
    /** Largest count of a set. */
    max: number;
    /** Comparison of the two groups, if there are two. */
    comparison?: StatsComparison;
};
/** One set of samples: those of one epoch. */
export type StatsSet = {
    /** Id of the set's epoch. */
    epoch: string;
    /** Name that a user gave the epoch. */
    name: string | null;
    /** Whether the set belongs to the second group: the one that the first group is compared against. */
    against: boolean;
    /** Number of samples in the set. */
    samples: number;
    /** Exposure: the number that the set's counts are divided by in a comparison; 1 for the first set. */
    exposure: number;
};
/**
 * Where the cycles go. Shares are relative to the tallied samples: those of instructions whose frequency is known.
 * If the scale is absolute, `subtotal_dynamic`, `subtotal_static`, `execution` and `net_sampling_error` add up to 1. Otherwise
 * they are `null`, since the same time may be executions or stalls; their `_min` and `_max` are the ends of what is possible.
 */
export type Summary = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** Ids of the epochs whose samples were merged. */
    epochs: Array<string>;
    /** Procedure, image or epochs that the summary covers. */
    scope: SummaryScope;
    /** Name of the machine model that was used. */
    machine_model: string;
    /** The event that measures time here (`cycles` or `cpu-clock`). */
    time_event: string;
    /** Mean number of cycles between two time samples; `null` if the clock rate is unknown. */
    period_cycles: number | null;
    /** Number of time samples of the scope; under a function, only those that have a call stack. */
    samples: number;
    /** Number of those samples that were tallied. */
    samples_tallied: number;
    /** Tallied samples divided by all samples of the scope, 0 to 1. */
    tallied_share: number;
    /** Number of procedures that were analysed. */
    procedures: number;
    /** Number of procedures with samples that could not be analysed, or have too few samples to matter. */
    procedures_left_out: number;
    /** Estimated cycles of the tallied samples; `null` if the clock rate is unknown. */
    cycles: number | null;
    /**
     * Kind of the scale of the executions, as in `ListingScale`: the weakest one of the procedures.
     * `null` if nothing was tallied.
     */
    scale: ScaleKind | null;
    /** Instructions executed; `null` unless the scale is absolute. */
    instructions: number | null;
    /** Measured cycles per instruction; `null` unless the scale is absolute. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible. */
    cpi_min: number | null;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** Cycles per instruction without dynamic stalls, by the machine model. */
    best_case_cpi: number | null;
    /** Dynamic causes, in the order of Figure 4. The ranges of several causes overlap. */
    dynamic: Array<SummaryRange>;
    /** Share of stalls for which every cause was ruled out; `null` unless the scale is absolute. */
    unexplained_stall: number | null;
    /** Least possible share of unexplained stalls. */
    unexplained_stall_min: number;
    /** Largest possible share of unexplained stalls. */
    unexplained_stall_max: number;
    /**
     * Share of cycles by which instructions were faster than the model's best case, never positive; `null` unless the scale
     * is absolute.
     */
    unexplained_gain: number | null;
    /**
     * Share of all dynamic stalls, minus the gain. It lies between the sums of the lower and of the upper ends of the
     * ranges. `null` unless the scale is absolute.
     */
    subtotal_dynamic: number | null;
    /** Least possible share of all dynamic stalls. */
    subtotal_dynamic_min: number;
    /** Largest possible share of all dynamic stalls. */
    subtotal_dynamic_max: number;
    /** Static causes. */
    static: Array<SummaryPart>;
    /** Sum of the static causes' shares; `null` unless the scale is absolute. */
    subtotal_static: number | null;
    /** Least possible share of all static stalls. */
    subtotal_static_min: number;
    /** Largest possible share of all static stalls. */
    subtotal_static_max: number;
    /** Sum of `subtotal_dynamic` and `subtotal_static`; `null` unless the scale is absolute. */
    total_stall: number | null;
    /** Least possible share of all stalls. */
    total_stall_min: number;
    /** Largest possible share of all stalls. */
    total_stall_max: number;
    /** Share of time that instructions take when they wait for nothing; `null` unless the scale is absolute. */
    execution: number | null;
    /** Least possible share of execution. */
    execution_min: number;
    /** Largest possible share of execution. */
    execution_max: number;
    /** Share that is neither stall nor execution: samples that chance added or removed. `null` unless the scale is absolute. */
    net_sampling_error: number | null;
    /** Under a function: the samples that the summary rests on. `null` for other scopes. */
    under: SummaryUnder | null;
    /** Notes that a reader needs to interpret the answer. */
    notes: Array<string>;
};
/** A static cause, with the share that it explains. */
export type SummaryPart = {
    /**
     * Cause in kebab-case: `slotting`, `functional-unit`, or the operand that was not ready: `dependency-address`,
     * `dependency-flags`, `dependency-first`, `dependency-second` or `dependency-third` (the source operands in the order
     * of the assembler).
     */
    cause: string;
    /** Name of the cause for users, such as `D-cache miss`. */
    label: string;
    /** Share that the cause explains; `null` unless the scale is absolute. */
    share: number | null;
    /** Least share that the cause explains. */
    share_min: number;
    /** Largest share that the cause may explain. */
    share_max: number;
};
/** A dynamic cause, with the range of the share that it may explain. */
export type SummaryRange = {
    /** Cause in kebab-case: `i-cache-miss`, `d-cache-miss`, …; `other` stands for all rare causes together. */
    cause: string;
    /** Name of the cause for users, such as `D-cache miss`. */
    label: string;
    /** Least share that the cause explains. */
    share_min: number;
    /** Largest share that the cause may explain. */
    share_max: number;
};
/** The part of the profile that a `Summary` covers. */
export type SummaryScope = {
    /** Kind of the scope: `procedure`, `image`, `under` or `epoch`. */
    kind: "procedure" | "image" | "under" | "epoch";
    /** `IMAGE:NAME` of the procedure or of the function that the samples are under, the paths of the images joined by `, `, or the ids of the epochs joined by `+`. */
    name: string;
};
/** The samples under a function: those in it and in what it calls. */
export type SummaryUnder = {
    /** Samples whose call stack contains the function. */
    samples: number;
    /** Samples in the function itself. */
    own: number;
    /** Number of samples that have a call stack. */
    stack_samples: number;
    /** Number of all samples of the event, with and without a call stack. */
    all_samples: number;
    /** Share of `samples` of `stack_samples`, 0 to 1: an estimate of the function's share of the whole recording. */
    share: number;
    /** Other samples with a call stack whose outer frames are not known. The function may be among those frames. */
    incomplete: number;
};
/** Table of where the samples are: the root object of `dwell top --json`. */
export type Top = {
    /** Version of this answer's JSON schema. */
    schema: number;
    /** Ids of the epochs whose samples were merged. */
    epochs: Array<string>;
    /** All samples by event name. */
    total: {
        [key in string]: number;
    };
    /** Rows, the most costly first. */
    rows: Array<TopRow>;
    /** Number of rows left out because of the limit. */
    omitted_rows: number;
    /** Notes that a reader needs to interpret the answer: losses, images that are missing or have changed, … */
    notes: Array<string>;
};
/** A row of `Top`. The dimension that the rows are grouped by determines which keys are present. */
export type TopRow = {
    /** By procedure: `IMAGE:NAME`, as `annotate` accepts it. */
    id?: string;
    /** By procedure: the linkage name, `0x…` if the procedure is known from unwind tables only, or `[no symbol]`. */
    procedure?: string;
    /** By procedure: the demangled name, as the source code spells it. */
    demangled?: string;
    /** By procedure and image: path of the image. */
    image?: string;
    /** By procedure and image: id of the image (a build ID in hex, `kernel`, …). */
    build_id?: string;
    /** By line and, if known, by procedure: the source file. */
    file?: string;
    /** By line and, if known, by procedure: line in `file`, from 1. */
    line?: number;
    /** By application and instance: name of the executable. */
    app?: string;
    /**
     * By application and instance: number of this execution of the executable, from 1; 0 for several executions together or
     * a kernel thread.
     */
    instance?: number;
    /** By thread: name of the thread; empty if unknown. */
    thread?: string;
    /** By CPU: number of the CPU; `null` if unknown. */
    cpu?: number | null;
    /** By control group: its path; empty if unknown. */
    cgroup?: string;
    /** By control group: the container, pod, service or session, if the path follows a known naming scheme. */
    container?: string;
    /**
     * By data: name of the data: a symbol, a section (`[.rodata]`), a path, `[stack]`, `[heap]`, …, or in brackets the
     * reason why it is not known.
     */
    data?: string;
    /**
     * By data: kind of the data: `symbol` or `image` (data of the image that `image` names), `file`, `anonymous`, `heap`,
     * `stack`, `thread-local`, `mapping` (any other mapping that has a name), or `none`.
     */
    data_kind?: string;
    /** Samples of this row by event name. */
    samples: {
        [key in string]: number;
    };
    /** Share of the time samples, 0 to 1; by data, share of the time samples whose registers were examined. */
    share: number;
    /** Sum of `share` over this row and all rows before it. */
    cumulative_share: number;
    /** Estimated cycles of this row; `null` if the clock rate is unknown. */
    cycles: number | null;
    /** CPU time of this row in seconds; `null` if it is unknown. */
    seconds: number | null;
    /** Measured cycles per instruction; `null` unless the scale is absolute, and always by image, line and application. */
    cpi: number | null;
    /** Lower end of the 90 % interval of `cpi`. */
    cpi_min: number | null;
    /** Upper end of the 90 % interval of `cpi`; `null` if nothing bounds it. */
    cpi_max: number | null;
    /** By procedure: kind of the scale of the executions, as in `ListingScale`, if the procedure was analysed. */
    scale?: ScaleKind;
    /** Where the cycles of the row go, if the request includes it and the scale is absolute. */
    split?: CycleSplit;
};
