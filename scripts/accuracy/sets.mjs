// The sets of captures: which programs are in each, what making them takes, and who makes them.

import { join } from 'node:path';
import { dwell } from '../build.mjs';
import { seconds, target } from '../step.mjs';
import { makeInputs } from './inputs.mjs';
import { captureAll } from './inorder.mjs';
import { programs as simulated } from './inorder-programs.mjs';
import { kernelsFor } from './kernels.mjs';
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

/** A set of programs on the simulated in-order core. */
const inOrder = (arch) => ({
  packages: { 'qemu-user': `qemu-${arch}`, [`gcc-${arch}-linux-gnu`]: `${arch}-linux-gnu-gcc`, [`g++-${arch}-linux-gnu`]: `${arch}-linux-gnu-g++`, gcc: 'gcc', 'dpkg-dev': 'dpkg-source' },
  programs: () => [...simulated, ...kernelsFor(arch)].map((program) => ({ ...program, quick: soonSimulated.includes(program.name) })),
  make: (missing, { root }) => captureAll({ out: root, arches: [arch], names: missing.map(({ name }) => name) }),
});
const soonSimulated = ['sort', 'search', 'hashjoin', 'graph'];

/** @type {Record<string, { packages: Record<string, string>, programs: () => { name: string, quick?: boolean }[], make: Function }>} `packages`: Debian's name → a program of it */
export const sets = {
  native: {
    packages: { valgrind: 'valgrind', gcc: 'gcc', 'g++': 'g++', 'clang-14': 'clang-14', binutils: 'strip', 'dpkg-dev': 'dpkg-source', make: 'make' },
    programs: () => programs,
    make: makeNative,
  },
  'inorder-aarch64': inOrder('aarch64'),
  'inorder-riscv64': inOrder('riscv64'),
};
