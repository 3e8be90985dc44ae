// `npm run bench:sleepy [-- --rounds N]`: SLEEPY's evaluation (Moravan and Richey 2005, sections 3.2 to 3.4) again, beside the paper's
// figures: where the samples of its three programs are (Figures 6 to 8), and what sampling and storing cost them (Figure 9).
// `DWELL=FILE` measures another binary. Needs the rights to sample the whole machine.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { Dwell } from './bench/collectors.mjs';
import { interval, median, percent, shuffled, spread, table } from './bench/figures.mjs';
import { cpuMs, helper, Talker } from './bench/helpers.mjs';
import { build, main } from './build.mjs';
import { must, Stop, top } from './step.mjs';

/** Samples per second of a CPU. The paper's kernel took 100 or fewer, by the number of its samples. */
const RATE_HZ = 1000;

/**
 * `iterations`: those of the paper. `counted`: fewer, for valgrind. `paper`: samples of three trials and what they fell on; seconds
 * without sampling, change in % by sampling, and by storing too (Figure 9).
 */
const programs = [
  { name: 'loop', iterations: 1_000_000_000, counted: 1_000_000, paper: { samples: 'Figure 6: 2,128 samples of 6 instructions, all of the loop', seconds: 10.477, sampling: -0.008, storing: 3.087 } },
  { name: 'call', iterations: 100_000, counted: 2_000, paper: { samples: 'Figure 7: 11,843 samples of 9 instructions, 3 of them once: 2 samples of the called function outside of its loop, 1 of main', seconds: 38.907, sampling: -0.01, storing: 3.383 } },
  {
    name: 'btree',
    iterations: 3_000_000,
    counted: 100_000,
    paper: {
      samples: 'Figure 8: over 200 instructions of 7 functions: find_index about 50 %, lookup 20 %, find_child and get_parent_key 15 %, main 10 %, insert none. 65 % of all samples were at unknown addresses',
      seconds: 63.732,
      sampling: -0.865,
      storing: 6.333,
    },
  },
];

const path = (program) => join(top, 'test-fixtures/programs/build', program.name);
const number = (value) => value.toLocaleString('en-US');
const share = (part, all) => `${((100 * part) / all).toFixed(2)} %`;
/** Samples of the event of time in a row or an instruction. */
const samplesOf = ({ samples }) => samples.cycles ?? samples['cpu-clock'] ?? 0;

/** Returns how many instructions a run of few iterations executes, counted by callgrind; undefined without valgrind. */
function executed(program, scratch) {
  const { status, stderr } = spawnSync('valgrind', ['--tool=callgrind', `--callgrind-out-file=${join(scratch, 'callgrind')}`, path(program), String(program.counted)], { encoding: 'utf8' });
  return status === 0 ? Number(/Collected : (\d+)/.exec(stderr)[1]) : undefined;
}

/** Prints where the samples of a program are: by function, and by instruction for those of one loop. */
function whereSamplesAre(collector, program, trials) {
  const { rows } = collector.answer('top', '--app', program.name, '-n', '0');
  const all = rows.reduce((sum, row) => sum + samplesOf(row), 0);
  if (all === 0) throw new Stop(`${program.name} has no samples`);
  const own = rows.filter(({ image }) => image === path(program));
  const ownSamples = own.reduce((sum, row) => sum + samplesOf(row), 0);
  const listed = own.flatMap(({ id, procedure }) => {
    const { instructions } = collector.answer('annotate', id);
    return instructions.filter((instruction) => samplesOf(instruction) > 0).map((instruction) => ({ procedure, ...instruction }));
  });
  console.log(`\n${program.name}: ${number(all)} samples in ${trials} trials, ${share(ownSamples, all)} in the program, at ${listed.length} instructions`);
  console.log(`  ${program.paper.samples}`);
  table('  by function', rows.filter((row) => samplesOf(row) >= all / 1000).map((row) => [row.procedure ?? '-', basename(row.image ?? '-'), number(samplesOf(row)), share(samplesOf(row), all)]));
  if (listed.length > 30) return;
  const sorted = listed.toSorted((a, b) => a.address - b.address);
  table('  by instruction', sorted.map((i) => [i.procedure, i.address.toString(16), i.text, number(samplesOf(i)), share(samplesOf(i), all)]));
}

