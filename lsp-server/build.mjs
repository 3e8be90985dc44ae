// Bundles the server into dist/: server.js and, beside it, the native module. Nothing else is needed to run it.
import { build } from 'esbuild';
import { copyFile, mkdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';

const here = import.meta.dirname;
const dist = join(here, 'dist');
const core = join(here, '../core/node');
const { version } = JSON.parse(await readFile(join(here, 'package.json'), 'utf8'));

await mkdir(dist, { recursive: true });
await build({
  entryPoints: [join(here, 'src/main.ts')],
  outfile: join(dist, 'server.js'),
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'cjs',
  banner: { js: '#!/usr/bin/env node' },
  define: { DWELL_VERSION: JSON.stringify(version) },
  external: ['./dwell-core.node'],
  sourcemap: true,
  legalComments: 'linked',
  logLevel: 'warning',
});

// A running server keeps the old file: writing into it would crash that server.
const copy = join(dist, `.${process.pid}.tmp`);
try {
  await copyFile(join(core, `dwell-core.${process.platform}-${process.arch}.node`), copy);
  await rename(copy, join(dist, 'dwell-core.node'));
} catch (error) {
  console.error(`dwell-lsp: no native module to put beside the server: ${error.message}: run \`npm run build -w @dwell/core\` first`);
  process.exitCode = 1;
}
