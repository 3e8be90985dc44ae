/**
 * What the MCP tools take and give, as schemas: an assistant reads the units and what a null means in them. Addresses are
 * those of the image's headers, lines count from 1. Shapes only; nothing here asks or tells anything.
 */
import * as z from 'zod/v4';

const share = (what: string): z.ZodNumber => z.number().describe(`${what}, 0 to 1`);
const cycles = z.number().nullable().describe('estimated processor cycles; null: the clock rate is unknown');
const seconds = z.number().nullable().describe('CPU time, measured; null: what was sampled is not time');
const scaleKind = z
  .enum(['absolute', 'program', 'procedure'])
  .describe('how far executions are known: absolute: as numbers; program, procedure: up to one factor of the program or of the procedure, so only ratios and bounds are given');
const unlessAbsolute = 'null: no estimate, or the scale is not absolute';
const cpi = z.number().nullable().describe(`cycles per instruction executed, estimated; ${unlessAbsolute}`);
const cpiMin = z.number().nullable().describe('the least it can be (90 % interval; without an absolute scale the least that is possible); null: no estimate');
const cpiMax = z.number().nullable().describe('the most it can be (90 % interval); null: no estimate, or nothing bounds it');
const executions = z.number().nullable().describe(`estimated; ${unlessAbsolute}`);
const perEntry = z
  .object({ executions: z.number(), of: z.enum(['loop', 'procedure']) })
  .nullable()
  .describe('executions for each entry of the innermost loop or of the procedure: a ratio, known on any scale');
const bestCaseCpi = z.number().nullable().describe('cycles per instruction if nothing had to be waited for; null: no estimate');
const samples = z.record(z.string(), z.number()).describe('samples by event');
const confidence = z.enum(['low', 'medium', 'high']).describe('how far to trust the estimates (cycles per instruction, executions)');
const file = z.string().nullable().describe('path of the source file; null: unknown');
const line = z.number().int().nullable().describe('line, from 1; null: unknown');
const notes = z.array(z.string()).describe('what one must know to read the answer: losses, missing sources, guesses');

const selectors = z.array(z.string().min(1)).min(1);
const epochs = selectors
  .optional()
  .describe("epochs to merge: ids, names, 'latest', 'latest~1' (the one before); without it the latest alone");
const procedure = z.string().min(1).describe("'NAME', 'IMAGE:NAME' or an id that another tool gave; NAME is the linkage name");
const limit = (most: number, usual: number): z.ZodDefault<z.ZodNumber> => z.number().int().min(1).max(most).default(usual);

const losses = z
  .object({
    lost: z.number().describe('samples that were dropped'),
    throttled: z.number().describe('times the kernel throttled sampling'),
    unknown: z.number().describe('samples of code in no known file'),
  })
  .describe('what the epochs shown here miss');

export const epochsOut = z.object({
  epochs: z
    .array(
      z.object({
        id: z.string(),
        name: z.string().nullable(),
        start: z.string().describe('RFC 3339, UTC'),
        end: z.string().nullable().describe('RFC 3339, UTC; null: it is still being collected'),
        host: z.string(),
        cpu: z.string(),
        scope: z.string().describe('what was sampled'),
        samples,
        losses,
        notes,
      }),
    )
    .describe('oldest first'),
  warnings: z.array(z.string()).describe('files that were skipped, each with its reason'),
});

export const hotIn = z.object({
  by: z.enum(['procedure', 'image', 'line', 'app']).default('procedure').describe('one row for each of these'),
  limit: limit(500, 20).describe('rows at most'),
  image: z.string().min(1).optional().describe('only images (executables, libraries) whose path, file name or id contains this'),
  epochs,
});
export const hotOut = z.object({
  epochs: z.array(z.string()).describe('ids of the epochs that were merged'),
  total: samples,
  losses,
  rows: z
    .array(
      z.object({
        id: z.string().describe("by procedure: what 'listing', 'summary' and 'diff' take"),
        label: z.string(),
        image: z.string().nullable(),
        file,
        line,
        samples,
        share: share('part of all time'),
        cumulativeShare: share("this row's and all rows' before it"),
        cycles,
        scale: scaleKind.nullable(),
        cpi,
        cpiMin,
        cpiMax,
      }),
    )
    .describe('most costly first'),
  omittedRows: z.number().describe('rows beyond the limit'),
  notes,
});

