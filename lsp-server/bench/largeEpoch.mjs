// A large epoch to measure by: a program with more than 100 MB of debug information, 500 images, 10,000 procedures with
// samples, two epochs. Counts are made up and imported; everything else is real: gcc's DWARF, the linker's images.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeLargeProgram } from '../../scripts/bench/large.mjs';
import { builtDwell } from '../test/fixture.ts';

const images = 500;
const procedures = 10_000;
const machine = ['--event', 'cpu-clock', '--period', '1000000', '--unit', 'ns', '--clock-hz', '3e9', '--machine', 'amd-zen4'];

/** Makes it below `folder`. `epochs`: their names. */
export function makeLargeEpoch(folder) {
  const dwell = builtDwell();
  if (dwell === undefined) throw new Error('the dwell program is not built: npm run build');
  const path = (...names) => join(folder, ...names);
  const run = (program, ...args) => execFileSync(program, args, { cwd: folder, encoding: 'utf8', maxBuffer: 1 << 29 });
  mkdirSync(path('images'), { recursive: true });
  const { program, file, debugBytes } = makeLargeProgram(folder);
  const table = [...countsOfLarge(run('nm', '--defined-only', program), program), ...countsOfOthers(path, run)];
  const others = Array.from({ length: images - 1 }, (_, n) => path('images', `lib${n}.so`));
  const epochs = ['first', 'second'];
  epochs.forEach((name, at) => {
    const rows = table.map(([image, address, count]) => `${image}\t${address}\t${count + at * (count % 3)}`);
    writeFileSync(path('counts.tsv'), `${rows.join('\n')}\n`);
    run(dwell, '--db', path('db'), '--json', 'import', '--counts', path('counts.tsv'), '--image', program, ...others, '--name', name, ...machine);
  });
  return { database: path('db'), file, program, epochs, debugBytes, images, procedures };
}

/** A few samples in each of the procedures, most in those of the file that is opened. */
function countsOfLarge(symbols, image) {
  const found = [...symbols.matchAll(/^([0-9a-f]+) [Tt] (u\d+_f\d+|hot\d+)$/gm)].map(([, address, name]) => ({ address: parseInt(address, 16), name }));
  const hot = found.filter(({ name }) => name.startsWith('hot'));
  const cold = found.filter(({ name }) => name.startsWith('u')).slice(0, procedures - hot.length);
  const rows = [];
  for (const { address } of hot) for (let at = 0; at < 12; at += 3) rows.push([image, (address + at).toString(16), 500 + at]);
  for (const { address } of cold) for (let at = 0; at < 40; at += 8) rows.push([image, (address + at).toString(16), 3 + (at % 5)]);
  return rows;
}

/** The other images: one small library, each copy with a build ID of its own. */
function countsOfOthers(path, run) {
  writeFileSync(path('small.c'), 'long small(long n) { long sum = 0; for (long i = 0; i < n; i++) sum += i * n; return sum; }\n');
  const id = 'd0'.repeat(20);
  run('gcc', '-O2', '-g', '-shared', '-fPIC', `-Wl,--build-id=0x${id}`, '-o', path('small.so'), path('small.c'));
  const [, address] = /^([0-9a-f]+) T small$/m.exec(run('nm', '--defined-only', path('small.so'))) ?? [];
  const bytes = readFileSync(path('small.so'));
  const at = bytes.indexOf(Buffer.from(id, 'hex'));
  return Array.from({ length: images - 1 }, (_, n) => {
    bytes.writeUInt32BE(n, at);
    const image = path('images', `lib${n}.so`);
    writeFileSync(image, bytes);
    return [image, address, 5 + (n % 7)];
  });
}
