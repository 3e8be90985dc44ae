// Checks the answers of dwell in the virtual machine (kmod/test/end_to_end.c). Enters: the console's text. Leaves: checks, by
// name.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { Stop, target } from '../step.mjs';
import { room } from './packages.mjs';

const arm64 = 'aarch64-unknown-linux-gnu';
/** The folder of dwell's builds, the program that strips it, and how to build it if nothing else builds it. */
const builds = {
  amd64: { folder: target, strip: 'strip', how: 'npm run build', libraries: ownLibraries },
  arm64: {
    folder: join(target, arm64), strip: 'aarch64-linux-gnu-strip', libraries: crossLibraries,
    how: `rustup target add ${arm64}; CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc cargo build -p dwell-cli --target ${arm64}`,
  },
};

/** Returns the files that a program of this machine needs to run, by their path in the virtual machine. */
function ownLibraries(program) {
  const told = spawnSync('ldd', [program], { encoding: 'utf8' }).stdout.matchAll(/^\s*(?:\S+ => )?(\/\S+) \(/gm);
  return Object.fromEntries([...told].map(([, path]) => [path, path]));
}

/** Returns the same for an arm64 program, from Debian's cross compiler. */
function crossLibraries(program) {
  const told = spawnSync('aarch64-linux-gnu-readelf', ['-d', program], { encoding: 'utf8' }).stdout.matchAll(/\(NEEDED\).*\[(.*)\]/g);
  const names = new Set([...told].map(([, name]) => name).concat('ld-linux-aarch64.so.1'));
  return Object.fromEntries([...names].map((name) => [`/lib/${name}`, `/usr/aarch64-linux-gnu/lib/${name}`]));
}

/** Returns dwell without debug information, and the files that it needs, as files of the virtual machine. */
export function dwellFiles(arch) {
  const { folder, strip, how, libraries } = builds[arch];
  const built = ['debug', 'release'].map((profile) => join(folder, profile, 'dwell')).filter(existsSync);
  const [newest] = built.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  if (!newest) throw new Stop(`dwell is not built for ${arch} (${how})`);
  const stripped = join(room, `dwell-${arch}-${process.pid}`);
  const { status, stderr, error } = spawnSync(strip, ['-o', stripped, newest], { encoding: 'utf8' });
  if (status !== 0) throw new Stop(`${strip}: ${error?.message ?? stderr}`);
  const files = { dwell: readFileSync(stripped) };
  rmSync(stripped);
  for (const [path, from] of Object.entries(libraries(newest))) {
    const folders = dirname(path).slice(1).split('/');
    folders.forEach((_, at) => (files[folders.slice(0, at + 1).join('/')] = null));
    files[path.slice(1)] = readFileSync(from);
  }
  return files;
}

function answer(text, name) {
  const found = text.match(new RegExp(`^BEGIN ${name}\\n(.*?)\\nEND ${name}$`, 'ms'));
  try {
    return JSON.parse(found[1]);
  } catch {
    return null;
  }
}

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
const CLOCK = 'cpu-clock';
const RATE_HZ = 2000;
/** Fewest register samples: the work takes about two seconds, with 100 (BPF) or more per second. */
const DIRECTIONS = 50;
/**
 * Least number of samples of work() in kmod/test/guest.c: 60 million rounds of 4 instructions of 8 ns each (-icount shift=3).
 * The short processes that it starts are not included.
 */
const SPIN_SAMPLES = Math.round(60e6 * 4 * 8e-9 * RATE_HZ);

const imageSamples = (rows) => Object.fromEntries(rows.map((row) => [basename(row.image), row.samples[CLOCK] ?? 0]));

/**
 * Returns the figures of one database: the counts of its only epoch, the samples of each image, and those of the work including
 * its time in the kernel.
 */
function counts(text, name) {
  const epoch = answer(text, `${name} epochs`)?.epochs?.[0];
  const rows = answer(text, `${name} images`)?.rows;
  const apps = answer(text, `${name} apps`)?.rows;
  const before = text.slice(0, text.indexOf(`BEGIN ${name} epochs`));
  const worked = [...before.matchAll(/^WORKED ([\d.]+)$/gm)].at(-1);
  if (!epoch || !rows || !apps || !worked) return null;
  const byImage = imageSamples(rows);
  const ofWork = sum(apps.filter(({ app }) => app === 'init').map(({ samples }) => samples[CLOCK] ?? 0));
  const wanted = Math.round(Number(worked[1]) * RATE_HZ);
  const directions = (way) => sum(rows.filter(({ image }) => basename(image) === 'init').flatMap(({ samples }) => [samples[`branch-${way}`] ?? 0, samples[`branch-ahead-${way}`] ?? 0]));
  const [taken, fallen] = [directions('taken'), directions('not-taken')];
  const charged = sum(rows.map(({ samples }) => samples['kernel-time'] ?? 0));
  return { backend: epoch.backend, ...epoch.events[CLOCK], byImage, charged, shown: sum(Object.values(byImage)), ofWork, wanted, taken, fallen };
}

/**
 * Tolerance: periods are random, rings miss the first part of each process, and the test's own processes have the
 * work's name.
 */
const NEAR = 1.1;
/** On arm64 the first part of a process is longer. */
const NEAR_BY_RINGS = 1.2;
const near = (a, b, factor) => a <= b * factor && b <= a * factor;

function checkCounts(name, backend, epoch) {
  const { samples, lost, unknown, shown, byImage, charged, ofWork, wanted, taken, fallen, running_share: running } = epoch;
  const spun = byImage.init ?? 0;
  const kernel = byImage['[kernel.kallsyms]'] ?? 0;
  return [
    [`${name}: ${backend} sampled, and lost nothing (${lost} of ${samples})`, epoch.backend === backend && lost === 0],
    [`${name}: the timer ran all the time (${running} of it)`, running > 0.98],
    [`${name}: every sample is shown with its image (${shown} and ${unknown} unknown of ${samples})`, shown + unknown === samples && unknown * 100 <= samples],
    [`${name}: the work's instructions have their samples (${spun}, at least ${SPIN_SAMPLES})`, spun >= SPIN_SAMPLES * 0.97],
    [`${name}: the work has a sample for each period of its CPU time (${ofWork} of ${wanted})`, near(ofWork, wanted, backend === 'perf' ? NEAR_BY_RINGS : NEAR)],
    [`${name}: kernel time is charged to the user's instructions (${charged} of ${kernel})`, charged > 100 && charged <= kernel],
    [`${name}: registers tell that the work's loop goes on (${taken} times, ${fallen} not)`, taken >= DIRECTIONS && taken > 20 * fallen],
  ];
}

/**
 * Checks modules that were loaded and unloaded before the kernel's tables were read: each has its samples under its own name.
 */
function checkModules(text) {
  const byImage = imageSamples(answer(text, 'modules images')?.rows ?? []);
  return ['dwell_spin', 'dwell_turn'].map((name) => {
    const wanted = Math.round(Number(text.match(new RegExp(`^SPUN ${name} ([\\d.]+)$`, 'm'))?.[1]) * RATE_HZ);
    const told = byImage[`[${name}]`] ?? 0;
    return [`modules: ${name} has its samples, although it is gone (${told} of ${wanted})`, near(told, wanted, NEAR)];
  });
}

/** Checks that a module's function has its code: a loop that half a second passes in. */
function checkListing(text) {
  const { instructions = [], procedure, image } = answer(text, 'listed module') ?? {};
  const samples = procedure?.samples[CLOCK] ?? 0;
  const texts = instructions.map((instruction) => instruction.text);
  const hottest = instructions.filter((instruction) => (instruction.samples[CLOCK] ?? 0) > samples / 20);
  const isLoop = hottest.length > 0 && hottest.length < 8 && hottest.every((instruction) => /^(sub|add|cmp|j|dec|inc|nop|b|cb|mov)/.test(instruction.text));
  return [
    [`listed module: dwell_spin has its code (${texts.length} instructions of ${image?.path})`, image?.path === '[dwell_spin]' && texts.length > 10 && texts.every((one) => one !== '' && one !== '(bad)')],
    [`listed module: the samples are in its loop (${samples}; ${hottest.map((instruction) => instruction.text).join('; ')})`, near(samples, RATE_HZ / 2, NEAR) && isLoop],
  ];
}

/** Checks that two steps of the clock give three epochs (listed by their start), and that none ends before it starts. */
function checkClock(text) {
  const epochs = answer(text, 'clock epochs')?.epochs ?? [];
  const starts = epochs.map(({ start }) => Date.parse(start) / 1000);
  const [first, third, second] = starts;
  const told = epochs.map(({ start, end }) => `${start} to ${end}`).join(', ');
  return [
    [`clock: each step begins an epoch (${told})`, epochs.length === 3 && Math.abs(second - first - 7200) < 120 && Math.abs(third - second + 3600) < 120],
    ['clock: no epoch ends before it starts', epochs.every(({ start, end }) => Date.parse(end) >= Date.parse(start))],
  ];
}

/**
 * Checks events that stopped and were reopened: there is one epoch before and one after, both by the module, with a hundred
 * samples per second.
 */
function checkSilence(text) {
  const epochs = answer(text, 'silent epochs')?.epochs ?? [];
  const told = epochs.map(({ backend, events }) => ({ backend, ...events[CLOCK] }));
  const goesOn = told.length === 2 && told.every(({ backend, samples, lost }) => backend === 'kmod' && samples >= 500 && lost === 0);
  return [[`silence: the module samples before and after (${told.map(({ samples, lost }) => `${samples}, ${lost} lost`).join('; ')})`, goesOn]];
}

/** @returns {[string, boolean][]} */
export function checks(text) {
  const all = Object.fromEntries(['kmod', 'bpf', 'perf', 'daemon', 'killed'].map((name) => [name, counts(text, name)]));
  const missing = Object.keys(all).filter((name) => !all[name]);
  if (missing.length > 0) return [[`dwell answers (not of ${missing.join(', ')})`, false]];
  const { kmod, bpf, perf, daemon, killed } = all;
  return [
    ...checkClock(text),
    ...checkSilence(text),
    ...checkCounts('record', 'kmod', kmod),
    ...checkCounts('record by BPF', 'bpf', bpf),
    ...checkCounts('record by rings', 'perf', perf),
    ...checkCounts('daemon', 'kmod', daemon),
    ...checkCounts('killed daemon', 'kmod', killed),
    ...checkModules(text),
    ...checkListing(text),
    [`record: the kernel's samples are there (${kmod.byImage['[kernel.kallsyms]']})`, kmod.byImage['[kernel.kallsyms]'] > 100],
  ];
}
