// A large epoch to measure by: a program with more than 100 MB of debug information, 500 images, 10,000 procedures with
// samples, two epochs. Counts are made up and imported; everything else is real: gcc's DWARF, the linker's images.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { builtDwell } from '../test/fixture.ts';

const copies = 80;
const functionsPerUnit = 1500;
const images = 500;
const procedures = 10_000;
const machine = ['--event', 'cpu-clock', '--period', '1000000', '--unit', 'ns', '--clock-hz', '3e9', '--machine', 'amd-zen4'];

/** One translation unit, rich in types, inlined calls and locals. */
function unitSource() {
  const inlined = Array.from({ length: 40 }, (_, n) => `static inline __attribute__((always_inline)) long mix${n}(struct s${n} *p, long x) {\n  long y = p->a ^ x;\n  p->b += y * ${n + 3};\n  return y + p->c[y & 7];\n}`);
  const types = Array.from({ length: 40 }, (_, n) => `struct s${n} { long a, b, c[8]; struct s${n} *next; unsigned flags${n} : ${1 + (n % 7)}; };`);
  const functions = Array.from({ length: functionsPerUnit }, (_, n) => {
    const m = n % 40;
    return `long f${n}(struct s${m} *p, struct s${(m + 1) % 40} *q, long n) {\n  long sum = n;\n  for (long i = 0; i < n; i++) {\n    long step = mix${m}(p, i), other = mix${(m + 1) % 40}(q, step);\n    sum += step ^ other;\n    if (sum & ${n + 1}) p = p->next;\n  }\n  return sum;\n}`;
  });
  return [...types, ...inlined, ...functions].join('\n') + '\n';
}

/** The file that is opened: as long as one that people write. */
function hotSource() {
  const functions = Array.from({ length: 60 }, (_, n) => `__attribute__((noinline)) long hot${n}(const long *p, long at, long n) {\n  while (n-- > 0)\n    at = p[at] ^ (at & ${n + 1});\n  return at;\n}\n`);
  const calls = Array.from({ length: 60 }, (_, n) => `  sum += hot${n}(p, sum & 7, argc);`);
  return `${functions.join('\n')}\nint main(int argc, char **argv) {\n  (void)argv;\n  long p[1024] = {0}, sum = 0;\n${calls.join('\n')}\n  return (int)sum;\n}\n`;
}

/** Makes it below `folder`. `epochs`: their names. */
export function makeLargeEpoch(folder) {
  const dwell = builtDwell();
  if (dwell === undefined) throw new Error('the dwell program is not built: npm run build');
  const path = (...names) => join(folder, ...names);
  const run = (program, ...args) => execFileSync(program, args, { cwd: folder, encoding: 'utf8', maxBuffer: 1 << 29 });
  mkdirSync(path('images'), { recursive: true });
  writeFileSync(path('unit.c'), unitSource());
  writeFileSync(path('hot.c'), hotSource());
  run('gcc', '-O2', '-g', '-c', path('unit.c'), '-o', path('unit.o'));
  run('gcc', '-O2', '-g', '-c', path('hot.c'), '-o', path('hot.o'));
  const units = Array.from({ length: copies }, (_, n) => path(`unit${n}.o`));
  units.forEach((unit, n) => run('objcopy', `--prefix-symbols=u${n}_`, path('unit.o'), unit));
  run('gcc', '-Wl,--build-id', '-o', path('large'), path('hot.o'), ...units);
  const table = [...countsOfLarge(run('nm', '--defined-only', path('large')), path('large')), ...countsOfOthers(path, run)];
  const others = Array.from({ length: images - 1 }, (_, n) => path('images', `lib${n}.so`));
  const epochs = ['first', 'second'];
  epochs.forEach((name, at) => {
    const rows = table.map(([image, address, count]) => `${image}\t${address}\t${count + at * (count % 3)}`);
    writeFileSync(path('counts.tsv'), `${rows.join('\n')}\n`);
    run(dwell, '--db', path('db'), '--json', 'import', '--counts', path('counts.tsv'), '--image', path('large'), ...others, '--name', name, ...machine);
  });
  return { database: path('db'), file: path('hot.c'), program: path('large'), epochs, debugBytes: debugBytes(run('size', '-A', path('large'))), images, procedures };
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

function debugBytes(sections) {
  return [...sections.matchAll(/^\.debug\S*\s+(\d+)/gm)].reduce((sum, [, size]) => sum + Number(size), 0);
}
