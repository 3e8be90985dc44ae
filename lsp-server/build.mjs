// Bundles the server into dist/: server.js, mcp.js for assistants and, beside them, the native module. Nothing else is needed.
import { build } from 'esbuild';
import { copyFile, mkdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';

const here = import.meta.dirname;
const dist = join(here, 'dist');
const core = join(here, '../core/node');
const { version } = JSON.parse(await readFile(join(here, 'package.json'), 'utf8'));

await mkdir(dist, { recursive: true });
const options = {
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'cjs',
  define: { DWELL_VERSION: JSON.stringify(version) },
  external: ['./dwell-core.node', './mcp.js'],
  sourcemap: true,
  legalComments: 'linked',
  logLevel: 'warning',
};
await build({ ...options, entryPoints: [join(here, 'src/main.ts')], outfile: join(dist, 'server.js'), banner: { js: '#!/usr/bin/env node' } });
await build({ ...options, entryPoints: [join(here, 'src/mcp/server.ts')], outfile: join(dist, 'mcp.js') });

// A running server keeps the old file: writing into it would crash that server.
const copy = join(dist, `.${process.pid}.tmp`);
try {
  await copyFile(join(core, `dwell-core.${process.platform}-${process.arch}.node`), copy);
  await rename(copy, join(dist, 'dwell-core.node'));
} catch (error) {
  console.error(`dwell-lsp: no native module to put beside the server: ${error.message}: run \`npm run build -w @dwell/core\` first`);
  process.exitCode = 1;
}
