// The sets of captures: the programs of each set, what it needs, and the code that makes it.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { dwell } from '../build.mjs';
import { Stop, seconds, target } from '../step.mjs';
import { makeInputs } from './inputs.mjs';
import { captureAll, missingPackages } from './inorder.mjs';
import { programs as simulated } from './inorder-programs.mjs';
import { kernelsFor } from './kernels.mjs';
import { capture, captureByDefault } from './native.mjs';
import { programs } from './programs.mjs';

/** Debian packages, each with one of its programs. */
const native = { valgrind: 'valgrind', gcc: 'gcc', 'g++': 'g++', 'clang-14': 'clang-14', binutils: 'strip', 'dpkg-dev': 'dpkg-source', make: 'make' };
/** Packages that measuring blocks needs, in every set. */
const blocks = { 'llvm-19': 'llvm-mca-19' };

const onPath = (program) => process.env.PATH.split(':').some((folder) => existsSync(join(folder, program)));
const missing = (packages) => Object.keys(packages).filter((debian) => !onPath(packages[debian]));

/** Number of samples in a native program's own image. */
const native_samples = 40_000;
const native_samples_quick = 8_000;
/** Number of path bursts of a native program: as many as a minute of CPU time gives at 1 %. */
const native_bursts = 560;
const native_bursts_quick = 50;
/**
 * Number of counted windows of 3 ms: as many as `record --paths 0` counts with 1 % of the time that so many samples
 * take at 1,000 Hz.
 */
export const native_windows = 120;

async function makeNative(wanted, { root, quick, evaluator }) {
  const work = join(target, 'accuracy-work/native');
  const inputs = join(work, 'inputs');
  makeInputs(inputs);
  const size = quick
    ? { samples: native_samples_quick, bursts: native_bursts_quick, windows: native_windows / 4 }
    : { samples: native_samples, bursts: native_bursts, windows: native_windows };
  for (const program of wanted) {
    const start = performance.now();
    await capture(program, { folder: join(root, 'native'), work, inputs, dwell, evaluator, ...size });
    console.log(`✓ capture ${program.name} (${seconds(start)})`);
  }
}

/** The programs of role `judge`, each recorded by a default `dwell record -- CMD` until it has enough samples. */
async function makeDefault(wanted, { root, quick, evaluator }) {
  const work = join(target, 'accuracy-work/native');
  const samples = quick ? native_samples_quick : native_samples;
  for (const program of wanted) {
    const start = performance.now();
    const captured = join(root, 'native', program.name);
    if (!existsSync(captured)) throw new Stop(`${captured} is missing: make the set 'native' first`);
    await captureByDefault(program, captured, { folder: join(root, 'native-default'), work, inputs: join(work, 'inputs'), dwell, evaluator, samples });
    console.log(`✓ capture ${program.name} by default (${seconds(start)})`);
  }
}

/** A set of programs on the simulated in-order core. */
const inOrder = (arch) => ({
  missing: () => [...missingPackages(arch), ...missing(blocks)],
  programs: () => [...simulated, ...kernelsFor(arch)].map((program) => ({ ...program, quick: soonSimulated.includes(program.name) })),
  make: (wanted, { root }) => captureAll({ out: root, arches: [arch], names: wanted.map(({ name }) => name) }),
});
const soonSimulated = ['sort', 'search', 'hashjoin', 'graph'];

/**
 * `missing`: Debian packages that the set needs and that are not installed.
 * @type {Record<string, { missing: () => string[], programs: () => { name: string, quick?: boolean }[], make: Function }>}
 */
export const sets = {
  native: { missing: () => missing({ ...native, ...blocks }), programs: () => programs, make: makeNative },
  'native-default': { missing: () => missing({ ...native, ...blocks }), programs: () => programs.filter(({ role }) => role === 'judge'), make: makeDefault },
  'inorder-aarch64': inOrder('aarch64'),
  'inorder-riscv64': inOrder('riscv64'),
};
