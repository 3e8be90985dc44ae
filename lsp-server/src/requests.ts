/**
 * What clients send, as schemas: the one definition of its types, and what reads it. A parameter that is missing or wrong is refused
 * by name. An optional one that is not understood is left out, since clients send null or an empty text for nothing.
 */
import { ErrorCodes, ResponseError } from 'vscode-languageserver';
import * as z from 'zod/mini';

export type Schema = z.ZodMiniType;
/** What a schema reads: members that are not there are left out. */
export type Read<S extends Schema> = Present<z.output<S>>;
type Present<T> = T extends readonly unknown[] ? T : { [K in keyof T]: Exclude<T[K], undefined> };

const text = z.string().check(z.minLength(1));
const texts = z.array(z.string());
const epochs = texts.check(z.minLength(1));
const positive = z.int().check(z.positive());

/** Leaves out what is not as it should be: clients send null, or an empty text, for nothing. */
function lenient<S extends Schema>(schema: S): z.ZodMiniCatch<z.ZodMiniOptional<S>> {
  return z.catch(z.optional(schema), undefined);
}

/** A text that must be there; `what` says how it is wrong. */
function needed(what: string): z.ZodMiniString {
  return z.string(what).check(z.minLength(1, what));
}

function rowNumber(what: string): z.ZodMiniNumberFormat {
  return z.int(what).check(z.nonnegative(what));
}

function parameters<Shape extends z.core.$ZodShape>(shape: Shape): z.ZodMiniObject<Shape> {
  return z.object(shape, 'must be an object');
}

const epochList = 'must be a list of recordings';
const namedEpochs = z.array(z.string(epochList), epochList).check(z.minLength(1, epochList));
const rows = z.exactOptional(rowNumber('must be a number of rows'));
const procedure = needed('must name one');
const textDocument = z.object({ uri: needed('must name a document') }, 'must have a uri');

/** The parameters of requests that take none; clients send what they like. */
export const Nothing = z.unknown();

export const HotProceduresParams = parameters({
  by: z.exactOptional(z.enum(['procedure', 'image', 'line', 'app'], 'must be procedure, image, line or app')),
  /** Rows to skip. */
  offset: rows,
  /** Rows to return. */
  limit: rows,
  /** Without cpi and location, which take long to find, for a list of thousands. */
  bare: lenient(z.boolean()),
  split: lenient(z.boolean()),
});
export type HotProceduresParams = Read<typeof HotProceduresParams>;
export const ListingParams = parameters({ procedure });
export type ListingParams = Read<typeof ListingParams>;
export const CfgParams = parameters({ procedure });
export type CfgParams = Read<typeof CfgParams>;
export const FlameParams = parameters({
  /** Events whose stacks are in the tree; none: the event of time. */
  events: lenient(epochs),
  /** How many of the largest frames are kept apart. */
  frames: lenient(positive),
  /** Without the analysis of functions, which takes long to compute. */
  bare: lenient(z.boolean()),
});
export type FlameParams = Read<typeof FlameParams>;
export const SqlParams = parameters({
  /** One query in SQL over all epochs (docs/sql.md). */
  query: needed('must be a query'),
  /** Rows to return; 1,000 unless said. */
  limit: lenient(positive),
});
export type SqlParams = Read<typeof SqlParams>;
export const FileCostsParams = parameters({ textDocument });
export type FileCostsParams = Read<typeof FileCostsParams>;
export const FileChangesParams = parameters({ textDocument });
export type FileChangesParams = Read<typeof FileChangesParams>;
export const LineParams = parameters({ textDocument, line: rowNumber('must be a line, from 0') });
export type LineParams = Read<typeof LineParams>;
export const SummaryParams = parameters({ procedure: lenient(text), image: lenient(text), under: lenient(text), epochs: lenient(epochs) });
export type SummaryParams = Read<typeof SummaryParams>;
export const DiffParams = parameters({
  before: z.exactOptional(namedEpochs),
  after: z.exactOptional(namedEpochs),
  procedure: lenient(text),
  /** `run` (unless said), `time`, `samples`, or a procedure that did the same work in both. */
  normalize: lenient(text),
  all: lenient(z.boolean()),
  limit: rows,
});
export type DiffParams = Read<typeof DiffParams>;
export const StatsParams = parameters({
  epochs: namedEpochs,
  against: lenient(texts),
  normalize: lenient(text),
  limit: rows,
  shareMin: lenient(z.number()),
  image: lenient(text),
});
export type StatsParams = Read<typeof StatsParams>;

