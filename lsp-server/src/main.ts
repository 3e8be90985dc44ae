/**
 * `dwell-lsp`: reads the command line, loads the core, serves. Standard output belongs to the protocol.
 */
import { createConnection, ProposedFeatures } from 'vscode-languageserver/node';
import { errorMessage, type Binding } from './core';
import { serve } from './server';

/** Set by build.mjs. */
declare const DWELL_VERSION: string;

const usage = `Dwell's language server: where the cycles have gone, on source lines.

Usage: dwell-lsp --stdio

Options:
  --stdio                   speak over standard input and output
  --node-ipc                speak to a parent process of Node
  --clientProcessId <PID>   end when that process does
  --version                 print the version
  --help                    print this

PROTOCOL.md beside the sources describes what it adds to LSP.
`;

/** What the command line asks for; a text says what is wrong with it. */
function readArguments(args: readonly string[]): 'serve' | 'help' | 'version' | { wrong: string } {
  const rest = [...args];
  let wanted: 'serve' | 'help' | 'version' | undefined;
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === '--help' || arg === '-h') return 'help';
    if (arg === '--version' || arg === '-V') return 'version';
    if (arg === '--stdio' || arg === '--node-ipc') wanted = 'serve';
    else if (arg === '--clientProcessId') rest.shift();
    else if (!arg.startsWith('--clientProcessId=')) return { wrong: `'${arg}': unknown` };
  }
  return wanted ?? { wrong: 'nothing to speak over: give --stdio' };
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

function start(): void {
  let binding: Binding;
  try {
    binding = loadBinding();
  } catch (error) {
    fail(`the core cannot be loaded: ${errorMessage(error).split('\n')[0] ?? ''}: run 'npm run build'`, 1);
  }
  serve(createConnection(ProposedFeatures.all), { binding, version: DWELL_VERSION, folder: __dirname });
}

const asked = readArguments(process.argv.slice(2));
if (asked === 'help') process.stdout.write(usage);
else if (asked === 'version') process.stdout.write(`dwell-lsp ${DWELL_VERSION}\n`);
else if (asked === 'serve') start();
else fail(`${asked.wrong} (see --help)`, 2);