export const listingIn = z.object({
  procedure,
  offset: z.number().int().min(0).default(0).describe('first instruction, from 0'),
  limit: limit(2000, 200).describe('instructions at most'),
  epochs,
});
const stall = z.object({
  kind: z.enum(['static', 'dynamic']).describe('static: it follows from the instructions alone'),
  cause: z.string(),
  label: z.string().describe('the cause for people'),
  cyclesMin: z.number().describe('cycles per execution that it explains at least'),
  cyclesMax: z.number().nullable().describe('cycles per execution that it may explain at most; null: of a dynamic stall, where the scale is not absolute'),
  shareMin: share("part of the instruction's time that it explains at least"),
  shareMax: share("part of the instruction's time that it may explain at most"),
  culpritAddress: z.number().nullable().describe('the instruction to blame; null: none is known'),
  sources: z
    .array(z.object({ level: z.enum(['l2', 'last-level', 'memory']), part: z.number().nullable().describe('part of executions, were it the only one; null: the scale is not absolute') }))
    .describe('of a data cache miss: the levels of the memory that alone can explain cyclesMax'),
  levels: z.array(z.string()).describe('of a data cache miss: all levels of the memory that the interval allows'),
});
export const listingOut = z.object({
  epoch: z.string(),
  procedure: z.string(),
  image: z.string(),
  machineModel: z.string().describe('the processor model behind the estimates'),
  scale: z.object({ kind: scaleKind, evidence: z.array(z.string()) }).describe('how far executions are known, and by what'),
  share: share('part of all time'),
  samples,
  instructions: z.array(
    z.object({
      address: z.number(),
      text: z.string().describe('mnemonic and operands'),
      file,
      line,
      headSamples: z.number().describe('samples of time during which this instruction was waited for'),
      executions,
      executionsMin: executions.describe('the least they can be (90 % interval); null likewise'),
      executionsMax: executions.describe('the most they can be (90 % interval); null likewise'),
      executionsRelative: z.number().nullable().describe('executions up to the factor that the scale leaves open: compare, do not read as a number'),
      cpi: cpi.describe(`cycles it was waited for, per execution; ${unlessAbsolute}`),
      cpiMin,
      cpiMax,
      confidence,
      stalls: z.array(stall).describe('why it was waited for; several causes of one stall are alternatives'),
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
  source: z
    .enum(['fresh', 'mapped', 'stale', 'unchecked'])
    .describe('the file now against the file as built: the same; edited, lines found again; too different; could not be compared'),
  lines: z.array(
    z.object({
      line: z.number().int(),
      text: z.string().nullable().describe('the line as it is now'),
      share: share('part of all time, inlined copies included'),
      seconds,
      samples,
      cycles,
      scale: scaleKind,
      executions: executions.describe(`estimated executions of the line's most executed instruction; ${unlessAbsolute}`),
      executionsMin: executions.describe('the least they can be (90 % interval); null likewise'),
      executionsMax: executions.describe('the most they can be (90 % interval); null likewise'),
      perEntry,
      cpi,
      cpiMin,
      cpiMax,
      bestCaseCpi,
      confidence,
      culprits: z
        .array(
          z.object({
            kind: z.enum(['static', 'dynamic']),
            cause: z.string(),
            label: z.string().describe('the cause for people'),
            cyclesMin: cycles,
            cyclesMax: cycles,
            shareMax: share("part of the line's cycles that it may explain at most"),
            file,
            line,
          }),
        )
        .describe('leading causes of lost cycles, most costly first; file and line: where the instruction to blame is'),
      ties: z
        .array(
          z.object({
            text: z.string(),
            culprits: z.array(z.number().int()).describe('indices into culprits, the likeliest first'),
            shareMax: share("part of the line's time that they may explain at most, all together"),
            cyclesMin: cycles,
            cyclesMax: cycles,
          }),
        )
        .describe('the same with causes that cannot be told apart as one: name them all, in the words of text'),
      procedures: z.array(z.string()),
    }),
  ),
  procedures: z.array(z.object({ id: z.string(), label: z.string(), line: z.number(), share: share('part of all time'), seconds, cycles, scale: scaleKind, cpi, cpiMin, cpiMax, bestCaseCpi })),
  omittedLines: z.number().describe('lines below minShare'),
  notes,
});

export const summaryIn = z.object({
  procedure: procedure.optional(),
  image: z.string().min(1).optional().describe('images whose path, file name or id contains this; with neither: everything'),
  epochs,
});
export const summaryOut = z
  .object({
    epochs: z.array(z.string()),
    scope: z.object({ kind: z.string(), name: z.string() }),
    machineModel: z.string(),
    samples: z.number().describe('of time'),
    procedures: z.number().describe('procedures that were analysed'),
    proceduresLeftOut: z.number().describe('those with samples that could not be, or are too small to matter'),
    talliedShare: share('part of them that the table is made of: those of instructions whose frequency is known'),
    cycles,
    scale: scaleKind.nullable().describe('the least of all that was tallied'),
    instructions: executions.describe(`estimated instructions executed; ${unlessAbsolute}`),
    cpi,
    cpiMin,
    cpiMax,
    bestCaseCpi,
    dynamic: z
      .array(z.object({ cause: z.string(), label: z.string(), shareMin: z.number(), shareMax: z.number() }))
      .describe('each cause explains at least shareMin and at most shareMax of the tallied cycles; ranges of several causes overlap'),
    unexplainedStall: z.number(),
    unexplainedGain: z.number(),
    subtotalDynamic: z.number(),
    staticCauses: z.array(z.object({ cause: z.string(), label: z.string(), share: z.number() })),
    subtotalStatic: z.number(),
    totalStall: z.number(),
    execution: z.number(),
    netSamplingError: z.number(),
    notes,
  })
  .describe('subtotalDynamic + subtotalStatic + execution + netSamplingError = 1, parts of the tallied cycles');

export const diffIn = z.object({
  before: selectors.describe("epochs before the change: ids, names, 'latest~1'"),
  after: selectors.default(['latest']).describe('epochs after it'),
  procedure: procedure.optional().describe('this procedure alone, with its instructions'),
  normalize: z
    .string()
    .min(1)
    .optional()
    .describe("what makes the runs comparable: 'run' (unless said: both did the same work), 'time', 'samples', or a procedure that did the same in both"),
  all: z.boolean().default(false).describe('what may be chance too'),
  limit: limit(500, 20).describe('procedures and lines at most'),
});
const verdict = z
  .enum(['new', 'gone', 'slower', 'faster', 'more-often', 'less-often', 'more', 'less', 'noise'])
  .describe('slower, faster: each execution; more-often, less-often: executions; more, less: the evidence does not tell which of them; noise: may be chance');
const change = {
  verdict,
  samplesBefore: z.number(),
  samplesAfter: z.number().describe('as they are, not normalized'),
  changeShare: z.number().describe('normalized change as a part of all time before; positive: costs more'),
  changeCycles: z.number().nullable(),
  countRatio: z.number().nullable().describe('executions after over before; null: the evidence of both sides does not tell count from cost'),
  cpiBefore: z.number().nullable(),
  cpiAfter: z.number().nullable(),
  p: z.number().describe('how likely a change as large is if there is none'),
  falseDiscoveryRate: z.number().describe('part of false calls among all rows as sure as this one'),
  significant: z.boolean(),
};
const place = z.object({ address: z.number(), text: z.string(), file, line }).nullable();
const side = z.object({ epochs: z.array(z.string()), cpu: z.string(), machineModel: z.string(), event: z.string(), samples: z.number() });
export const diffOut = z.object({
  before: side,
  after: side,
  normalizedBy: z.string(),
  exposure: z.number().describe('samples after for each sample before if nothing had changed'),
  total: z.object(change),
  procedures: z.array(z.object({ id: z.string(), label: z.string(), image: z.string(), confidence, ...change })),
  lines: z.array(z.object({ file: z.string(), lineBefore: line, lineAfter: line, ...change })),
  instructions: z.array(z.object({ kind: z.enum(['same', 'edited', 'removed', 'added']), before: place, after: place, ...change })),
  insignificantProcedures: z.number(),
  insignificantLines: z.number(),
  omittedRows: z.number(),
  notes,
});
