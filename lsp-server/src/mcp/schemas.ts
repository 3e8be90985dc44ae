/**
 * What the tools for assistants take and give, as schemas: an assistant reads the units and what a null means in them. Shapes come
 * from results.ts; files are paths and lines count from 1 here. Addresses are those of the image's headers. Shapes only; nothing
 * here asks or tells anything.
 */
import * as z from 'zod/v4';
import {
  DiffChange, DiffPlace, DiffSide, EpochSummary, FileCostsResult, HotRow, LineCost, LineCulprit, LineInstruction, LineStall, ProcedureCost,
  ScaleKind, SqlResult, SummaryResult,
} from '../results';

const file = z.string().nullable().describe('path of the source file; null: unknown');
const line = z.number().int().nullable().describe('line, from 1; null: unknown');
const { notes } = EpochSummary.shape;
const { samples, share } = LineCost.shape;

const selectors = z.array(z.string().min(1)).min(1);
const epochs = selectors
  .exactOptional()
  .describe("recordings to merge: ids, names, 'latest', 'latest~1' (the one before); without it the latest alone");
const procedure = z.string().min(1).describe("'NAME', 'IMAGE:NAME' or an id that another tool gave; NAME is the linkage name");
const limit = (most: number, usual: number): z.ZodDefault<z.ZodNumber> => z.number().int().min(1).max(most).default(usual);

const losses = z
  .object({
    lost: z.number().describe('samples that were dropped'),
    throttled: z.number().describe('times the kernel throttled sampling'),
    unknown: z.number().describe('samples of code in no known file'),
  })
  .describe('what the recordings shown here miss');

export const epochsOut = z.object({
  epochs: z.array(EpochSummary.omit({ events: true, backend: true, shown: true, pinned: true }).extend({ samples, losses })).describe('oldest first'),
  warnings: z.array(z.string()).describe('files that were skipped, each with its reason'),
});

export const hotIn = z.object({
  by: z.enum(['procedure', 'image', 'line', 'app']).default('procedure').describe('one row for each of these'),
  limit: limit(500, 20).describe('rows at most'),
  image: z.string().min(1).exactOptional().describe('only images (executables, libraries) whose path, file name or id contains this'),
  epochs,
});
export const hotOut = z.object({
  epochs: z.array(z.string()).describe('ids of the recordings that were merged'),
  total: samples,
  losses,
  rows: z.array(HotRow.omit({ location: true, split: true }).extend({ file, line })).describe('most costly first'),
  omittedRows: z.number().describe('rows beyond the limit'),
  notes,
});

export const listingIn = z.object({
  procedure,
  offset: z.number().int().min(0).default(0).describe('first instruction, from 0'),
  limit: limit(2000, 200).describe('instructions at most'),
  epochs,
});
const { executionsMin, executionsMax } = LineCost.shape;
export const listingOut = z.object({
  epoch: z.string(),
  procedure: z.string(),
  image: z.string(),
  machineModel: SummaryResult.shape.machineModel,
  scale: z.object({ kind: ScaleKind, evidence: z.array(z.string()) }).describe('how far executions are known, and by what'),
  share,
  samples,
  instructions: z.array(
    LineInstruction.omit({ samples: true }).extend({
      file,
      line,
      headSamples: z.number().describe('samples of time during which this instruction was waited for'),
      executionsMin,
      executionsMax,
      stalls: z.array(LineStall.omit({ culpritText: true, uri: true, line: true })).describe('why it was waited for; several causes of one stall are alternatives'),
    }),
  ),
  totalInstructions: z.number(),
  nextOffset: z.number().nullable().describe('where to go on; null: this was the end'),
  notes,
});

export const linesIn = z.object({
  path: z.string().startsWith('/', 'must be absolute').describe('absolute path of the source file as it is now'),
  minShare: z.number().min(0).max(1).default(0).describe('leave out lines with a lesser part of all time'),
  epochs,
});
export const linesOut = z.object({
  epochs: z.array(z.string()),
  source: FileCostsResult.shape.source,
  lines: z.array(
    LineCost.omit({ label: true, lineEnd: true, details: true }).extend({
      text: z.string().nullable().describe('the line as it is now'),
      culprits: z
        .array(LineCulprit.omit({ uri: true }).extend({ file, line }))
        .describe('leading causes of lost cycles, most costly first; file and line: where the instruction to blame is'),
      ties: LineCost.shape.ties.describe('the same with causes that cannot be told apart as one: name them all, in the words of text'),
    }),
  ),
  procedures: z.array(ProcedureCost.omit({ samples: true, title: true })),
  omittedLines: z.number().describe('lines below minShare'),
  notes,
});

