// Measures the user-space side of collectors: CPU time of the reader, losses at a high rate, how much the kernel aggregates,
// unknown samples, bytes on disk.

import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { Bare, Perf, meter } from './collectors.mjs';
import { atLeast, atMost, median, spread, table } from './figures.mjs';
import { sleep } from './helpers.mjs';
import { build, computing, Endless, forking, mixed, runLoad } from './loads.mjs';

const folder = (scratch) => mkdtempSync(join(scratch, 'load-'));

/**
 * Runs the collectors one after the other beside the same endless load. Returns what each used per second in each round, and the
 * time that storing took for each second. With `--seconds 300`, the daemon's default interval, more samples have equal keys, so
 * storing takes a smaller part of each second.
 */
async function uses({ ways, script, hz, seconds, rounds = 3 }) {
  const load = new Endless(script);
  const results = new Map(ways.map((way) => [way, []]));
  try {
    for (const way of ways) {
      await way.start(hz);
      await way.turn(true);
      await sleep(2000); // The cost of the start is not part of the running cost.
      for (let round = 0; round < rounds; round++) {
        const used = meter(way);
        await sleep((seconds / rounds) * 1000);
        results.get(way).push(used());
      }
      const storing = meter(way);
      await way.flush?.();
      const stored = storing();
      const perSecond = (stored.cpuMsPerSecond * stored.seconds) / (seconds + 2);
      results.get(way).forEach((used) => (used.storedMsPerSecond = perSecond));
      await way.end();
    }
  } finally {
    await load.stop();
  }
  return results;
}

export async function reader({ scratch, dwells, hz, seconds }) {
  for (const [what, script] of Object.entries({ computing: computing(3600), compiling: build(folder(scratch)) })) {
    const ways = [new Perf(scratch), ...dwells()];
    const results = await uses({ ways, script, hz, seconds });
    const of = (way, what) => results.get(way).map((used) => used[what]);
    table(`reader at ${hz} Hz on each of ${availableParallelism()} CPUs, ${what}: CPU time of the collecting process, ${seconds} s in 3 parts`, [
      ['', 'reading: CPU ms per second', 'and storing', 'bar, for both', 'resident'],
      ...ways.map((way) => {
        const [cpu, stored] = [of(way, 'cpuMsPerSecond'), of(way, 'storedMsPerSecond')];
        return [
          way.name,
          spread(cpu, 2, 'ms/s'),
          way instanceof Perf ? 'in it' : spread(stored, 2, 'ms/s'),
          way instanceof Perf ? '' : atMost(median(cpu) + median(stored), 1, `ms/s: ${(median(cpu) + median(stored)).toFixed(2)}`),
          spread(results.get(way).map(({ resident }) => resident.all / 1e6), 1, 'MB'),
        ];
      }),
    ]);
  }
}

/** Returns the kernel's own statistics of the program on samples: nanoseconds and runs so far. */
function handled(pid) {
  const files = readdirSync(`/proc/${pid}/fdinfo`).map((fd) => readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'utf8'));
  const of = (text, field) => Number(text.match(new RegExp(`^${field}:\\s*(\\d+)`, 'm'))?.[1] ?? 0);
  const programs = files.filter((text) => of(text, 'prog_type') === PERF_EVENT);
  const sum = (field) => programs.reduce((all, text) => all + of(text, field), 0);
  return { ns: sum('run_time_ns'), samples: sum('run_cnt') };
}

const PERF_EVENT = 7; // enum bpf_prog_type

/** Returns nanoseconds per sample while it is on for this long. */
async function handling(way, seconds) {
  await way.turn(true);
  await sleep(500);
  const from = handled(way.pid);
  await sleep(seconds * 1000);
  const to = handled(way.pid);
  await way.turn(false);
  return (to.ns - from.ns) / (to.samples - from.samples);
}

/**
 * Measures the time in the BPF program for each sample by the kernel's own statistics, and that of a program that returns at
 * once, which is the cost of the statistics themselves. The difference is the cost of collecting beyond the bare interrupt,
 * without the noise of two separate runs.
 */
export async function handler({ scratch, dwells, hz, seconds, rounds = 5 }) {
  const rows = [];
  for (const [what, script] of Object.entries({ computing: computing(3600), compiling: build(folder(scratch)) })) {
    const load = new Endless(script);
    const nothing = new Bare();
    const ways = [nothing, ...dwells().filter((way) => way.backend === 'bpf')];
    const each = new Map(ways.map((way) => [way, []]));
    for (const way of ways) {
      await way.start(hz);
      await way.turn(false);
    }
    for (let round = 0; round < rounds; round++) {
      for (const way of ways) each.get(way).push(await handling(way, seconds / rounds));
    }
    const least = median(each.get(nothing));
    for (const way of ways) {
      await way.end();
      const share = Number((((median(each.get(way)) - least) * hz) / 1e7).toFixed(2));
      const isOurs = way !== nothing;
      rows.push([what, way.name, spread(each.get(way), 0, 'ns'), isOurs ? `${share.toFixed(2)} %` : '', isOurs ? atMost(share, 0.2, '%') : '']);
    }
    await load.stop();
  }
  table(`time in the handler, ${seconds} s in ${rounds} parts`, [['load', '', 'a sample', `above it, of a CPU at ${hz} Hz`, 'bar'], ...rows]);
}

