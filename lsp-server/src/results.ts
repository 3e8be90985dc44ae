/**
 * What the server answers, as schemas: the one definition of its types, of PROTOCOL.md's, and of the parts that the tools for
 * assistants have in common with them. Positions are UTF-16, lines count from 0. Shapes only; nothing here asks or tells anything.
 *
 * Only the tools for assistants and the tests load this file: elsewhere its types are used.
 */
import * as z from 'zod/v4';

const share = (what: string): z.ZodNumber => z.number().describe(`${what}, 0 to 1`);
const count = z.number();
const countOrNull = z.number().nullable();
const address = z.number().describe('signed: that of kernel code is negative');
const addressOrNull = address.nullable();
const text = z.string();
const textOrNull = z.string().nullable();
const texts = z.array(z.string());
/** Samples by the event's name. */
const samples = z.record(z.string(), z.number()).describe('samples by event');
const uri = z.string().nullable();
const line = z.number().nullable();
const notes = texts.describe('what one must know to read the answer: losses, missing sources, guesses');
const confidence = z.enum(['low', 'medium', 'high']).describe('how far to trust the estimates (cycles per instruction, executions)');
const stallKind = z.enum(['static', 'dynamic']).describe('static: it follows from the instructions alone');
const cause = text.describe('`d-cache-miss`, `branch-mispredict`, …');
const label = text.describe("the cause's name for people");
const place = z.object({ uri: text, line: count });

export const ScaleKind = z
  .enum(['absolute', 'program', 'procedure'])
  .describe('How far executions and cycles per instruction are known: as numbers, or up to one factor of the program or of the function');
export type ScaleKind = z.infer<typeof ScaleKind>;

export const PerEntry = z
  .object({ executions: count, of: z.enum(['loop', 'procedure']) })
  .describe('Executions for each entry of the innermost loop, or of the function where there is none: a ratio, known on any scale');
export type PerEntry = z.infer<typeof PerEntry>;

const unlessAbsolute = 'null: no estimate, or the scale is not absolute';
/** Cycles per instruction, with its bounds. */
const cpi = {
  cpi: countOrNull.describe(`cycles per instruction executed, estimated; ${unlessAbsolute}`),
  cpiMin: countOrNull.describe('the least it can be (90 % interval; without an absolute scale the least that is possible); null: no estimate'),
  cpiMax: countOrNull.describe('the most it can be (90 % interval); null: no estimate, or nothing bounds it'),
};
const bestCaseCpi = countOrNull.describe("cycles per instruction if nothing had to be waited for, by the machine model: known on any scale; null: no estimate");
const executions = {
  executions: countOrNull.describe(`estimated; ${unlessAbsolute}`),
  executionsMin: countOrNull.describe('the least they can be (90 % interval); null likewise'),
  executionsMax: countOrNull.describe('the most they can be (90 % interval); null likewise'),
};
const executionsRelative = countOrNull.describe('executions up to the factor that the scale leaves open: compare, do not read as a number');
const cycles = countOrNull.describe('estimated processor cycles; null: the clock rate is unknown');
/** What is measured and what is estimated of the time that something takes. */
const cost = {
  samples, share: share("part of the recording's time, inlined copies included"),
  seconds: countOrNull.describe('CPU time, measured; null: what was sampled is not time'), cycles, scale: ScaleKind,
};

export const EventSummary = z.object({
  period: count, unit: z.enum(['cycles', 'ns', 'events']), samples: count, lost: count, throttled: count,
  unknown: count.describe('samples without an image'),
  runningShare: countOrNull.describe('part of the time that the event counted; below 1 events took turns; null: not known'),
});
export type EventSummary = z.infer<typeof EventSummary>;
export const EpochSummary = z.object({
  id: text, name: textOrNull, start: text.describe('RFC 3339, UTC'), end: textOrNull.describe('null: it is still being collected'),
  host: text, cpu: text, backend: text, scope: text.describe('what was sampled'), events: z.record(z.string(), EventSummary), notes,
  shown: z.boolean().describe('whether `selected` names it'), pinned: z.boolean().describe('whether `baseline` names it'),
});
export type EpochSummary = z.infer<typeof EpochSummary>;
export const EpochsResult = z.object({
  selected: texts.describe('the recordings that are shown, as they were selected: ids, names, `latest`, `latest~N`'),
  baseline: texts.nullable().describe('the recordings that are compared with, likewise; null: none'),
  epochs: z.array(EpochSummary).describe('oldest first'),
  warnings: texts.describe('files that were skipped, each with its reason'),
});
export type EpochsResult = z.infer<typeof EpochsResult>;

