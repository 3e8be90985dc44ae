// `npm run bench:import [-- ITEM…] [--file perf.data] [--program FILE --procedure NAME]`: import, top and annotate beside perf on the
// same file, alternating in one run; prints tables with the bars of the issue. Items: top, annotate, whole.
// The recording (a million samples of compilers) is made once and kept below target/bench.

import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { beside, measure, recording, samplesOf } from './bench/import.mjs';
import { atMost, median, spread, table } from './bench/figures.mjs';
import { build, dwell, main } from './build.mjs';
import { forBuilding } from './needs.mjs';
import { Stop } from './step.mjs';

const scratch = mkdtempSync(join(tmpdir(), 'dwell-bench-'));
const rounds = 5;

/** Import and the table of procedures beside perf's. */
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

/** A procedure's listing beside perf's, of a program with much debug information. */
function listing({ program, procedure }) {
  if (!program || !procedure) throw new Stop('annotate: --program FILE and --procedure NAME name what to look at: an executable with > 100 MB of debug information that runs for a moment by itself');
  const [file, database] = [join(scratch, 'annotate.data'), join(scratch, 'annotate')];
  measure(['perf', 'record', '-q', '-B', '-e', 'cpu-clock:u', '-F', '4999', '-o', file, '--', ...program.split(' ')], scratch);
  measure([dwell, '--db', database, 'import', file], scratch);
  beside({
    title: `annotate: ${procedure} of ${program}`,
    ours: () => [[dwell, '--db', database, 'annotate', procedure]],
    theirs: ['perf', 'annotate', '--stdio', '-i', file, '-s', procedure],
    rounds: 3,
    scratch,
    faster: 20,
  });
}

/** Every procedure with samples analysed: all answers of an epoch. */
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

const items = { top: ({ file }) => hottest(file ?? recording()), annotate: listing, whole: ({ file }) => whole(file ?? recording()) };

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
