// The sets of captures: which programs are in each, what making them takes, and who makes them.

import { join } from 'node:path';
import { dwell } from '../build.mjs';
import { seconds, target } from '../step.mjs';
import { makeInputs } from './inputs.mjs';
import { capture } from './native.mjs';
import { programs } from './programs.mjs';

/** Samples of a native program's own image. */
const native_samples = 40_000;
const native_samples_quick = 8_000;

async function makeNative(missing, { root, quick, evaluator }) {
  const work = join(target, 'accuracy-work/native');
  const inputs = join(work, 'inputs');
  makeInputs(inputs);
  for (const program of missing) {
    const start = performance.now();
    await capture(program, { folder: join(root, 'native'), work, inputs, dwell, evaluator, samples: quick ? native_samples_quick : native_samples });
    console.log(`✓ capture ${program.name} (${seconds(start)})`);
  }
}

/** @type {Record<string, { packages: Record<string, string>, programs: () => { name: string, quick?: boolean }[], make: Function }>} `packages`: Debian's name → a program of it */
export const sets = {
  native: {
    packages: { valgrind: 'valgrind', gcc: 'gcc', 'g++': 'g++', 'clang-14': 'clang-14', binutils: 'strip', 'dpkg-dev': 'dpkg-source', make: 'make' },
    programs: () => programs,
    make: makeNative,
  },
};
