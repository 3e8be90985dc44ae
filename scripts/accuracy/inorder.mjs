// Makes captures of programs on a simulated in-order core: samples and truth come from the same run.
//
// Enters: rows of `inorder-programs.mjs`. Leaves: captures (core/accuracy/FORMAT.md) in OUT/inorder-aarch64 and OUT/inorder-riscv64.
// The simulator is a plugin of QEMU's user mode (core/accuracy/simulator), so programs run unchanged, at about 40 million
// instructions per second.
//
//     node scripts/accuracy/inorder.mjs [--out DIRECTORY] [--arch aarch64|riscv64]… [--more TIMES] [PART-OF-A-NAME…]
//
// --more is 10 by default, which gives about 500,000 samples for most programs; with --more 1 there are about 50,000. A minute on
// a real core gives a number in between. `judge` also thins the samples to a tenth and a fiftieth, to show the effect of fewer
// samples.

import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { must, Stop, target, top } from '../step.mjs';
import { makeInputs } from './inorder-inputs.mjs';
import { programs, stubs } from './inorder-programs.mjs';
import { expectations, kernelsFor, otherExpectations } from './kernels.mjs';
import { debianSource } from './sources.mjs';

const simulator = join(top, 'core/accuracy/simulator');
const here = join(top, 'core/accuracy/programs-inorder');
const machine = 'generic-inorder-2';

/** A processor of this QEMU version whose instructions the simulator knows completely. */
const cpus = { aarch64: 'cortex-a53', riscv64: 'rv64' };
export const architectures = Object.keys(cpus);
/** A period that gives about 50,000 samples for most programs, divided by `more`. */
const usual_period_cycles = 5003;
/**
 * Gives 500,000 samples, like the figures in docs/measured.md and in the paper. The settings of the analysis were chosen before
 * that; the totals of the programs of role `judge` had been seen with a tenth of the samples.
 */
const usual_more = 10;
const flags = '-O2 -g -w -static -fno-pie -no-pie';

const kernelPackages = (arch) => ({
  'qemu-user': `qemu-${arch}`,
  [`gcc-${arch}-linux-gnu`]: `${arch}-linux-gnu-gcc`,
  gcc: 'gcc',
});
const packages = (arch) => ({
  ...kernelPackages(arch),
  [`g++-${arch}-linux-gnu`]: `${arch}-linux-gnu-g++`,
  'dpkg-dev': 'dpkg-source',
});

const onPath = (program) => process.env.PATH.split(':').some((folder) => existsSync(join(folder, program)));

const notHere = (packages) => Object.entries(packages).filter(([, program]) => !onPath(program)).map(([name]) => name);

/** Debian packages that the simulation needs and this machine lacks: for all programs, or only for the kernels. */
export const missingPackages = (arch) => notHere(packages(arch));
export const missingForKernels = (arch) => notHere(kernelPackages(arch));

/** Builds the simulator if it is older than its sources. */
export async function buildSimulator(work) {
  const plugin = join(work, 'simulator.so');
  const sources = readdirSync(simulator).map((name) => join(simulator, name));
  const newest = Math.max(...sources.map((file) => statSync(file).mtimeMs));
  if (existsSync(plugin) && statSync(plugin).mtimeMs > newest) return plugin;
  mkdirSync(work, { recursive: true });
  const options = ['-std=gnu11', '-O2', '-Wall', '-Wextra', '-Werror', '-fPIC', '-shared', '-fvisibility=hidden'];
  await must('simulator', ['gcc', ...options, '-o', plugin, ...sources.filter((file) => file.endsWith('.c'))]);
  return plugin;
}

