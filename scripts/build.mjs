// Builds everything that users get: dwell, the binding, the server, the extension with its .vsix, the workloads.

import { existsSync, readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { building } from './cargo.mjs';
import { forBuilding } from './needs.mjs';
import { must, Stop, target, terminal, top } from './step.mjs';

export const dwell = join(target, 'release/dwell');

/** Returns the newest modification time below `path`, without generated folders. */
function newest(path) {
  const status = statSync(path);
  if (!status.isDirectory()) return status.mtimeMs;
  const entries = readdirSync(path).filter((name) => !['node_modules', 'dist', 'test'].includes(name) && !name.endsWith('.vsix'));
  return entries.reduce((latest, name) => Math.max(latest, newest(join(path, name))), 0);
}

/** Returns whether `output` exists and is as new as every input. */
const fresh = (output, inputs) =>
  output !== undefined && existsSync(output) && inputs.every((input) => newest(resolve(top, input)) <= statSync(output).mtimeMs);

/** Returns the newest file in `folder` with this ending, if there is one. */
function latest(folder, end) {
  const found = readdirSync(join(top, folder)).filter((name) => name.endsWith(end)).map((name) => join(top, folder, name));
  return found.toSorted((a, b) => statSync(a).mtimeMs - statSync(b).mtimeMs).at(-1);
}

/** Returns the packed extension, if it was built. */
export const vsix = () => latest('vscode-extension', '.vsix');

/** Makes cargo print its progress, `120/308`, on a terminal. */
const progress = terminal ? { CARGO_TERM_PROGRESS_WHEN: 'always', CARGO_TERM_PROGRESS_WIDTH: '60' } : {};

/** Builds everything. cargo decides which of its crates are fresh; modification times decide the rest. */
export async function build() {
  await must('dwell', ['cargo', ...building()], { env: progress });
  if (!fresh(latest('core/node', '.node'), [join(target, 'release/libdwell_node.so')])) {
    await must('binding', ['npm', 'run', '-s', 'build', '-w', '@dwell/core']);
  }
  const server = join(top, 'lsp-server/dist/server.js');
  if (!fresh(server, ['lsp-server', latest('core/node', '.node')])) {
    await must('language server', ['npm', 'run', '-s', 'build', '-w', '@dwell/lsp-server']);
  }
  if (!fresh(vsix(), ['vscode-extension', server, dwell])) {
    await must('VS Code extension', ['npm', 'run', '-s', 'package', '-w', 'vscode-extension']);
  }
  await must('workloads', ['test-fixtures/programs/build.sh']);
}

/** Runs the `main` of a script and prints a `Stop` as one line. */
export async function main(body) {
  try {
    await body();
  } catch (error) {
    if (!(error instanceof Stop)) throw error;
    console.error(`dwell: ${error.message}`);
    process.exitCode = 1;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await main(async () => {
    await forBuilding();
    await build();
  });
}
