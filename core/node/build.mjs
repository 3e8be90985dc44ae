// Builds the native module and puts it beside index.js. `napi build` would compile every crate a second time, for an
// explicit target; this shares its build with dwell's. `--debug`: unoptimized.
import { execFileSync } from 'node:child_process';
import { copyFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { building } from '../../scripts/cargo.mjs';

const here = import.meta.dirname;
const release = !process.argv.includes('--debug');
const library = { darwin: 'libdwell_node.dylib', win32: 'dwell_node.dll' }[process.platform] ?? 'libdwell_node.so';
const cargo = (...args) => execFileSync('cargo', args, { cwd: here, stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 26 });

cargo(...building({ release }));
const { target_directory: target } = JSON.parse(cargo('metadata', '--no-deps', '--format-version', '1'));
// A running process keeps the old file: writing into it would crash that process.
const copy = join(here, `.${process.pid}.tmp`);
copyFileSync(join(target, release ? 'release' : 'debug', library), copy);
renameSync(copy, join(here, `dwell-core.${process.platform}-${process.arch}.node`));