export const summaryIn = z.object({
  procedure: procedure.exactOptional(),
  image: z.string().min(1).exactOptional().describe('images whose path, file name or id contains this'),
  under: z
    .string()
    .min(1)
    .exactOptional()
    .describe("'NAME' or 'BINARY:NAME': the samples in this function and in what it calls, by their call stacks; with none of these: everything"),
  epochs,
});
export const summaryOut = SummaryResult.omit({ timeEvent: true, periodCycles: true, samplesTallied: true, text: true, totals: true }).describe(
  'subtotalDynamic + subtotalStatic + execution + netSamplingError = 1, parts of the tallied cycles; null unless the scale is absolute: use the ranges from Min to Max',
);

const name = z.string().describe('demangled name');
const binary = z.string().describe('file name of the executable or library');
const stackShare = z.number().describe('part, 0 to 1');
const incomplete = z
  .array(z.object({ cause: z.string(), image: binary, samples: z.number() }))
  .describe('stacks whose outer frames are not known: why, and the binary where they end');

export const callersIn = z.object({
  function: z.string().min(1).describe("'NAME' or 'BINARY:NAME'; NAME is the demangled name, with or without parameters"),
  callees: z.boolean().default(false).describe('what it calls, instead of who calls it'),
  depth: limit(100, 4).describe('levels of callers'),
  minShare: z.number().min(0).max(1).default(0.01).describe("leave out rows with a lesser part of the function's samples"),
  epochs,
});
export const calleesIn = callersIn.omit({ callees: true });
export const callersOut = z.object({
  epochs: z.array(z.string()),
  function: name,
  image: binary,
  samples: z.number().describe('samples whose call stack contains the function'),
  own: z.number().describe('samples in the function itself'),
  total: z.number().describe('all samples that have a call stack'),
  rows: z
    .array(
      z.object({
        level: z.number().int().describe('0: calls the function (or is called by it); 1: calls that caller; …'),
        function: name,
        image: binary,
        inlined: z.boolean().describe('the call was inlined'),
        samples: z.number().describe('samples of the stacks through this row: each sample counts at one row of a level'),
        share: stackShare.describe("part of the function's samples, 0 to 1"),
        file: file.describe('source file of the most frequent call; null: unknown'),
        line,
      }),
    )
    .describe('a tree, each row before the rows of its next level'),
  incomplete,
  notes,
});

export const inclusiveIn = z.object({ limit: limit(500, 20).describe('rows at most'), epochs });
export const inclusiveOut = z.object({
  epochs: z.array(z.string()),
  samples: z.number().describe('samples that have a call stack'),
  allSamples: z.number().describe('all samples, with and without one'),
  rows: z
    .array(
      z.object({
        function: name,
        image: binary,
        samples: z.number().describe('samples in the function and in what it calls; a recursive function counts once'),
        share: stackShare,
        own: z.number().describe('samples in the function itself'),
      }),
    )
    .describe('most samples first'),
  others: z.number().describe('functions beyond the limit'),
  incomplete,
  notes,
});

export const pathsIn = z.object({
  limit: limit(200, 10).describe('paths at most'),
  depth: limit(1024, 16).describe('functions of a path at most: of longer stacks the innermost ones are kept'),
  epochs,
});
export const pathsOut = z.object({
  epochs: z.array(z.string()),
  samples: z.number().describe('samples that have a call stack'),
  paths: z
    .array(
      z.object({
        samples: z.number().describe('each sample counts at one path'),
        share: stackShare.describe('part of the samples that have a call stack, 0 to 1'),
        shortened: z.boolean().describe('outer functions were left out: stacks that differ in them are one path'),
        frames: z
          .array(
            z.object({
              function: name,
              image: binary,
              inlined: z.boolean().describe('inlined into its caller'),
              recursive: z.boolean().describe('calls itself directly here: its calls are one frame'),
              file: file.describe('source file of the most frequent call; in the last frame of the most samples; null: unknown'),
              line,
            }),
          )
          .describe('outermost first; the samples are in the last one'),
      }),
    )
    .describe('most samples first'),
  others: z.number().describe('paths beyond the limit'),
  othersSamples: z.number().describe('their samples'),
  incomplete,
  notes,
});