/** A call on the way from a function to its callers or callees. */
export const CallStep = parameters({ function: needed('must be a function'), image: z.string('must be a file name'), inlined: z.boolean('must be a boolean') });
export type CallStep = Read<typeof CallStep>;
const position = parameters({ line: rowNumber('must be a line, from 0'), character: rowNumber('must be a character, from 0') });
export const CallersParams = parameters({
  /** `NAME` or `BINARY:NAME`; without it, the function at `position` of `textDocument`. */
  function: lenient(text),
  textDocument: z.exactOptional(textDocument),
  position: z.exactOptional(position),
  /** What it calls, instead of who calls it. */
  callees: lenient(z.boolean()),
  /** The way to the rows, from the function on; the rows are those that follow it. */
  through: z.exactOptional(z.array(CallStep, 'must be a list of calls')),
});
export type CallersParams = Read<typeof CallersParams>;
/** `data` of the items of a call hierarchy. */
export const CallHierarchyData = parameters({
  function: needed('must be a function'), through: z.array(CallStep, 'must be a list of calls'), callees: z.exactOptional(z.boolean('must be a boolean')),
});
export type CallHierarchyData = Read<typeof CallHierarchyData>;

/** The argument of `dwell.server.record` and `recordCommandLine`: a command, or processes that run. */
export const RecordParams = parameters({
  command: lenient(epochs),
  pids: lenient(z.array(positive).check(z.minLength(1))),
  cwd: lenient(text),
  name: lenient(text),
  seconds: lenient(positive),
}).check(z.refine(({ command, pids }) => command !== undefined || pids !== undefined, "must have a 'command' of texts, or 'pids' of processes"));
export type RecordParams = Read<typeof RecordParams>;
/** `dwell.server.countCalls`' argument: a function as `dwell callpaths` takes it, or the one at a position. */
export const CountCallsParams = parameters({
  pids: z.array(positive, 'must be a list of processes').check(z.minLength(1, 'must be a list of processes')),
  function: lenient(text),
  textDocument: z.exactOptional(textDocument),
  position: z.exactOptional(position),
}).check(z.refine(({ function: name, textDocument, position }) => name !== undefined || (textDocument !== undefined && position !== undefined), "must name a 'function', or a 'position' in a 'textDocument'"));
export type CountCallsParams = Read<typeof CountCallsParams>;
/** `dwell.server.stopCounting`'s argument. */
export const CountId = z.int('must be the id of a count').check(z.positive('must be the id of a count'));
/** `dwell.server.newEpoch`'s argument. */
export const NewEpochParams = parameters({ name: lenient(text) });
export type NewEpochParams = Read<typeof NewEpochParams>;
/** `dwell.server.renameEpoch`'s argument. */
export const RenameEpochParams = parameters({
  epoch: needed('must be a text'),
  name: needed('must be a text'),
});
export type RenameEpochParams = Read<typeof RenameEpochParams>;
/** `dwell.server.importPerf`'s argument. */
export const ImportPerfParams = parameters({ path: needed('must name a file'), name: lenient(text) });
export type ImportPerfParams = Read<typeof ImportPerfParams>;
/** `dwell.server.report`'s argument. */
export const ReportParams = parameters({ path: needed('must name a file') });
export type ReportParams = Read<typeof ReportParams>;
/** `dwell.server.compare`'s argument; null ends the comparison. */
export const CompareParams = parameters({ before: namedEpochs, after: lenient(epochs) });
export type CompareParams = Read<typeof CompareParams>;
/** `dwell.server.removeEpochs`'s argument. */
export const EpochList = namedEpochs;
/** `dwell.server.selectEpochs`'s argument; empty: the latest. */
export const Selection = z.array(z.string(epochList), epochList);
/** `dwell.server.listing`'s argument. */
export const Procedure = needed('must be a function');

/** `initializationOptions`, and `dwell` in `workspace/didChangeConfiguration`; what is not understood keeps its default. */
export const Settings = parameters({
  database: lenient(text),
  epochs: lenient(epochs),
  hints: lenient(z.enum(['off', 'hot', 'all'])),
  hotShare: lenient(z.number().check(z.gte(0), z.lte(1))),
  dwellPath: lenient(text),
  diagnostics: lenient(z.boolean()),
  callHierarchy: lenient(z.boolean()),
  sourceMap: lenient(z.record(z.string(), z.catch(z.string(), ''))),
  debugDirs: lenient(texts),
});
export type Settings = Read<typeof Settings>;

/** What a client sends in `capabilities.experimental.dwell`. */
export const ClientDwellCapabilities = parameters({ profileDidChange: lenient(z.boolean()), commandLinks: lenient(z.boolean()), drawsLineEnds: lenient(z.boolean()), callsDidChange: lenient(z.boolean()) });
export type ClientDwellCapabilities = Read<typeof ClientDwellCapabilities>;

/** Reads what was sent with the request or command `name`; refuses what is wrong, and names it. */
export function read<S extends Schema>(name: string, schema: S, sent: unknown): Read<S> {
  const { data, error } = z.safeParse(schema, sent ?? {});
  const [issue] = error?.issues ?? [];
  if (issue !== undefined) {
    const path = issue.path.filter((part) => typeof part === 'string').join('.');
    throw invalid(`${name}: ${path === '' ? 'the argument' : `'${path}'`} ${issue.message}`);
  }
  return present(data) as Read<S>;
}

function present(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined));
}

export function invalid(why: string): ResponseError {
  return new ResponseError(ErrorCodes.InvalidParams, why);
}
