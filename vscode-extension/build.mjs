// Bundles the extension into dist/: extension.js, server.js with its native .node beside it, and the `dwell` program.
//   node build.mjs             what an editor loads
//   node build.mjs --package   the same, then dwell-linux-ARCH.vsix
// The language server and the program are built before: `npm run build` at the top does all in order.
import { createVSIX } from '@vscode/vsce';
import { build } from 'esbuild';
import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { bundled, crates, notices, ownLicense } from '../scripts/package/components.mjs';

const run = promisify(execFile);
const here = import.meta.dirname;
const top = join(here, '..');
const dist = join(here, 'dist');
const target = `linux-${process.arch}`;

/** What Node runs, from TypeScript; `vscode` is VS Code's to give. */
export function bundle(entry, outfile) {
  return build({
    entryPoints: [entry], outfile, external: ['vscode'], bundle: true, platform: 'node', format: 'cjs', target: 'node20',
    sourcemap: true, minify: true, keepNames: true, logLevel: 'warning', loader: { '.css': 'text' },
  });
}

/** What a webview's page runs. */
function bundlePage(entry, outfile) {
  return build({ entryPoints: [entry], outfile, bundle: true, platform: 'browser', format: 'iife', target: 'es2022', minify: true, logLevel: 'warning' });
}

/** The scripts of all pages. */
export async function bundlePages(folder) {
  for (const name of ['hotList', 'flame', 'sql']) await bundlePage(join(here, 'src', name, 'script.ts'), join(folder, `${name}.js`));
}

/** Builds dist/ and packs it, with what the manifest names, into `vsix`. */
export async function buildPackage(vsix) {
  await buildDist();
  await writeFile(join(here, 'LICENSE'), ownLicense());
  await writeFile(join(dist, 'NOTICES.txt'), notices([...crates(['dwell-cli', 'dwell-node']), ...(await bundled())]));
  await createVSIX({ cwd: here, target, dependencies: false, allowMissingRepository: true, packagePath: vsix });
}

async function buildDist() {
  await rm(dist, { recursive: true, force: true });
  await mkdir(join(dist, 'bin'), { recursive: true });
  await bundle(join(here, 'src', 'extension.ts'), join(dist, 'extension.js'));
  await bundlePages(dist);
  for (const name of ['server.js', 'mcp.js']) await copyIn(join(top, 'lsp-server', 'dist', name), join(dist, name));
  await copyIn(join(top, 'lsp-server', 'dist', 'dwell-core.node'), join(dist, 'dwell-core.node'));
  const program = process.env.DWELL_BIN ?? join(process.env.CARGO_TARGET_DIR ?? join(top, 'target'), 'release', 'dwell');
  await copyIn(program, join(dist, 'bin', 'dwell'));
  await chmod(join(dist, 'bin', 'dwell'), 0o755);
  // Symbols stay, line tables go: they are nine tenths of the size. Without binutils the package is only larger.
  for (const file of [join(dist, 'dwell-core.node'), join(dist, 'bin', 'dwell')]) await run('strip', ['--strip-debug', file]).catch(() => {});
}

async function copyIn(from, to) {
  await copyFile(from, to).catch((error) => {
    if (error.code !== 'ENOENT') throw error;
    throw new Error(`no ${from}: run \`npm run build\` at the top first`);
  });
}

if (process.argv[1] === import.meta.filename) {
  try {
    if (process.argv.includes('--package')) await buildPackage(join(here, `dwell-${target}.vsix`));
    else await buildDist();
  } catch (error) {
    console.error(`dwell: building the extension: ${error.message}`);
    process.exitCode = 1;
  }
}
