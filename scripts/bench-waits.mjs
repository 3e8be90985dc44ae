// `npm run bench:waits [-- --rounds N]`: what recording the time off the CPU costs a program that does little but wait, against perf's
// records of context switches with copies of the stack, in turns. Two threads wake each other through pipes.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { build, dwell, main } from './build.mjs';
import { Stop } from './step.mjs';

const exchanges = 100_000;
const source = `#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static int to[2], from[2];
static void *answers(void *unused) { char c; for (int i = 0; i < ${exchanges}; i++) if (read(to[0], &c, 1) != 1 || write(from[1], &c, 1) != 1) return NULL; return unused; }
int main(void) {
  struct timespec a, b; pthread_t thread; char c = 'x';
  if (pipe(to) || pipe(from) || pthread_create(&thread, NULL, answers, NULL)) return 1;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int i = 0; i < ${exchanges}; i++) if (write(to[1], &c, 1) != 1 || read(from[0], &c, 1) != 1) return 1;
  clock_gettime(CLOCK_MONOTONIC, &b);
  fprintf(stderr, "took %.6f\\n", b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) * 1e-9);
  pthread_join(thread, NULL);
}
`;

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Runs a command line. Returns the program's own time in seconds. */
function seconds(words) {
  const { status, stderr, error } = spawnSync(words[0], words.slice(1), { encoding: 'utf8', stdio: ['ignore', 'ignore', 'pipe'], maxBuffer: 2 ** 28 });
  const took = /took ([\d.]+)/.exec(stderr ?? '')?.[1];
  if (error || status !== 0 || took === undefined) throw new Stop(`${words.join(' ')} ended with ${status}: ${error?.message ?? stderr}`);
  return Number(took);
}

/** The event's numbers in the newest recording of a database. */
function recorded(database) {
  const epochs = join(database, 'epochs');
  const { events } = JSON.parse(readFileSync(join(epochs, readdirSync(epochs).toSorted().at(-1), 'epoch.json'), 'utf8'));
  return events['off-cpu'];
}

await main(async () => {
  const { values } = parseArgs({ options: { rounds: { type: 'string', default: '5' } } });
  await build();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-waits-'));
  try {
    const [program, database, perfData] = ['ping-pong', 'db', 'perf.data'].map((name) => join(folder, name));
    writeFileSync(`${program}.c`, source);
    if (spawnSync('gcc', ['-O2', '-pthread', '-o', program, `${program}.c`], { stdio: 'inherit' }).status !== 0) throw new Stop('gcc failed');
    const ways = {
      alone: [program],
      'dwell -e off-cpu': [dwell, '--db', database, 'record', '-e', 'off-cpu', '--', program],
      'dwell -e off-cpu --stacks 0': [dwell, '--db', database, 'record', '-e', 'off-cpu', '--stacks', '0', '--', program],
      'perf --call-graph dwarf': ['perf', 'record', '-q', '-e', 'context-switches', '-c', '1', '--call-graph', 'dwarf,8192', '-o', perfData, '--', program],
    };
    const times = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
    const [lost, found] = [[], []];
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const [way, words] of Object.entries(ways)) {
        times[way].push(seconds(words));
        if (way !== 'dwell -e off-cpu') continue;
        const event = recorded(database);
        lost.push(event.lost);
        found.push((event.samples * event.period) / 1e9 / (2 * times[way].at(-1)));
      }
    }
    const alone = median(times.alone);
    for (const [way, all] of Object.entries(times)) {
      const added = all.map((time) => (1e6 * (time - alone)) / (2 * exchanges));
      console.log(`${way.padEnd(28)} ${median(all).toFixed(3)} s, ${median(added).toFixed(2)} µs more for each exchange of a byte (${Math.min(...added).toFixed(2)} to ${Math.max(...added).toFixed(2)})`);
    }
    console.log(`dwell: ${median(lost)} records lost (${Math.min(...lost)} to ${Math.max(...lost)}); time off the CPU is ${(100 * median(found)).toFixed(0)} % of both threads' time`);
    console.log(`perf.data: ${(statSync(perfData).size / 1048576).toFixed(0)} MiB`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
