// Bundles the extension into dist/: extension.js, server.js with its native .node beside it, and the `dwell` program.
//   node build.mjs             what an editor loads
//   node build.mjs --package   the same, then dwell-linux-ARCH.vsix
// The language server and the program are built before: `npm run build` at the top does all in order.
import { createVSIX } from '@vscode/vsce';
import { build } from 'esbuild';
import { chmod, copyFile, cp, mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

const here = import.meta.dirname;
const top = join(here, '..');

/** What Node runs, from TypeScript; `vscode` is VS Code's to give. */
export function bundle(entry, outfile) {
  return build({
    entryPoints: [entry], outfile, external: ['vscode'], bundle: true, platform: 'node', format: 'cjs', target: 'node20',
    sourcemap: true, minify: true, keepNames: true, logLevel: 'warning',
  });
}

/** Where `cargo build --release` put the program. */
export function programPath() {
  return process.env.DWELL_BIN ?? join(process.env.CARGO_TARGET_DIR ?? join(top, 'target'), 'release', 'dwell');
}

/** The server's bundle and its native module. */
export async function serverFiles() {
  const folder = join(top, 'lsp-server', 'dist');
  const names = await readdir(folder).catch(() => []);
  return names.filter((name) => name === 'server.js' || name.endsWith('.node')).map((name) => join(folder, name));
}

async function buildAll(dist) {
  await rm(dist, { recursive: true, force: true });
  await mkdir(join(dist, 'bin'), { recursive: true });
  await bundle(join(here, 'src', 'extension.ts'), join(dist, 'extension.js'));
  const server = await serverFiles();
  if (!server.some((file) => file.endsWith('server.js'))) throw new Error('no lsp-server/dist/server.js: run `npm run build` at the top first');
  for (const file of server) await copyFile(file, join(dist, file.slice(file.lastIndexOf('/') + 1)));
  const program = programPath();
  await stat(program).catch(() => { throw new Error(`no ${program}: run \`cargo build --release\` at the top first`); });
  await cp(program, join(dist, 'bin', 'dwell'));
  await chmod(join(dist, 'bin', 'dwell'), 0o755);
}

if (process.argv[1] === import.meta.filename) {
  try {
    await buildAll(join(here, 'dist'));
    if (process.argv.includes('--package')) {
      const target = `linux-${process.arch}`;
      await createVSIX({ cwd: here, target, dependencies: false, allowMissingRepository: true, skipLicense: true, packagePath: join(here, `dwell-${target}.vsix`) });
    }
  } catch (error) {
    console.error(`dwell: building the extension: ${error.message}`);
    process.exitCode = 1;
  }
}