export const CycleSplit = z
  .object({ execution: count, static: count, dynamic: count })
  .describe('Parts of the cycles: their sum is 1, up to the error of sampling');
export type CycleSplit = z.infer<typeof CycleSplit>;
export const HotRow = z.object({
  id: text.describe('unique among the rows, and the same in each answer; by procedure: what `dwell/listing` takes'),
  label: text, image: textOrNull, samples, share: share("part of the recording's time"), cumulativeShare: share("this row's and all rows' before it"),
  cycles, scale: ScaleKind.nullable(), ...cpi, location: place.nullable(),
  split: CycleSplit.nullable().describe(`by function, where it was asked for; ${unlessAbsolute}`),
});
export type HotRow = z.infer<typeof HotRow>;
export const HotProceduresResult = z.object({
  epochs: texts, total: samples, rows: z.array(HotRow).describe('most costly first'), omittedRows: count, notes,
});
export type HotProceduresResult = z.infer<typeof HotProceduresResult>;

export const ListingLine = z
  .object({
    address: addressOrNull,
    target: addressOrNull.describe('address that a direct branch or call goes to'),
    source: place.nullable(),
    culpritLines: z.array(count),
    operands: z.array(z.object({ text, lines: z.array(count) })).describe('registers that the line names and reads, with the lines of the instructions that may have written them last'),
  })
  .describe('One for each line of text');
export type ListingLine = z.infer<typeof ListingLine>;
export const ListingResult = z.object({
  title: text,
  text: text.describe('the summary (Figure 4), then the instructions'),
  lines: z.array(ListingLine),
  folds: z.array(z.object({ start: count, end: count, kind: z.enum(['summary', 'block']) })),
  listing: z.custom<object>().describe('`dwell annotate --json`, its addresses signed'),
});
export type ListingResult = z.infer<typeof ListingResult>;

export const LineCulprit = z.object({
  kind: stallKind, cause, label, cyclesMin: cycles, cyclesMax: cycles, shareMax: share("part of the line's time that it explains at most"), uri, line,
});
export type LineCulprit = z.infer<typeof LineCulprit>;
export const LineTie = z
  .object({
    text: text.describe('`waits for memory (D-cache or DTLB miss)`'),
    culprits: z.array(count).describe("indices into the line's culprits, the likeliest first"),
    shareMax: share("part of the line's time that they explain at most, all together"),
    cyclesMin: cycles,
    cyclesMax: cycles,
  })
  .describe('Causes that cannot be told apart, as one');
export type LineTie = z.infer<typeof LineTie>;
export const LineCost = z.object({
  line: count,
  label: text.describe('`lineEnd` in 42 characters'),
  lineEnd: text.describe("what stands at the line's end: `28 % · 3.0 s · waits for memory (D-cache or DTLB miss) ← :41 · 66 cycles/instr (ideal 1.3)`"),
  ...cost,
  details: text.describe('all that is known of the line, in one line of text'),
  ...executions, perEntry: PerEntry.nullable(), ...cpi, bestCaseCpi, confidence,
  culprits: z.array(LineCulprit).describe('most costly first'),
  ties: z.array(LineTie).describe('most costly first'),
  procedures: texts,
});
export type LineCost = z.infer<typeof LineCost>;
export const StaleLine = z.object({ line: count, share: share('what the line had before the edit') });
export type StaleLine = z.infer<typeof StaleLine>;
export const ProcedureCost = z.object({
  id: text, label: text, title: text.describe('what the function costs: `31 % · 3.0 s · 11 cycles/instr (ideal 0.60)`'), line: count,
  ...cost, ...cpi, bestCaseCpi,
});
export type ProcedureCost = z.infer<typeof ProcedureCost>;
export const FileCostsResult = z.object({
  epochs: texts,
  source: z.enum(['fresh', 'mapped', 'stale', 'unchecked']).describe('the file now against the file as built: the same; edited, lines found again; too different; could not be compared'),
  lines: z.array(LineCost),
  stale: z.array(StaleLine).describe('lines that were edited since the program was built, in the file or in the editor: they have no cost'),
  procedures: z.array(ProcedureCost),
  rebuilt: texts.describe('programs that were built again since and were not sampled again'),
  notes,
});
export type FileCostsResult = z.infer<typeof FileCostsResult>;

