// `npm run bench:probes [-- --rounds N]`: what a probe adds to a call, by the program's own clock, beside uprobes of perf. The program
// (core/probe/tests/calls.c) calls a function two million times by three paths of eleven frames, without frame pointers. Ways
// alternate in one run. Needs root, gcc and perf.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { median, spread, table } from './bench/figures.mjs';
import { build, dwell, main } from './build.mjs';

const { values: options } = parseArgs({ options: { rounds: { type: 'string', default: '5' } } });
const scratch = mkdtempSync(join(tmpdir(), 'dwell-probes-'));
const program = join(scratch, 'calls');
const calls = 2_000_000;

/** Runs a command to its end. */
function run(command, ...parameters) {
  const { status, stderr } = spawnSync(command, parameters, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${parameters.join(' ')}: ${stderr}`);
}

/** The program; each round returns its ns a call. */
class Target {
  constructor() {
    this.child = spawn(program, ['1', String(calls), '5'], { stdio: 'pipe' });
    this.output = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
    this.clock = createInterface({ input: this.child.stderr })[Symbol.asyncIterator]();
  }

  async start() {
    await this.output.next();
  }

  async round() {
    this.child.stdin.write('x');
    const { value } = await this.clock.next();
    await this.output.next();
    return Number.parseFloat(value);
  }
}

/** Starts `dwell callpaths`, and returns a function that ends it once it has probed. */
async function probe(target, metrics) {
  const pid = String(target.child.pid);
  const child = spawn(dwell, ['callpaths', '-p', pid, '-m', metrics, '--interval', '0.05', '--json', 'hot'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout });
  await once(lines, 'line');
  return async () => {
    child.kill('SIGINT');
    await once(child, 'close');
  };
}

/** Counts by uprobes of perf at the entry, and at the returns. */
async function uprobes(target, events) {
  const child = spawn('perf', ['stat', '-p', String(target.child.pid), ...events.flatMap((event) => ['-e', event])], { stdio: 'ignore' });
  await sleep(1000);
  return async () => {
    child.kill('SIGINT');
    await once(child, 'close');
  };
}

main(async () => {
  await build();
  run('gcc', '-O2', '-fomit-frame-pointer', '-pthread', '-w', '-o', program, 'core/probe/tests/calls.c');
  const [entry, returned] = ['probe_calls:hot', 'probe_calls:hot__return'];
  run('perf', 'probe', '-q', '-x', program, '-a', 'hot', '-a', 'hot%return');
  const target = new Target();
  try {
    await target.start();
    const ways = {
      'no probe': () => () => {},
      'dwell: calls and paths': () => probe(target, 'calls'),
      'dwell: and wall time': () => probe(target, 'calls,wall'),
      'dwell: and CPU and blocked time': () => probe(target, 'blocked'),
      'perf uprobe, entry': () => uprobes(target, [entry]),
      'perf uprobe, entry and return': () => uprobes(target, [entry, returned]),
    };
    const figures = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
    for (let round = 0; round < Number(options.rounds); round++) {
      for (const [way, begin] of Object.entries(ways)) {
        const end = await begin();
        figures[way].push(await target.round());
        await end();
      }
    }
    const base = median(figures['no probe']);
    const rows = Object.entries(figures).map(([way, ns]) => [way, spread(ns, 1, 'ns'), `${(median(ns) - base).toFixed(1)} ns`]);
    table(`ns a call of hot(), ${calls} calls, ${options.rounds} alternating rounds`, [['way', 'median (spread)', 'added'], ...rows]);
  } finally {
    target.child.kill();
    run('perf', 'probe', '-q', '-d', 'probe_calls:*');
    rmSync(scratch, { recursive: true });
  }
});
