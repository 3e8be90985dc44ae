// Bundles the server into dist/: server.js and, beside it, the native module. Nothing else is needed to run it.
import { build } from 'esbuild';
import { copyFile, mkdir, readFile, readdir, rename } from 'node:fs/promises';
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

const modules = (await readdir(core)).filter((name) => name.startsWith('dwell-core.') && name.endsWith('.node'));
if (modules.length === 0) {
  console.error('dwell-lsp: core/node has no dwell-core.*.node: run `npm run build -w @dwell/core` first');
  process.exitCode = 1;
}
for (const name of modules.slice(0, 1)) {
  // A running server keeps the old file: writing into it would crash that server.
  const copy = join(dist, `.${process.pid}.node`);
  await copyFile(join(core, name), copy);
  await rename(copy, join(dist, 'dwell-core.node'));
}