export const CallSite = z.object({ uri: text, line: count, samples: count });
export type CallSite = z.infer<typeof CallSite>;
export const CallerRow = z.object({
  function: text.describe('demangled name'), image: text.describe('file name of the binary'), inlined: z.boolean().describe('whether the call is inlined'),
  samples: count.describe('samples of the stacks through this row: each sample counts at one row'),
  share: share("part of the function's samples, not of calls"),
  label: text, details: text.describe("`75.0% of copy's samples (30 of 40)`"),
  place: place.nullable().describe('where the function begins; null: unknown'),
  sites: z.array(CallSite).describe('the lines of the calls, most samples first: in the caller; of callees, in what calls them'),
  leads: z.boolean().describe('whether there may be further rows behind it: not behind `[incomplete]`'),
});
export type CallerRow = z.infer<typeof CallerRow>;
export const IncompleteStacks = z.object({ cause: text.describe('why the outer frames are not known'), image: text, samples: count });
export type IncompleteStacks = z.infer<typeof IncompleteStacks>;
export const CallersResult = z.object({
  epochs: texts, id: text.describe('`BINARY:NAME`, as `function` of the request takes it'), function: text, image: text, place: place.nullable(),
  samples: count.describe('samples whose call stack contains the function'), own: count.describe('samples in the function itself'),
  total: count.describe('samples that have a call stack'),
  rows: z.array(CallerRow).describe('most samples first'),
  incomplete: z.array(IncompleteStacks), notes,
});
export type CallersResult = z.infer<typeof CallersResult>;

export const DataSource = z.object({
  level: z.enum(['l2', 'last-level', 'memory']), part: countOrNull.describe('part of executions, if it were the only one; null unless the scale is absolute'),
});
export type DataSource = z.infer<typeof DataSource>;
export const LineStall = z
  .object({
    kind: stallKind, cause, label,
    cyclesMin: count.describe('cycles per execution'), cyclesMax: countOrNull.describe('null: of a dynamic stall, where the scale is not absolute'),
    shareMin: share("part of the instruction's time"), shareMax: share("part of the instruction's time"),
    sources: z.array(DataSource).describe('of a data cache miss: the levels of the memory that alone can explain cyclesMax, nearest first'),
    levels: texts.describe('of a data cache miss: all levels that the interval allows: `L2`, `LLC`, `DRAM`'),
    culpritAddress: addressOrNull, culpritText: textOrNull, uri, line,
  })
  .describe('Stalls of one instruction and kind are alternatives: they do not add up');
export type LineStall = z.infer<typeof LineStall>;
export const LineInstruction = z.object({
  address, text, samples: count, executions: executions.executions, executionsRelative, ...cpi, confidence, stalls: z.array(LineStall),
});
export type LineInstruction = z.infer<typeof LineInstruction>;
export const LineCaller = z.object({ function: textOrNull, uri, line });
export type LineCaller = z.infer<typeof LineCaller>;
export const LinePlace = z.object({
  procedure: text, label: text,
  callers: z.array(LineCaller).describe("calls that were inlined to get there, innermost first; empty: the line is the function's own"),
  share: share("part of the recording's time"), scale: ScaleKind, ...cpi, instructions: z.array(LineInstruction), omittedInstructions: count,
});
export type LinePlace = z.infer<typeof LinePlace>;
export const LineResult = z.object({ line: count, places: z.array(LinePlace), omittedPlaces: count });
export type LineResult = z.infer<typeof LineResult>;

export const SummaryRange = z.object({ cause, label, shareMin: count, shareMax: count });
export type SummaryRange = z.infer<typeof SummaryRange>;
export const SummaryPart = z.object({ cause, label, share: countOrNull, shareMin: count, shareMax: count });
export type SummaryPart = z.infer<typeof SummaryPart>;
export const SummaryUnder = z.object({
  samples: count.describe('samples whose call stack contains the function'), own: count.describe('samples in the function itself'),
  stackSamples: count.describe('samples that have a call stack'), allSamples: count.describe('all samples, with and without one'),
  share: share('samples as a part of stackSamples'), incomplete: count.describe('other samples whose outer frames are not known: the function may be among them'),
});
export type SummaryUnder = z.infer<typeof SummaryUnder>;
const summedShares =
  'Shares are parts of samplesTallied: subtotalDynamic + subtotalStatic + execution + netSamplingError = 1; these, unexplained stalls and gains and the shares of static causes are null unless the scale is absolute, Min and Max are the ends of what is possible';
