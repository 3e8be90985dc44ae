/**
 * Dwell's answers for assistants, over the Model Context Protocol: one tool for each question, nothing that changes a
 * profile. What cannot be answered is an error of the tool, in one line; what is merely incomplete says so in its notes.
 */
import { McpServer, type CallToolResult, type ServerContext } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import type * as z from 'zod/v4';
import { errorMessage, type Binding, type Cancel, type Core } from '../core';
import { inTurn } from '../sql';
import * as answers from './answers';
import * as schemas from './schemas';
import * as texts from './texts';

export interface McpOptions {
  binding: Binding;
  version: string;
  /** The profile database's folder. */
  database: string;
  /** The server's folder. */
  folder: string;
}

const instructions = `Dwell is a sampling profiler that explains stalls: it measures where the time went, works out what was waited for and, where there is evidence, how often each instruction ran.
Begin with hot_procedures (or epochs, to see what was recorded), then lines for a source file, listing for a procedure's instructions, summary for where cycles go by cause, callers for who calls a function, callees for what it calls, hottest_paths and inclusive for whole call trees, diff for what changed between two epochs, sql for any other question over one or all epochs.
Shares and seconds are measured. CPI is cycles per instruction; its best case is what it would be without waiting. Executions and CPI are numbers only where the scale is absolute; else use the bounds (cpiMin, cpiMax) and ratios (perEntry, executionsRelative), and do not guess the number. A stall's culprit is the instruction that was waited for. Causes that are tied cannot be told apart: name all of them. Causes come as ranges and may overlap: never add up their maxima. Estimates of low confidence are guesses; say so when you use them. Notes and losses tell what is missing.`;

/** Serves one client on standard input and output until it closes them. */
export function serveMcp(options: McpOptions): void {
  // What is wrong with a message is answered; standard error is for what cannot be.
  serveStdio(() => mcpServer(options), { onerror: (error) => process.stderr.write(`dwell-lsp: ${error.message}\n`) });
}

