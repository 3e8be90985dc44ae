// Lays out what the tests load: a folder with the extension over the fake server, and a workspace to open.
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { buildPackage, bundle, bundlePages } from '../build.mjs';
import { installExtension } from './vscodeWeb.mjs';

const run = promisify(execFile);

const here = import.meta.dirname;
const extension = join(here, '..');
const programs = join(extension, '..', 'test-fixtures', 'programs');

export function scratch() {
  return mkdtemp(join(tmpdir(), 'dwell-vscode-'));
}

/** The extension as it is packaged, but its server is the fake one. Returns its folder. */
export async function stageWithFake(root) {
  const folder = join(root, 'extension');
  await mkdir(folder, { recursive: true });
  for (const name of ['package.json', 'media', 'syntaxes']) await cp(join(extension, name), join(folder, name), { recursive: true });
  await bundle(join(extension, 'src', 'extension.ts'), join(folder, 'dist', 'extension.js'));
  await bundlePages(join(folder, 'dist'));
  await bundle(join(here, 'fakeServer.ts'), join(folder, 'dist', 'server.js'));
  return folder;
}

/** A module that the extension host runs. */
export async function stageSuite(root, name) {
  const file = join(root, `${name}.cjs`);
  await bundle(join(here, `${name}.ts`), file);
  return file;
}

/** A workspace with a few of the workloads. */
export async function stageWorkspace(root) {
  const folder = join(root, 'workspace');
  await mkdir(folder, { recursive: true });
  for (const name of ['chase.c', 'workload.h', 'hashjoin.rs']) await cp(join(programs, name), join(folder, name));
  await writeFile(join(folder, 'notes.txt'), 'No source, so no reason for the extension to wake up.\n');
  return folder;
}

/**
 * What a user has: the packaged extension, installed, a folder with programs, and an empty database. `development` is a
 * folder with an extension of no use, which the extension host asks for when it is to run tests. `roots` is a workspace of
 * two folders: the programs, and one that was built elsewhere and has a database of its own.
 */
export async function stageReal(root) {
  const extensions = join(root, 'extensions');
  const vsix = join(root, 'dwell.vsix');
  await buildPackage(vsix);
  await installExtension({ extensions, vsix });
  const development = join(root, 'host');
  await mkdir(development, { recursive: true });
  const manifest = { name: 'dwell-test-host', publisher: 'dwell', version: '0.0.0', engines: { vscode: '*' } };
  await writeFile(join(development, 'package.json'), JSON.stringify(manifest));
  await run(join(programs, 'build.sh'));
  const roots = await stageRoots(root);
  return { extensions, development, workspace: programs, roots, machineSettings: { 'dwell.database': join(root, 'database') } };
}

/** A program as a container leaves it: its debug information names folders that are not here. */
async function stageRoots(root) {
  const app = join(root, 'app');
  await mkdir(join(app, '.vscode'), { recursive: true });
  for (const name of ['chase.c', 'workload.h']) await cp(join(programs, name), join(app, name));
  await run('gcc', ['-O2', '-g', `-ffile-prefix-map=${app}=/build/app`, '-o', join(app, 'chase'), join(app, 'chase.c')], { cwd: app });
  const settings = { 'dwell.database': join(root, 'database-app'), 'dwell.sourceMap': { '/build/app': app } };
  await writeFile(join(app, '.vscode', 'settings.json'), JSON.stringify(settings, null, 2));
  const roots = join(root, 'roots.code-workspace');
  await writeFile(roots, JSON.stringify({ folders: [{ path: programs }, { path: app }] }));
  return roots;
}