export const SummaryResult = z
  .object({
    epochs: texts,
    scope: z.object({ kind: z.enum(['procedure', 'image', 'under', 'epoch']), name: text }),
    machineModel: text.describe('the processor model behind the estimates'), timeEvent: text,
    periodCycles: countOrNull.describe('cycles between two samples'),
    samples: count.describe('samples of time'),
    samplesTallied: count, talliedShare: share('part of them that the table is made of: those of instructions whose frequency is known'),
    procedures: count.describe('functions that were analysed'),
    proceduresLeftOut: count.describe('functions with samples that could not be analysed, or are too small to matter'),
    cycles, scale: ScaleKind.nullable().describe('the least of all that was tallied'),
    instructions: countOrNull.describe(`instructions executed, estimated; ${unlessAbsolute}`), ...cpi, bestCaseCpi,
    dynamic: z.array(SummaryRange).describe('each cause explains at least shareMin and at most shareMax of the tallied cycles; ranges of several causes overlap'),
    unexplainedStall: countOrNull, unexplainedStallMin: count, unexplainedStallMax: count, unexplainedGain: countOrNull,
    subtotalDynamic: countOrNull, subtotalDynamicMin: count, subtotalDynamicMax: count,
    staticCauses: z.array(SummaryPart), subtotalStatic: countOrNull, subtotalStaticMin: count, subtotalStaticMax: count,
    totalStall: countOrNull, totalStallMin: count, totalStallMax: count, execution: countOrNull, executionMin: count, executionMax: count,
    netSamplingError: countOrNull,
    under: SummaryUnder.nullable().describe('what the summary under a function rests on: the samples with a call stack; null for other scopes'), notes,
    text: text.describe('the table of Figure 4'), totals: text.describe('what the table rests on, in one line of text'),
  })
  .describe(summedShares);
export type SummaryResult = z.infer<typeof SummaryResult>;

export const Verdict = z
  .enum(['new', 'gone', 'slower', 'faster', 'more-often', 'less-often', 'more', 'less', 'noise'])
  .describe('slower, faster: each execution; more-often, less-often: executions; more, less: the evidence does not tell which of them; noise: may be chance');
export type Verdict = z.infer<typeof Verdict>;
export const DiffChange = z
  .object({
    verdict: Verdict, label: text, details: text.describe('all that is known of the change, in one line of text'), samplesBefore: count, samplesAfter: count.describe('as they are, not normalized'), change: count,
    changeShare: count.describe('normalized change as a part of all time before; positive: costs more'),
    changeCycles: countOrNull, ratio: countOrNull, executionsBefore: countOrNull, executionsAfter: countOrNull,
    countRatio: countOrNull.describe('executions after over before; null: the evidence of both sides does not tell count from cost'),
    cpiBefore: countOrNull, cpiAfter: countOrNull, costRatio: countOrNull,
    p: count.describe('how likely a change as large is if there is none'),
    falseDiscoveryRate: count.describe('part of false calls among all rows as sure as this one'),
    significant: z.boolean(),
  })
  .describe('Samples are executions × cycles each, so a significant change is called after what changed more. Ratios and changes are of samples after over exposure');
export type DiffChange = z.infer<typeof DiffChange>;
export const DiffSide = z.object({ epochs: texts, cpu: text, machineModel: text, event: text, samples: count, periodCycles: countOrNull });
export type DiffSide = z.infer<typeof DiffSide>;
export const DiffProcedure = z.intersection(DiffChange, z.object({ id: text, name: text, image: text, confidence }));
export type DiffProcedure = z.infer<typeof DiffProcedure>;
export const DiffLine = z.intersection(DiffChange, z.object({ file: text, uri, lineBefore: line, lineAfter: line }));
export type DiffLine = z.infer<typeof DiffLine>;
export const DiffPlace = z.object({ address, text, uri, line });
export type DiffPlace = z.infer<typeof DiffPlace>;
export const DiffInstruction = z.intersection(
  DiffChange,
  z.object({ kind: z.enum(['same', 'edited', 'removed', 'added']), before: DiffPlace.nullable(), after: DiffPlace.nullable() }),
);
export type DiffInstruction = z.infer<typeof DiffInstruction>;
export const DiffResult = z.object({
  before: DiffSide, after: DiffSide, normalizedBy: text,
  exposure: count.describe('samples after for each sample before if nothing had changed'),
  total: DiffChange, procedures: z.array(DiffProcedure), lines: z.array(DiffLine), instructions: z.array(DiffInstruction),
  insignificantProcedures: count, insignificantLines: count, omittedRows: count, notes,
});
export type DiffResult = z.infer<typeof DiffResult>;