export function mcpServer(options: McpOptions): McpServer {
  const server = new McpServer({ name: 'dwell', version: options.version }, { instructions });
  const ask = asker(options);
  const annotations = { readOnlyHint: true, idempotentHint: true, openWorldHint: false };

  server.registerTool(
    'epochs',
    { title: 'Recordings', description: 'Lists the recordings with their samples and losses.', outputSchema: schemas.epochsOut, annotations },
    (context) => ask(context, async (core, cancel) => tell(schemas.epochsOut, await answers.epochs(core, cancel), texts.epochsText)),
  );
  server.registerTool(
    'hot_procedures',
    {
      title: 'Hot functions', description: 'Where the time went, most costly first: by function, image, source line or application.',
      inputSchema: schemas.hotIn, outputSchema: schemas.hotOut, annotations,
    },
    (asked, context) => ask(context, async (core, cancel) => tell(schemas.hotOut, await answers.hot(core, asked, cancel), texts.hotText)),
  );
  server.registerTool(
    'lines',
    {
      title: 'Costs of a file', description: 'What each line of a source file cost, where it waited, for what, and who is to blame.',
      inputSchema: schemas.linesIn, outputSchema: schemas.linesOut, annotations,
    },
    (asked, context) =>
      ask(context, async (core, cancel) => tell(schemas.linesOut, await answers.lines(core, asked, cancel), (answer) => texts.linesText(asked.path, answer))),
  );
  server.registerTool(
    'listing',
    {
      title: 'Listing', description: "A function's instructions with samples, cycles per execution or their bounds, stalls and culprits, source lines between them.",
      inputSchema: schemas.listingIn, outputSchema: schemas.listingOut, annotations,
    },
    (asked, context) =>
      ask(context, async (core, cancel) => {
        const answer = await core.listing(asked.epochs ?? ['latest'], asked.procedure, cancel);
        return tell(schemas.listingOut, answers.listing(answer, asked), () => texts.listingPage(answer, asked));
      }),
  );
  server.registerTool(
    'summary',
    {
      title: 'Summary', description: 'Where the cycles of a function, an image, of all under a function or of everything go, by cause, as ranges.',
      inputSchema: schemas.summaryIn, outputSchema: schemas.summaryOut, annotations,
    },
    (asked, context) => ask(context, async (core, cancel) => tell(schemas.summaryOut, await answers.summary(core, asked, cancel), texts.summaryText)),
  );
  server.registerTool(
    'callers',
    {
      title: 'Callers', description: 'Who calls a function, or what it calls, by the call stacks of its samples: a tree with shares and the lines of the calls.',
      inputSchema: schemas.callersIn, outputSchema: schemas.callersOut, annotations,
    },
    (asked, context) => ask(context, async (core, cancel) => tell(schemas.callersOut, await answers.callers(core, asked, cancel), texts.callersText)),
  );
  server.registerTool(
    'callees',
    {
      title: 'Callees', description: 'What a function calls, by the call stacks of the samples in it and in what it calls: a tree with shares and the lines of the calls.',
      inputSchema: schemas.calleesIn, outputSchema: schemas.callersOut, annotations,
    },
    (asked, context) =>
      ask(context, async (core, cancel) => tell(schemas.callersOut, await answers.callers(core, { ...asked, callees: true }, cancel), texts.callersText)),
  );
  server.registerTool(
    'hottest_paths',
    {
      title: 'Hottest paths', description: 'The heaviest call paths from the outermost function to the one that the samples are in, by the call stacks of samples, with shares.',
      inputSchema: schemas.pathsIn, outputSchema: schemas.pathsOut, annotations,
    },
    (asked, context) => ask(context, async (core, cancel) => tell(schemas.pathsOut, await answers.hottestPaths(core, asked, cancel), texts.pathsText)),
  );
  server.registerTool(
    'inclusive',
    {
      title: 'Inclusive samples', description: 'Functions by the samples in them and in all that they call, by the call stacks of samples.',
      inputSchema: schemas.inclusiveIn, outputSchema: schemas.inclusiveOut, annotations,
    },
    (asked, context) => ask(context, async (core, cancel) => tell(schemas.inclusiveOut, await answers.inclusive(core, asked, cancel), texts.inclusiveText)),
  );
  server.registerTool(
    'diff',
    {
      title: 'Diff', description: 'What changed between two runs: functions and lines, whether they ran more often or took longer, and whether it may be chance.',
      inputSchema: schemas.diffIn, outputSchema: schemas.diffOut, annotations,
    },
    (asked, context) => ask(context, async (core, cancel) => tell(schemas.diffOut, await answers.diff(core, asked, cancel), texts.diffText)),
  );
  server.registerTool(
    'sql',
    { title: 'SQL', description: schemas.sqlTables, inputSchema: schemas.sqlIn, outputSchema: schemas.sqlOut, annotations },
    (asked, context) => ask(context, async (core, cancel) => tell(schemas.sqlOut, await inTurn(core, options.folder, asked, cancel), texts.sqlText)),
  );
  return server;
}

/** The answer as text, and as what the schema has of it: clients take nothing that it does not name. */
function tell<T extends object>(schema: z.ZodObject, answer: T, text: (answer: T) => string): CallToolResult {
  return { content: [{ type: 'text', text: text(answer) }], structuredContent: schema.parse(answer) };
}

type Question = (core: Core, cancel: Cancel) => Promise<CallToolResult>;

/** Asks the core, opened at the first question that finds a database; errors become those of the tool. */
function asker({ binding, database }: McpOptions): (context: ServerContext, question: Question) => Promise<CallToolResult> {
  let opened: Core | undefined;
  return async ({ mcpReq: { signal } }, question) => {
    const cancel = new binding.Cancel();
    const stop = (): void => {
      cancel.cancel();
    };
    signal.addEventListener('abort', stop, { once: true });
    try {
      opened ??= binding.Dwell.open({ database });
      return await question(opened, cancel);
    } catch (error) {
      return { isError: true, content: [{ type: 'text', text: errorMessage(error).trim().replace(/\s*\n\s*/g, ' ') }] };
    } finally {
      signal.removeEventListener('abort', stop);
    }
  };
}