export async function lost({ scratch, dwells, seconds }) {
  const hz = 20000;
  const rows = [];
  const loads = { computing: computing(3600), compiling: build(folder(scratch)), forking: forking(3600) };
  for (const [what, script] of Object.entries(loads)) {
    const load = new Endless(script);
    for (const way of [new Perf(scratch), ...dwells('--flush-interval', '10')]) {
      await way.start(hz);
      await way.turn(true);
      await sleep(seconds * 1000);
      await way.end();
      const counted = way.tallies?.() ?? { samples: way.samples, lost: way.lost };
      const bar = way.tallies ? atMost(counted.lost, 0, '') : '';
      rows.push([what, way.name, String(counted.samples), String(counted.lost), bar]);
    }
    await load.stop();
  }
  table(`lost at ${hz} Hz on each CPU, ${seconds} s for each`, [['load', '', 'samples', 'lost', 'bar'], ...rows]);
}

/** Measures the share of the samples that the kernel added to an existing entry, so that they are not passed on separately. */
export async function hits({ scratch, dwells, hz, seconds }) {
  const load = new Endless(build(folder(scratch)));
  const rows = [];
  for (const way of dwells()) {
    await way.start(hz);
    await sleep(seconds * 1000);
    await way.flush();
    const share = hitRate(await way.status());
    await way.end();
    rows.push([way.name, share === undefined ? 'does not aggregate in the kernel' : `${(share * 100).toFixed(1)} %`, share === undefined ? '' : atLeast(Math.round(share * 1000) / 10, 55, '%')]);
  }
  await load.stop();
  table(`aggregation at ${hz} Hz on each CPU while zstd is built over and over, ${seconds} s: samples that found their entry`, [['', 'hit rate', 'bar'], ...rows]);
}

const hitRate = ({ collector: { table } = {} }) => (table?.samples > 0 ? table.found / table.samples : undefined);

export async function unknown({ scratch, dwells, hz }) {
  const rows = [];
  for (const [what, script] of Object.entries({ 'building zstd': build(folder(scratch)), mixed: mixed(folder(scratch)) })) {
    for (const way of dwells()) {
      await way.start(hz);
      await runLoad(script);
      await way.end();
      const { samples, unknown: none, lost: missing } = way.tallies();
      const percent = (part) => (100 * part) / Math.max(samples, 1);
      const [share, jit] = [percent(none), percent(samples > 0 ? way.inJit() : 0)];
      rows.push([what, way.name, String(samples), String(none), `${share.toFixed(4)} %`, atMost(share, 0.01, '%'), `${jit.toFixed(4)} %`, String(missing)]);
    }
  }
  table(`unknown at ${hz} Hz on each CPU`, [['load', '', 'samples', 'unknown', 'share', 'bar', 'jit:', 'lost'], ...rows]);
}

/** Compares perf.data with the database for the same kind of seconds; perf.data by its bytes per sample. */
export async function disk({ scratch, dwells, seconds }) {
  const [hz, script] = [1000, build(folder(scratch))];
  const load = new Endless(script);
  const perf = new Perf(scratch);
  const rows = [];
  await perf.start(hz);
  await perf.turn(true);
  await sleep(seconds * 1000);
  await perf.end();
  const perSample = perf.bytes / perf.samples;
  for (const way of dwells('--flush-interval', '10')) {
    await way.start(hz);
    await sleep(seconds * 1000);
    await way.end();
    const { samples } = way.tallies();
    const ratio = (perSample * samples) / way.bytes;
    rows.push([way.name, String(samples), String(way.bytes), (way.bytes / samples).toFixed(2), ratio.toFixed(0), atLeast(Math.round(ratio), 200, 'times')]);
  }
  await load.stop();
  table(`disk at ${hz} Hz on each CPU, ${seconds} s of building zstd each; an hour, as the bar wants it: npm run bench:soak`, [
    ['', 'samples', 'bytes', 'per sample', 'perf.data over it', 'bar'],
    [perf.name, String(perf.samples), String(perf.bytes), perSample.toFixed(2), '', ''],
    ...rows,
  ]);
}