function writeStubs(folder) {
  for (const [name, text] of Object.entries(stubs)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
}

/** Our own programs are rebuilt when their source has changed; sources of packages do not change. */
const isBuilt = (binary, { file }) => existsSync(binary) && (!file || statSync(binary).mtimeMs > statSync(resolve(here, file)).mtimeMs);

/** Compiles a program for `arch`; returns its path and the origin of its source. */
export async function buildProgram(program, arch, work) {
  const binary = join(work, arch, program.name);
  const own = { path: here, source: `own, ${program.file && relative(top, resolve(here, program.file))}` };
  const { path, source } = program.package ? await debianSource(program.package, join(work, 'sources')) : own;
  const env = {
    CC: `${arch}-linux-gnu-gcc ${flags}`,
    CXX: `${arch}-linux-gnu-g++ -std=c++17 ${flags}`,
    OUT: binary, HERE: here, STUBS: join(work, 'stubs'),
  };
  mkdirSync(dirname(binary), { recursive: true });
  if (!isBuilt(binary, program)) await must(`build ${program.name} (${arch})`, ['bash', '-c', `cd "$0" && ${program.build}`, path], { env });
  return { binary, source };
}

/** Runs `binary` on the simulated core, which writes the tables of its capture to `folder`. */
export function simulate({ binary, arguments: list = [], arch, plugin, folder, options = {}, status: expected = [0] }) {
  const settings = Object.entries({ out: folder, ...options }).map(([name, value]) => `${name}=${value}`).join(',');
  const command = ['nice', [`qemu-${arch}`, '-cpu', cpus[arch], '-seed', '1', '-plugin', `${plugin},${settings}`, binary, ...list]];
  const { status, signal, stderr, error } = spawnSync(command[0], command[1], { encoding: 'utf8', maxBuffer: 2 ** 30, stdio: ['ignore', 'ignore', 'pipe'] });
  if (!expected.includes(status)) throw new Stop(`${binary} on the simulator: ${error?.message ?? signal ?? `status ${status}: ${stderr.trim().split('\n').pop()}`}`);
  const totals = JSON.parse(readFileSync(join(folder, 'totals.json'), 'utf8'));
  rmSync(join(folder, 'totals.json'));
  return totals;
}

/** Makes the folder of a capture, which appears when it is complete. */
async function whole(folder, make) {
  const making = `${folder}.making`;
  rmSync(making, { recursive: true, force: true });
  mkdirSync(making, { recursive: true });
  await make(making);
  rmSync(folder, { recursive: true, force: true });
  renameSync(making, folder);
}

function writeMeta(folder, program, source, totals) {
  const meta = {
    name: program.name,
    language: program.language,
    source: `${source}; ${flags}; ${[program.name, ...program.run].join(' ')}`,
    role: program.role,
    machine,
    event: 'cycles',
    unit: 'cycles',
    period: totals.period,
    samples: totals.samples,
    truth: { tool: 'core/accuracy/simulator', cycles: totals.cycles, events: totals.events },
  };
  writeFileSync(join(folder, 'meta.json'), `${JSON.stringify(meta, null, 2)}\n`);
}

function writeExpected(folder, { file }, binary, arch) {
  const culprits = expectations(file, binary, arch).map(({ address, cause, culprit }) => [address, cause, culprit.toString(16)]);
  const others = otherExpectations(file, binary, arch).map(({ address, cause, word }) => [address, cause, word]);
  const rows = [...culprits, ...others].map(([address, cause, what]) => `${address.toString(16)}\t${cause}\t${what}\n`);
  writeFileSync(join(folder, 'expected.tsv'), rows.join(''));
}

async function capture(program, arch, { out, work, plugin, more }) {
  const { binary, source } = await buildProgram(program, arch, work);
  const place = { '{in}': join(work, 'inputs'), '{here}': here };
  const list = program.run.map((argument) => argument.replace(/\{(in|here)\}/g, (name) => place[name]));
  const start = performance.now();
  let totals;
  await whole(join(out, `inorder-${arch}`, program.name), (folder) => {
    totals = simulate({ binary, arguments: list, arch, plugin, folder, options: { period: Math.round((program.period ?? usual_period_cycles) / more) }, status: program.status });
    copyFileSync(binary, join(folder, 'program'));
    if (program.role === 'kernel') writeExpected(folder, program, binary, arch);
    writeMeta(folder, program, source, totals);
  });
  const rate = totals.events.instructions / 1e3 / (performance.now() - start);
  const millions = (count) => `${(count / 1e6).toFixed(1)} M`;
  console.log(`    ${program.name} (${arch}): ${millions(totals.events.instructions)} instructions, ${millions(totals.cycles)} cycles, ${totals.samples} samples, ${rate.toFixed(1)} M instructions/s`);
}

/**
 * Makes the captures of the named programs, or of all.
 * @param {{ out: string, arches?: string[], names?: string[], more?: number }} options
 */
export async function captureAll({ out, arches = architectures, names = [], more = usual_more }) {
  const work = join(target, 'accuracy-work/inorder');
  const wanted = ({ name }) => names.length === 0 || names.includes(name);
  const plugin = await buildSimulator(work);
  writeStubs(join(work, 'stubs'));
  makeInputs(join(work, 'inputs'));
  for (const arch of arches) {
    const chosen = [...programs, ...kernelsFor(arch)].filter(wanted);
    const missing = chosen.every(({ role }) => role === 'kernel') ? missingForKernels(arch) : missingPackages(arch);
    if (missing.length > 0) throw new Stop(`to simulate ${arch}, install: apt-get install ${missing.join(' ')}`);
    for (const program of chosen) await capture(program, arch, { out, work, plugin, more });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { out: { type: 'string' }, arch: { type: 'string', multiple: true }, more: { type: 'string', default: String(usual_more) } },
  });
  const arches = values.arch ?? architectures;
  const known = [...new Set([...programs, ...arches.flatMap(kernelsFor)].map(({ name }) => name))];
  const names = known.filter((name) => positionals.some((part) => name.includes(part)));
  try {
    if (!(Number(values.more) > 0)) throw new Stop('--more takes a number above 0');
    if (positionals.length > 0 && names.length === 0) throw new Stop(`no such program: ${positionals.join(' ')}; there are ${known.join(', ')}`);
    await captureAll({ out: values.out ?? join(target, 'accuracy'), arches, names, more: Number(values.more) });
  } catch (error) {
    if (!(error instanceof Stop)) throw error;
    console.error(error.message);
    process.exitCode = 1;
  }
}
