// `npm run bench:count [-- --rounds N] [-- CMD…]`: what `dwell record --count` costs a command: its time on the clock, beside that
// of a `dwell record` that only samples, in turns. Default command: xz over the sources of this repository.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { build, dwell, main } from './build.mjs';
import { Stop, top } from './step.mjs';

const ways = {
  sampled: ['--paths', '0', '--windows', '0', '--no-odometers'],
  windows: ['--count'],
  always: ['--count=always'],
};

/** Returns the text of all files below a folder. */
function text(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? text(path) : [readFileSync(path)];
  });
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Runs the command; returns its time on the clock in seconds and what dwell said last. */
function run(options, command, folder) {
  const start = performance.now();
  const { status, stderr, error } = spawnSync(dwell, ['--db', join(folder, 'db'), 'record', ...options, '--', ...command], { encoding: 'utf8', stdio: ['ignore', 'ignore', 'pipe'], maxBuffer: 2 ** 28 });
  if (error || status !== 0) throw new Stop(`${command[0]} ended with ${status}: ${error?.message ?? stderr}`);
  return { clock: (performance.now() - start) / 1000, told: stderr.trim().split('\n').pop() };
}

await main(async () => {
  const { values, positionals } = parseArgs({ options: { rounds: { type: 'string', default: '5' } }, allowPositionals: true });
  await build();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-count-'));
  try {
    const input = join(folder, 'sources');
    if (positionals.length === 0) writeFileSync(input, Buffer.concat(text(join(top, 'core'))));
    const command = positionals.length > 0 ? positionals : ['xz', '-6', '-k', '-c', '-T1', input];
    const seconds = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
    const told = {};
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const [way, options] of Object.entries(ways)) {
        const { clock, told: line } = run(options, command, folder);
        seconds[way].push(clock);
        told[way] = line;
      }
    }
    for (const way of Object.keys(ways)) {
      const ratios = seconds[way].map((value, round) => value / seconds.sampled[round]);
      console.log(`${way.padEnd(8)} ${median(seconds[way]).toFixed(2)} s, ${median(ratios).toFixed(3)} times ${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}  ${told[way]}`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