export const LineChange = z.intersection(DiffChange, z.object({ line: count }));
export type LineChange = z.infer<typeof LineChange>;
export const ProcedureChange = z.intersection(DiffChange, z.object({ name: text, line: count }));
export type ProcedureChange = z.infer<typeof ProcedureChange>;
export const FileChangesResult = z.object({ before: texts, after: texts, lines: z.array(LineChange), procedures: z.array(ProcedureChange), notes });
export type FileChangesResult = z.infer<typeof FileChangesResult>;

export const StatsSet = z.object({ epoch: text, name: textOrNull, against: z.boolean(), samples: count, exposure: count });
export type StatsSet = z.infer<typeof StatsSet>;
export const StatsComparison = z.object({
  mean: count, meanAgainst: count, ratio: countOrNull, dispersion: countOrNull, p: count, falseDiscoveryRate: count, significant: z.boolean(),
});
export type StatsComparison = z.infer<typeof StatsComparison>;
export const StatsRow = z.object({
  procedure: text, demangled: text, image: text, samples: z.array(count), rangeShare: count, sum: count, sumShare: count, n: count, mean: count,
  stdDev: count, min: count, max: count, comparison: StatsComparison.nullable(),
});
export type StatsRow = z.infer<typeof StatsRow>;
export const StatsResult = z.object({ event: text, sets: z.array(StatsSet), total: count, rows: z.array(StatsRow), omittedRows: count, notes });
export type StatsResult = z.infer<typeof StatsResult>;

export const CfgLine = z.object({ address: addressOrNull, text });
export type CfgLine = z.infer<typeof CfgLine>;
export const CfgSuccessor = z.object({
  to: address, executions: countOrNull.describe('null unless the scale is absolute'), part: countOrNull.describe("part of the block's executions"),
  falls: z.boolean().describe('right into the next block'),
});
export type CfgSuccessor = z.infer<typeof CfgSuccessor>;
export const CfgBox = z.object({ x: count, y: count, width: count, height: count }).describe('Where a block stands in the picture');
export type CfgBox = z.infer<typeof CfgBox>;
export const CfgBlock = z.object({
  address,
  head: text.describe('share, executions and CPI or, without a scale, ratios and bounds'),
  share: share("part of the function's time"),
  lines: z.array(CfgLine).describe('the instructions as drawn, the last without an address where there are more'),
  successors: z.array(CfgSuccessor),
  box: CfgBox,
});
export type CfgBlock = z.infer<typeof CfgBlock>;
export const CfgResult = z.object({ title: text, svg: text, blocks: z.array(CfgBlock).describe('by address'), omittedBlocks: count });
export type CfgResult = z.infer<typeof CfgResult>;

export const FlameEvent = z.object({ name: text, period: count, unit: z.enum(['cycles', 'ns', 'events']), samples: count.describe('samples with a call stack'), allSamples: count });
export type FlameEvent = z.infer<typeof FlameEvent>;
export const FlameCause = z.object({ kind: stallKind, cause, label, shareMin: count, shareMax: count });
export type FlameCause = z.infer<typeof FlameCause>;
export const FlameAnalysis = z
  .object({
    samples: count.describe('samples of time that were tallied; shares are parts of them'), scale: ScaleKind.nullable(), ...cpi,
    execution: countOrNull.describe(unlessAbsolute), executionMin: count, executionMax: count,
    causes: z.array(FlameCause).describe('the largest possible share first; ranges of several causes overlap'),
  })
  .describe("Of a function's own instructions, inlined copies included, calls not");
