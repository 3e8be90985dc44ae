// `npm run bench:import [-- ITEM…] [--file perf.data] [--program COMMAND --procedure NAME]`: compares import, top and annotate
// with perf on the same file, alternating in one run. Prints tables with the limits. Items: top, annotate, analysis, whole. The
// recording (a million samples of compilers) and the program with 112 MB of debug information are made once and kept below
// target/bench. --program selects another program, which must run for a moment by itself.

import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { beside, largeProgram, measure, recording, samplesOf, suite } from './bench/import.mjs';
import { debugBytes } from './bench/large.mjs';
import { atMost, median, spread, table } from './bench/figures.mjs';
import { build, dwell, main } from './build.mjs';
import { forBuilding } from './needs.mjs';
import { Stop } from './step.mjs';

const scratch = mkdtempSync(join(tmpdir(), 'dwell-bench-'));
const rounds = 5;

/** Compares import and the table of procedures with perf's. */
function hottest(file) {
  beside({
    title: `top: ${samplesOf(file)} samples, import and top beside perf report, ${rounds} alternating rounds`,
    ours: (round) => {
      const database = join(scratch, `top-${round}`);
      return [[dwell, '--db', database, 'import', file], [dwell, '--db', database, 'top']];
    },
    theirs: ['perf', 'report', '--stdio', '-i', file],
    rounds,
    scratch,
    faster: 10,
    smaller: 10,
  });
}

/** Compares the listing of a procedure with perf's, for a program with much debug information. */
function listing({ program, procedure }) {
  const command = program ? program.split(' ') : [largeProgram(), '20000000'];
  const name = procedure ?? 'hot30';
  const [file, database] = [join(scratch, 'annotate.data'), join(scratch, 'annotate')];
  // Mappings carry build IDs. Without them, if another recorder runs, the kernel writes flags that perf 6.1 cannot
  // read.
  measure(['perf', 'record', '-q', '--buildid-mmap', '-e', 'cpu-clock:u', '-F', '4999', '-o', file, '--', ...command], scratch);
  measure([dwell, '--db', database, 'import', file], scratch);
  beside({
    title: `annotate: ${name} of ${command[0]}, ${(debugBytes(command[0]) / 1e6).toFixed(0)} MB of debug information, ${samplesOf(file)} samples, ${rounds} alternating rounds`,
    ours: () => [[dwell, '--db', database, 'annotate', name]],
    theirs: ['perf', 'annotate', '--stdio', '-i', file, '-s', name],
    rounds,
    scratch,
    faster: 20,
  });
}

/**
 * Analyses a suite of Debian programs. The paper's suite had 17 programs of 26 MB; this one has the same size, and each program
 * runs briefly.
 */
function analysis() {
  const { file, long } = suite(scratch);
  const database = join(scratch, 'analysis');
  measure([dwell, '--db', database, 'import', file], scratch);
  const asked = (...question) => JSON.parse(measure([dwell, '--db', database, '--json', ...question], scratch).stdout);
  const images = asked('top', '--by', 'image', '-n', '0').rows.map(({ image }) => image).filter((image) => existsSync(image));
  const bytes = images.reduce((sum, image) => sum + statSync(image).size, 0);
  if (bytes < 26e6) throw new Stop(`analysis: the sampled executables have ${(bytes / 1e6).toFixed(1)} MB only`);
  const runs = Array.from({ length: rounds }, () => measure([dwell, '--db', database, 'summary'], scratch));
  const of = (key) => runs.map((run) => run[key]);
  // Functions with very few samples are counted without an analysis.
  const { procedures, procedures_left_out: left } = asked('summary');
  table(`analysis: ${images.length} executables and libraries of ${(bytes / 1e6).toFixed(1)} MB; of ${procedures + left} procedures with samples ${procedures} are analysed, on all CPUs`, [
    ['', 'wall', 'CPU', 'peak memory', 'bar'],
    ['dwell summary', spread(of('wall'), 2, 's'), spread(of('cpu'), 2, 's'), spread(of('peak'), 0, 'MiB'), atMost(median(of('wall')), 3, 's')],
  ]);
  const instructions = asked('annotate', long.name).instructions.length;
  const cost = (name) => measure([dwell, '--db', database, 'annotate', name], scratch).cpu * 1000;
  const more = Array.from({ length: 4 * rounds }, () => cost(long.name) - cost(long.other));
  table(`a procedure of ${instructions} instructions: annotate of it, less annotate of a short one of the same program`, [
    ['', 'CPU', 'bar of the analysis alone, which is a part of it'],
    ['disassembly, analysis, lines, text', spread(more, 0, 'ms'), atMost(median(more), 20, 'ms')],
  ]);
}

/** Analyses every procedure with samples, as all answers of an epoch need. */
function whole(file) {
  const database = join(scratch, 'whole');
  measure([dwell, '--db', database, 'import', file], scratch);
  const runs = Array.from({ length: rounds }, () => measure([dwell, '--db', database, 'summary'], scratch));
  const walls = runs.map(({ wall }) => wall);
  table('whole: every sampled procedure analysed, on all CPUs', [
    ['', 'wall', 'peak memory', 'bar'],
    ['dwell summary', spread(walls, 2, 's'), spread(runs.map(({ peak }) => peak), 0, 'MiB'), atMost(median(walls), 3, 's')],
  ]);
}

const items = { top: ({ file }) => hottest(file ?? recording()), annotate: listing, analysis, whole: ({ file }) => whole(file ?? recording()) };

await main(async () => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { file: { type: 'string' }, program: { type: 'string' }, procedure: { type: 'string' } },
  });
  const wanted = positionals.length > 0 ? positionals : ['top'];
  const strange = wanted.filter((item) => !(item in items));
  if (strange.length > 0) throw new Stop(`no such item: ${strange.join(', ')}; there are ${Object.keys(items).join(', ')}`);
  for (const [name, debian] of Object.entries({ '/usr/bin/time': 'time', '/usr/bin/perf': 'linux-perf' })) {
    if (!existsSync(name)) throw new Stop(`${name} is missing: apt-get install ${debian}`);
  }
  await forBuilding();
  await build();
  console.log(`${cpus()[0].model}, ${availableParallelism()} CPUs, Linux ${release()}, load ${loadavg()[0].toFixed(1)} before`);
  for (const item of wanted) items[item](values);
});
rmSync(scratch, { recursive: true, force: true });