export const diffIn = z.object({
  before: selectors.describe("recordings before the change: ids, names, 'latest~1'"),
  after: selectors.default(['latest']).describe('recordings after it'),
  procedure: procedure.exactOptional().describe('this function alone, with its instructions'),
  normalize: z
    .string()
    .min(1)
    .exactOptional()
    .describe("what makes the runs comparable: 'run' (unless said: both did the same work), 'time', 'samples', or a function that did the same in both"),
  all: z.boolean().default(false).describe('what may be chance too'),
  limit: limit(500, 20).describe('functions and lines at most'),
});
const change = DiffChange.omit({ label: true, details: true, change: true, ratio: true, executionsBefore: true, executionsAfter: true, costRatio: true });
const place = DiffPlace.omit({ uri: true }).extend({ file, line }).nullable();
const side = DiffSide.omit({ periodCycles: true });
export const diffOut = z.object({
  before: side,
  after: side,
  normalizedBy: z.string(),
  exposure: z.number().describe('samples after for each sample before if nothing had changed'),
  total: change,
  procedures: z.array(change.extend({ id: z.string(), label: z.string(), image: z.string(), confidence: LineCost.shape.confidence })),
  lines: z.array(change.extend({ file: z.string(), lineBefore: line, lineAfter: line })),
  instructions: z.array(change.extend({ kind: z.enum(['same', 'edited', 'removed', 'added']), before: place, after: place })),
  insignificantProcedures: z.number(),
  insignificantLines: z.number(),
  omittedRows: z.number(),
  notes,
});

/** docs/sql.md in short: a test compares the names. */
export const sqlTables = `Runs one query in DuckDB's SQL over all epochs, read only, for what no other tool answers: many recordings, hosts, containers, threads, joins.
Tables: epochs(epoch, name, host, start, end, cpu, backend, scope); events(epoch, event, period, unit, samples, seconds_per_sample); losses(epoch, event, kind, cause, count); samples(epoch, image, event, offset, count, app, instance, thread, cpu, cgroup); totals(epoch, host, image, path, event, app, cgroup, count); applications(epoch, app, event, count); instances(epoch, app, instance, event, count); images(image, path, arch, kind: file, kernel, module, vdso, jit, unknown); procedures(image, start, end, name, demangled); procedure_samples(epoch, event, image, procedure, demangled, count); stacks(epoch, stack, event, app, instance, count, depth, end); frames(epoch, stack, depth: 0 innermost, image, offset, demangled, inlined, file, line); lines(image, offset, file, line); instructions(epoch, image, procedure, address, text, samples, executions, executions_min, executions_max, cpi, cpi_min, cpi_max, executions_relative, head_samples, issue_cycles_min, confidence, scale, demangled, file, line); stalls(epoch, image, procedure, address, kind, cause, cycles_min, cycles_max, share_min, share_max, culprit); blocks(epoch, image, procedure, address, executions, executions_min, executions_max, executions_relative, cpi, cpi_min, cpi_max, best_case_cpi, confidence); edges(epoch, image, procedure, from_address, to_address, executions, executions_relative); analyses(epoch, image, procedure, start, analysis: for Dwell itself).
Macros: dwell_epoch('latest' or a name) is an epoch's id; tables: dwell_diff(a, b), dwell_annotate(image, procedure), dwell_source(file).
image joins tables; count is samples: times events.seconds_per_sample it is CPU time. Rows of samples repeat: sum(count). Restrict instructions, stalls, blocks and edges by epoch = and procedure = constants, since each procedure is analysed. Quote "end", "offset", "start". Example: SELECT path, demangled, sum(count) AS n FROM procedure_samples JOIN images USING (image) WHERE epoch = dwell_epoch('latest') GROUP BY ALL ORDER BY n DESC LIMIT 20`;
export const sqlIn = z.object({
  query: z.string().min(1).describe('one SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN'),
  limit: limit(1000, 100).describe('rows at most'),
});
export const sqlOut = SqlResult;