export type FlameAnalysis = z.infer<typeof FlameAnalysis>;
export const FlameFunction = z.object({
  kind: z.enum(['function', 'application', 'event', 'incomplete']).describe('what a frame stands for; incomplete: unknown callers'),
  name: text, image: text.describe('file name of the binary'), id: textOrNull.describe('what `dwell/listing` takes; null: it has no samples of its own, or is inlined only'),
  kernel: z.boolean(), file: textOrNull, line: countOrNull.describe('from 1, where the function begins'), location: place.nullable(),
  total: count.describe('of the stacks that contain it, each once'), own: count.describe('of the stacks that end in it'),
  analysis: FlameAnalysis.nullable().describe('null: it was not analysed'),
});
export type FlameFunction = z.infer<typeof FlameFunction>;
export const FlameResult = z.object({
  epochs: texts, events: z.array(FlameEvent), unit: text.describe('of counts: `samples`; of several events the unit that their periods have in common'),
  seconds: count.describe('time that one of them stands for; 0: not known'), total: count, functions: z.array(FlameFunction),
  parents: z.array(count).describe('of each frame the index of its caller, which precedes it, or -1; frames of one caller are in descending order'),
  codes: z.array(count).describe("of each frame its function's index twice, plus one if it is inlined; negative: that many small frames together"),
  own: z.array(count).describe('of each frame the stacks that end in it'),
  merged: count.describe('small frames that are not kept apart'), analysedShare: share('part of the total in functions that were analysed'), notes,
});
export type FlameResult = z.infer<typeof FlameResult>;

export const SqlColumn = z.object({ name: text, type: text.describe("DuckDB's name: `BIGINT`, `VARCHAR`, …") });
export type SqlColumn = z.infer<typeof SqlColumn>;
export const SqlResult = z.object({
  columns: z.array(SqlColumn),
  rows: z
    .array(z.array(z.union([z.boolean(), count, text, z.null()])))
    .describe('a value for each column; integers beyond 2^53, lists and structures are texts, infinite numbers null'),
  more: z.boolean().describe('whether there are further rows'),
  notes: texts.describe('what could not be read'),
});
export type SqlResult = z.infer<typeof SqlResult>;

export const LegendResult = z.object({ markdown: text, text: text.describe('the same for clients that render no Markdown'), headings: z.array(z.object({ start: count, end: count })).describe('where they are in `text`, in UTF-16') });
export type LegendResult = z.infer<typeof LegendResult>;

export const ProcessSummary = z.object({ pid: count, name: text, command: text, user: text, own: z.boolean(), cpuSeconds: count });
export type ProcessSummary = z.infer<typeof ProcessSummary>;
export const ProcessesResult = z.object({ processes: z.array(ProcessSummary) });
export type ProcessesResult = z.infer<typeof ProcessesResult>;

export const CallTimes = z
  .object({ sum: count, mean: countOrNull.describe('null: no call has returned'), p50: countOrNull, p99: countOrNull, max: count })
  .describe('Time on the clock of the calls that returned, in ns');
export type CallTimes = z.infer<typeof CallTimes>;
export const CountedFrame = z.object({ function: textOrNull, image: textOrNull.describe('file name of the binary'), inlined: z.boolean(), place: place.nullable().describe('the call') });
export type CountedFrame = z.infer<typeof CountedFrame>;
export const CountedPath = z.object({
  frames: z.array(CountedFrame).describe('from the call site outwards; none: all other paths together'), complete: z.boolean().describe('whether the last frame is the outermost one of its thread'),
  calls: count, returns: countOrNull.describe('calls that returned; null: not known'), share: share("part of the function's calls"), wall: CallTimes.nullable(),
});
export type CountedPath = z.infer<typeof CountedPath>;
export const CountedFunction = z.object({
  function: text, image: text.describe('file name of the binary'), place: place.nullable().describe('its first line, as it was built'), label: text.describe('the numbers in words'),
  calls: count.describe('exact'), perSecond: count.describe('since the numbers before'), missed: count.describe('calls that could not be recorded'), wall: CallTimes.nullable(),
  blockedShare: countOrNull.describe('part of the time on the clock in which the calls waited, 0 to 1; null: not known'), paths: z.array(CountedPath).describe('most calls first'), omittedPaths: count,
});
export type CountedFunction = z.infer<typeof CountedFunction>;
export const CallCount = z.object({
  id: count, pids: z.array(count), seconds: count.describe('how long calls were counted'), state: z.enum(['counting', 'ended']),
  problem: textOrNull.describe('why it ended, if neither the client nor the programs ended it'), functions: z.array(CountedFunction),
});
export type CallCount = z.infer<typeof CallCount>;
export const CallSiteLabel = z.object({ place, label: text }).describe("A line that calls counted functions, with its part of a function's calls, in an open document where it stands there");
export type CallSiteLabel = z.infer<typeof CallSiteLabel>;
export const CallPathsResult = z.object({ counts: z.array(CallCount), sites: z.array(CallSiteLabel) });
export type CallPathsResult = z.infer<typeof CallPathsResult>;
