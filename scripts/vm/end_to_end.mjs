// What dwell answered in the machine (kmod/test/end_to_end.c), compared. Enters: the console. Leaves: checks, by name.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { Stop, target } from '../step.mjs';
import { room } from './packages.mjs';

/** dwell without its debug information, and what it needs to run, as files of the machine. */
export function dwellFiles() {
  const built = ['debug', 'release'].map((profile) => join(target, profile, 'dwell')).filter(existsSync);
  const [newest] = built.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  if (!newest) throw new Stop('dwell is not built (npm run build)');
  const stripped = join(room, `dwell-${process.pid}`);
  const { status, stderr } = spawnSync('strip', ['-o', stripped, newest], { encoding: 'utf8' });
  if (status !== 0) throw new Stop(`strip: ${stderr}`);
  const files = { dwell: readFileSync(stripped) };
  rmSync(stripped);
  const libraries = spawnSync('ldd', [newest], { encoding: 'utf8' }).stdout.matchAll(/^\s*(?:\S+ => )?(\/\S+) \(/gm);
  for (const [, path] of libraries) {
    const folders = dirname(path).slice(1).split('/');
    folders.forEach((_, at) => (files[folders.slice(0, at + 1).join('/')] = null));
    files[path.slice(1)] = readFileSync(path);
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
/**
 * What work() in kmod/test/guest.c takes at least: 60 million rounds of 4 instructions, of 8 ns each (-icount shift=3),
 * sampled at 2,000 Hz. Its short processes come on top.
 */
const SPIN_SAMPLES = Math.round(60e6 * 4 * 8e-9 * 2000);

/** One database: its only epoch's counts, and the samples of each image. */
function counts(text, name) {
  const epoch = answer(text, `${name} epochs`)?.epochs?.[0];
  const rows = answer(text, `${name} images`)?.rows;
  if (!epoch || !rows) return null;
  const byImage = Object.fromEntries(rows.map((row) => [basename(row.image), row.samples[CLOCK] ?? 0]));
  return { backend: epoch.backend, ...epoch.events[CLOCK], byImage, shown: sum(Object.values(byImage)) };
}

/** Of samples that are the same but for where periods end, and for pages that have to be found once. */
const NEAR = 1.1;
const near = (a, b, factor) => a <= b * factor && b <= a * factor;

const work = (byImage) => byImage.init ?? 0;

function checkCounts(name, wanted, { backend, samples, lost, unknown, shown, byImage }) {
  return [
    [`${name}: ${wanted} sampled, and lost nothing (${lost} of ${samples})`, backend === wanted && lost === 0],
    [`${name}: every sample is shown with its image (${shown} and ${unknown} unknown of ${samples})`, shown + unknown === samples && unknown * 100 <= samples],
    [`${name}: the work's instructions have their samples (${work(byImage)}, at least ${SPIN_SAMPLES})`, work(byImage) >= SPIN_SAMPLES * 0.97],
  ];
}

/** Two steps of the clock: three epochs (listed by their start), of which none ends before it starts. */
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

/** @returns {[string, boolean][]} */
export function checks(text) {
  const all = Object.fromEntries(['kmod', 'bpf', 'perf', 'daemon', 'killed'].map((name) => [name, counts(text, name)]));
  const missing = Object.keys(all).filter((name) => !all[name]);
  if (missing.length > 0) return [[`dwell answers (not of ${missing.join(', ')})`, false]];
  const { kmod, bpf, perf, daemon, killed } = all;
  return [
    ...checkClock(text),
    ...checkCounts('record', 'kmod', kmod),
    ...checkCounts('record by BPF', 'bpf', bpf),
    ...checkCounts('daemon', 'kmod', daemon),
    ...[['record by rings', perf], ['daemon', daemon], ['killed daemon', killed]].map(([name, other]) => [
      `${name}: as many samples of the work as the module gave record (${work(other.byImage)}, ${work(kmod.byImage)})`,
      near(work(other.byImage), work(kmod.byImage), NEAR),
    ]),
    [
      `record by BPF: as many samples of the work as by rings (${work(bpf.byImage)}, ${work(perf.byImage)})`,
      near(work(bpf.byImage), work(perf.byImage), NEAR),
    ],
    [`record: the kernel's samples are there (${kmod.byImage['[kernel.kallsyms]']})`, kmod.byImage['[kernel.kallsyms]'] > 100],
  ];
}
