// `npm run bench:counting [-- --rounds N] [-- CMD…]`: what counting by default (bursts, words of memory, loops) costs a command, beside a recording
// without it. Both ways alternate. The program's CPU time is what the shell says of its children, the rest is the recorder's.
// `-- --lost`: the same for a program that notices each time that it loses (bench/lost_time.c), so that noise hides less.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { build, dwell, main } from './build.mjs';
import { must, top } from './step.mjs';

/** Seconds that the program which notices its lost time runs. */
const LOST_SECONDS = 4;

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
/** The mean with its standard error, and the median. */
const told = (ratios) => {
  const average = mean(ratios);
  const error = Math.sqrt(mean(ratios.map((ratio) => (ratio - average) ** 2)) / (ratios.length - 1));
  return `${average.toFixed(3)} ± ${error.toFixed(3)}, median ${median(ratios).toFixed(3)}`;
};
const seconds = (text) => text.match(/(\d+)m([\d.]+)s/g).map((time) => time.match(/(\d+)m([\d.]+)s/)).reduce((sum, [, minutes, rest]) => sum + 60 * minutes + Number(rest), 0);

await main(async () => {
  const { values, positionals } = parseArgs({ options: { rounds: { type: 'string', default: '20' }, lost: { type: 'boolean', default: false } }, allowPositionals: true });
  if (!process.env.DWELL) await build();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-counting-'));
  try {
    const without = ['--paths', '0', '--windows', '0', '--no-odometers'];
    if (values.lost) {
      const program = join(folder, 'lost_time');
      await must('lost_time', ['gcc', '-O2', '-g', '-o', program, join(top, 'scripts/bench/lost_time.c')], { quiet: true });
      const lost = (options) => {
        const { status, stdout } = spawnSync(dwell, ['record', '--db', join(folder, 'db'), ...options, '--', program, String(LOST_SECONDS)], { encoding: 'utf8' });
        if (status !== 0) throw new Error(`the recording ended with ${status}`);
        return 100 * Number(stdout);
      };
      const pairs = Array.from({ length: Number(values.rounds) }, () => [lost(without), lost([])]);
      console.log(`${pairs.length} pairs of ${LOST_SECONDS} s; percent of its time that the program loses`);
      console.log(`without counting: ${told(pairs.map(([plain]) => plain))}`);
      console.log(`with counting: ${told(pairs.map(([, counted]) => counted))}`);
      console.log(`the difference: ${told(pairs.map(([plain, counted]) => counted - plain))}`);
      return;
    }
    let command = positionals.join(' ');
    if (command === '') {
      // Words of random letters: some six seconds of gzip.
      let seed = 1;
      const next = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
      const words = Array.from({ length: 5000 }, () => Array.from({ length: 2 + Math.floor(8 * next()) }, () => String.fromCharCode(97 + Math.floor(26 * next()))).join(''));
      writeFileSync(join(folder, 'input'), Array.from({ length: 6_000_000 }, () => words[Math.floor(5000 * next())]).join(' '));
      command = `for n in 1 2 3 4; do cat ${join(folder, 'input')}; done | gzip -9 > /dev/null`;
    }
    const run = (options) => {
      const words = ['record', '--db', join(folder, 'db'), ...options, '--', 'bash', '-c', `${command}; times > ${join(folder, 'times')}`];
      const script = 'import resource,subprocess,sys,time\nt=time.time()\ns=subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL)\nw=time.time()-t\nr=resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(w,r.ru_utime+r.ru_stime)\nsys.exit(s.returncode)';
      const { status, stdout } = spawnSync('/usr/bin/python3', ['-c', script, dwell, ...words], { encoding: 'utf8' });
      if (status !== 0) throw new Error(`the recording ended with ${status}`);
      const [wall, cpu] = stdout.trim().split(' ').map(Number);
      const program = seconds(readFileSync(join(folder, 'times'), 'utf8').split('\n')[1]);
      return { wall, program, recorder: cpu - program };
    };
    const pairs = Array.from({ length: Number(values.rounds) }, (_, round) => {
      if (round % 2 === 0) return [run(without), run([])];
      const counted = run([]);
      return [run(without), counted];
    });
    const ratio = (what) => told(pairs.map(([plain, counted]) => counted[what] / plain[what]));
    console.log(`${pairs.length} pairs, ${median(pairs.map(([plain]) => plain.program)).toFixed(2)} s of the program's CPU time each`);
    console.log(`CPU time of the program: ${ratio('program')}`);
    console.log(`wall time of the recording: ${ratio('wall')}`);
    console.log(`CPU time of the recorder: ${(1000 * median(pairs.map(([plain]) => plain.recorder))).toFixed(0)} ms without, ${(1000 * median(pairs.map(([, counted]) => counted.recorder))).toFixed(0)} ms with`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
