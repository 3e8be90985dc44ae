// Makes a program with more than 100 MB of debug information, for the benches of annotate and of the server: one translation
// unit of gcc with many types, inlined calls and locals, linked 80 times under different names, and a short hot one.

import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

const copies = 80;
const functionsPerUnit = 1500;

function unitSource() {
  const inlined = Array.from({ length: 40 }, (_, n) => `static inline __attribute__((always_inline)) long mix${n}(struct s${n} *p, long x) {\n  long y = p->a ^ x;\n  p->b += y * ${n + 3};\n  return y + p->c[y & 7];\n}`);
  const types = Array.from({ length: 40 }, (_, n) => `struct s${n} { long a, b, c[8]; struct s${n} *next; unsigned flags${n} : ${1 + (n % 7)}; };`);
  const functions = Array.from({ length: functionsPerUnit }, (_, n) => {
    const m = n % 40;
    return `long f${n}(struct s${m} *p, struct s${(m + 1) % 40} *q, long n) {\n  long sum = n;\n  for (long i = 0; i < n; i++) {\n    long step = mix${m}(p, i), other = mix${(m + 1) % 40}(q, step);\n    sum += step ^ other;\n    if (sum & ${n + 1}) p = p->next;\n  }\n  return sum;\n}`;
  });
  return [...types, ...inlined, ...functions].join('\n') + '\n';
}

/**
 * The file that is opened. It is as long as a typical source file, and runs each of its functions as often as its
 * argument says.
 */
function hotSource() {
  const functions = Array.from({ length: 60 }, (_, n) => `__attribute__((noinline)) long hot${n}(const long *p, long at, long n) {\n  while (n-- > 0)\n    at = p[at] ^ (at & ${n + 1});\n  return at;\n}\n`);
  const calls = Array.from({ length: 60 }, (_, n) => `  sum += hot${n}(p, sum & 7, n);`);
  return `#include <stdlib.h>\n\n${functions.join('\n')}\nint main(int argc, char **argv) {\n  long p[1024] = {0}, sum = 0, n = argc > 1 ? atol(argv[1]) : 1;\n${calls.join('\n')}\n  return (int)sum & 1;\n}\n`;
}

/**
 * Makes the program below `folder`; returns its path, the path of the hot source, and the size of its debug information
 * in bytes.
 */
export function makeLargeProgram(folder) {
  const path = (name) => join(folder, name);
  const run = (program, ...args) => execFileSync(program, args, { cwd: folder, encoding: 'utf8', maxBuffer: 1 << 29 });
  writeFileSync(path('unit.c'), unitSource());
  writeFileSync(path('hot.c'), hotSource());
  run('gcc', '-O2', '-g', '-c', path('unit.c'), '-o', path('unit.o'));
  run('gcc', '-O2', '-g', '-c', path('hot.c'), '-o', path('hot.o'));
  const units = Array.from({ length: copies }, (_, n) => path(`unit${n}.o`));
  units.forEach((unit, n) => run('objcopy', `--prefix-symbols=u${n}_`, path('unit.o'), unit));
  run('gcc', '-Wl,--build-id', '-o', path('large'), path('hot.o'), ...units);
  return { program: path('large'), file: path('hot.c'), debugBytes: debugBytes(path('large')) };
}

/** Returns the size of a program's debug information in bytes. */
export function debugBytes(program) {
  const sections = execFileSync('size', ['-A', program], { encoding: 'utf8' });
  return [...sections.matchAll(/^\.debug\S*\s+(\d+)/gm)].reduce((sum, [, size]) => sum + Number(size), 0);
}
