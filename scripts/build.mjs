// Builds everything that is handed to a user: dwell, the binding, the server, the extension with its .vsix, the workloads.

import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { forBuilding } from './needs.mjs';
import { must, Stop, target, top } from './step.mjs';

export const dwell = join(target, 'release/dwell');

/** The newest modification below `path`, generated folders aside. */
function newest(path) {
  const status = statSync(path);
  if (!status.isDirectory()) return status.mtimeMs;
  const entries = readdirSync(path).filter((name) => !['node_modules', 'dist', 'test'].includes(name) && !name.endsWith('.vsix'));
  return entries.reduce((latest, name) => Math.max(latest, newest(join(path, name))), 0);
}

/** Whether `output` exists and is newer than every input. */
const fresh = (output, inputs) => existsSync(output) && inputs.every((input) => newest(join(top, input)) <= statSync(output).mtimeMs);

/** The packed extension, if it was built. */
export function vsix() {
  const folder = join(top, 'vscode-extension');
  const name = readdirSync(folder).find((entry) => entry.endsWith('.vsix'));
  return name && join(folder, name);
}

/** Builds it all; cargo decides what of its own is fresh, modification times decide the rest. */
export async function build() {
  await must('dwell', ['cargo', 'build', '--release', '-p', 'dwell-cli', '-p', 'dwell-node']);
  await must('binding', ['npm', 'run', '-s', 'build', '-w', '@dwell/core']);
  const server = ['lsp-server', 'core/node'];
  if (!fresh(join(top, 'lsp-server/dist/server.js'), server)) {
    await must('language server', ['npm', 'run', '-s', 'build', '-w', '@dwell/lsp-server']);
  }
  if (!vsix() || !fresh(vsix(), ['vscode-extension', ...server])) {
    await must('VS Code extension', ['npm', 'run', '-s', 'package', '-w', 'vscode-extension']);
  }
  await must('workloads', ['test-fixtures/programs/build.sh']);
}

/** Runs a script's `main`, turning a `Stop` into its one line. */
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
