/**
 * `dwell-lsp`: reads the command line, loads the core, serves editors or assistants. Standard output belongs to the protocol.
 */
import { createConnection, ProposedFeatures } from 'vscode-languageserver/node';
import { errorMessage, type Binding } from './core';
import type { McpOptions } from './mcp/server';
import { serve } from './server';
import { readSettings } from './settings';

/** Set by build.mjs. */
declare const DWELL_VERSION: string;

const usage = `Dwell's language server: where the cycles have gone, on source lines.

Usage: dwell-lsp --stdio
       dwell-lsp --mcp [--database <FOLDER>]

Options:
  --stdio                   speak LSP over standard input and output
  --node-ipc                speak to a parent process of Node
  --clientProcessId <PID>   end when that process does
  --mcp                     speak MCP, the Model Context Protocol, over standard input and output
  --database <FOLDER>       with --mcp: the profile database; else $DWELL_DB, else $XDG_DATA_HOME/dwell
  --version                 print the version
  --help                    print this

PROTOCOL.md beside the sources describes what it adds to LSP.
`;

type Asked = { serve: 'lsp' } | { serve: 'mcp'; database: string | undefined } | { print: string } | { wrong: string };

/** What the command line asks for; `wrong` says what is not right with it. */
function readArguments(args: readonly string[]): Asked {
  const rest = [...args];
  let lsp = false;
  let mcp = false;
  let database: string | undefined;
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === '--help' || arg === '-h') return { print: usage };
    if (arg === '--version' || arg === '-V') return { print: `dwell-lsp ${DWELL_VERSION}\n` };
    if (arg === '--stdio' || arg === '--node-ipc') lsp = true;
    else if (arg === '--mcp') mcp = true;
    else if (arg === '--database') {
      database = rest.shift();
      if (database === undefined) return { wrong: "'--database': a folder must follow" };
    } else if (arg === '--clientProcessId') rest.shift();
    else if (!arg.startsWith('--clientProcessId=')) return { wrong: `'${arg}': unknown` };
  }
  if (mcp) return { serve: 'mcp', database };
  if (database !== undefined) return { wrong: "'--database': only with --mcp; LSP clients send it as a setting" };
  return lsp ? { serve: 'lsp' } : { wrong: 'nothing to speak: give --stdio or --mcp' };
}

/** The native module; build.mjs puts it beside this file. */
function loadBinding(): Binding {
  // eslint-disable-next-line @typescript-eslint/no-require-imports -- a bundle's only way to its native neighbour
  return require('./dwell-core.node') as Binding;
}

function fail(why: string, status: number): never {
  process.stderr.write(`dwell-lsp: ${why}\n`);
  process.exit(status);
}

function start(use: (binding: Binding) => void): void {
  let binding: Binding;
  try {
    binding = loadBinding();
  } catch (error) {
    fail(`the core cannot be loaded: ${errorMessage(error).split('\n')[0] ?? ''}: run 'npm run build'`, 1);
  }
  use(binding);
}

/** In a file of its own, so that an editor's server need not hold it in memory; build.mjs puts it beside this one. */
function loadMcp(): { serveMcp(options: McpOptions): void } {
  try {
    // eslint-disable-next-line @typescript-eslint/no-require-imports -- loaded only when it is asked for
    return require('./mcp.js') as typeof import('./mcp/server');
  } catch (error) {
    fail(`MCP cannot be loaded: ${errorMessage(error).split('\n')[0] ?? ''}`, 1);
  }
}

const asked = readArguments(process.argv.slice(2));
if ('wrong' in asked) fail(`${asked.wrong} (see --help)`, 2);
else if ('print' in asked) process.stdout.write(asked.print);
else if (asked.serve === 'lsp') {
  start((binding) => {
    serve(createConnection(ProposedFeatures.all), { binding, version: DWELL_VERSION, folder: __dirname });
  });
} else {
  const { database } = readSettings({ database: asked.database });
  start((binding) => {
    loadMcp().serveMcp({ binding, version: DWELL_VERSION, database, folder: __dirname });
  });
}