/** Runs each program in turns while nobody samples, while one daemon samples, and while another one samples and stores. */
async function turns(collectors, rounds) {
  const quiet = ['sh', '-c', 'exec "$0" "$1" > /dev/null'];
  const runners = new Map(programs.map((program) => [program, new Talker([helper('runner'), ...quiet, path(program)])]));
  const times = new Map(programs.map((program) => [program, Object.fromEntries(Object.keys(collectors).map((way) => [way, { program: [], daemon: [] }]))]));
  for (let round = 0; round < rounds; round++) {
    for (const program of programs) {
      for (const [way, collector] of shuffled(Object.entries(collectors))) {
        const before = collector && cpuMs(collector.pid);
        await collector?.turn(true);
        const seconds = Number(await runners.get(program).ask(`-1 ${program.iterations}`)) / 1e9;
        await collector?.turn(false);
        times.get(program)[way].program.push(seconds);
        times.get(program)[way].daemon.push(collector ? (cpuMs(collector.pid) - before) / 1000 : 0);
      }
    }
  }
  for (const runner of runners.values()) await runner.end();
  return times;
}

const change = (ways, way) => percent(interval(ways[way].program.map((seconds, round) => 100 * (seconds / ways.control.program[round] - 1))));
const own = (ways, way) => share(median(ways[way].daemon), median(ways[way].program));

await main(async () => {
  const { values } = parseArgs({ options: { rounds: { type: 'string', default: '7' } } });
  const rounds = Number(values.rounds);
  if (process.env.DWELL) await must('workloads', ['test-fixtures/programs/build.sh']);
  else await build();
  const scratch = mkdtempSync(join(tmpdir(), 'dwell-bench-sleepy-'));
  try {
    const collectors = {
      control: undefined,
      sampling: new Dwell(scratch, 'auto', ['--flush-interval', '86400']),
      storing: new Dwell(scratch, 'auto', ['--flush-interval', '1']),
    };
    for (const collector of Object.values(collectors).filter(Boolean)) {
      await collector.start(RATE_HZ);
      await collector.turn(false);
    }
    const { sampling, storing } = collectors;
    const times = await turns(collectors, rounds);
    for (const collector of [sampling, storing]) {
      await collector.flush();
      await collector.end();
    }
    for (const program of programs) whereSamplesAre(sampling, program, rounds);
    table('Instructions that a run of few iterations executes (callgrind)', [
      ['program', 'iterations', 'instructions'],
      ...programs.map((program) => {
        const instructions = executed(program, scratch);
        return [program.name, number(program.counted), instructions === undefined ? 'valgrind is not installed' : number(instructions)];
      }),
    ]);
    table(`CPU time of the program, median of ${rounds} alternating runs (range), and its change, median of pairs (95 % interval), at ${RATE_HZ} samples/s (${sampling.took})`, [
      ['program', 'without', 'sampling', 'change', 'storing too', 'change', "daemon's own CPU time", 'paper (Figure 9)'],
      ...programs.map((program) => {
        const [ways, { paper }] = [times.get(program), program];
        return [
          program.name,
          ...['control', 'sampling', 'storing'].flatMap((way) => [spread(ways[way].program, 3, 's'), ...(way === 'control' ? [] : [change(ways, way)])]),
          `${own(ways, 'sampling')}, storing ${own(ways, 'storing')}`,
          `${paper.seconds} s; ${paper.sampling} %; ${paper.storing} %`,
        ];
      }),
    ]);
    const [one, five] = loadavg();
    console.log(`\nload ${one.toFixed(1)} (${five.toFixed(1)} in five minutes)`);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
});
