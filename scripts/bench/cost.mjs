// What sampling costs its victims, above nothing and above the bare interrupt: every way is turned on and off in one run, in
// another order each round, and each is compared with what ran right before and after it.

import { availableParallelism } from 'node:os';
import { atMost, interval, percent, quantile, shuffled, spread, table } from './figures.mjs';
import { helper, sleep, Talker } from './helpers.mjs';
import { smallSources } from './loads.mjs';
import { Stop } from '../step.mjs';

const SEGMENT_MS = 250;
/** Chunks are compared by their lower quartile: what disturbs a chunk only ever makes it longer. */
const QUIET = 0.25;
const BAR_PERCENT = 0.2;

const nowNs = () => Number(process.hrtime.bigint());

/** Turns the ways on one after the other, each between two segments with nothing. */
async function segments(ways, seconds) {
  const all = [];
  const segment = async (way) => {
    await way?.turn(true);
    const start = nowNs();
    await sleep(SEGMENT_MS * (0.8 + Math.random() * 0.4));
    all.push({ way, start, end: nowNs() });
    await way?.turn(false);
  };
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    for (const way of shuffled(ways)) {
      await segment(undefined);
      await segment(way);
    }
  }
  await segment(undefined);
  return all;
}

/** For each segment of a way: how much longer its chunks took than those of the segments beside it, in percent. */
function excess(all, chunks, way) {
  const level = ({ start, end }) => {
    const within = chunks.filter((chunk) => chunk.end - chunk.cpu > start && chunk.end < end).map(({ cpu }) => cpu);
    return within.length >= 5 ? quantile(within, QUIET) : undefined;
  };
  return all.flatMap((segment, at) => {
    if (segment.way !== way) return [];
    const [before, during, after] = [all[at - 1], segment, all[at + 1]].map(level);
    return before && during && after ? [(during / ((before + after) / 2) - 1) * 100] : [];
  });
}

/** A victim that computes on every CPU. */
async function computing(ways, seconds) {
  const victims = Array.from({ length: availableParallelism() }, (_, cpu) => new Talker([helper('chunk'), String(cpu)]));
  const all = await segments(ways, seconds);
  const chunks = [];
  for (const victim of victims) {
    await victim.end();
    chunks.push(victim.takeLines().map((line) => line.split(' ').map(Number)).map(([end, cpu]) => ({ end, cpu })));
  }
  return new Map(ways.map((way) => [way, chunks.flatMap((one) => excess(all, one, way))]));
}

/** Runs of gcc, each way beside two with nothing on the same file. */
async function compiling(ways, seconds) {
  const runner = new Talker([helper('runner'), 'gcc', '-O1', '-g', '-c', '-w', '-o', '/dev/null']);
  const files = smallSources();
  const results = new Map(ways.map((way) => [way, []]));
  const end = performance.now() + seconds * 1000;
  for (let round = 0; performance.now() < end; round++) {
    const file = files[round % files.length];
    const run = async (way) => {
      await way?.turn(true);
      const cpu = Number(await runner.ask(file));
      await way?.turn(false);
      return cpu;
    };
    let before = await run(undefined);
    for (const way of shuffled(ways)) {
      const during = await run(way);
      const after = await run(undefined);
      results.get(way).push((during / ((before + after) / 2) - 1) * 100);
      before = after;
    }
  }
  await runner.end();
  return results;
}

/** The median gap that an interruption leaves in a tight loop, in ns. */
async function gaps(ways, rounds) {
  const results = new Map(ways.map((way) => [way, []]));
  for (let round = 0; round < rounds; round++) {
    for (const way of shuffled(ways)) {
      await way.turn(true);
      const gap = new Talker([helper('gap'), String(round % availableParallelism()), '0.5']);
      results.get(way).push(Number((await gap.line()).split(' ')[3]));
      await gap.end();
      await way.turn(false);
    }
  }
  return results;
}

/** Pairs: what each way costs above another, element by element of the same rounds. */
const above = (values, floor) => values.slice(0, floor.length).map((value, at) => value - floor[at]);

/** Prints what the ways cost at a rate; `ways[0]` is the bare interrupt. */
export async function cost({ ways, hz, seconds }) {
  const [bare] = ways;
  const enough = (results) => {
    if (ways.some((way) => results.get(way).length < 5)) throw new Stop('too few pairs: the machine is too busy, or --seconds too short');
    return results;
  };
  const [computed, compiled] = [enough(await computing(ways, seconds)), enough(await compiling(ways, seconds))];
  const gapsNs = await gaps(ways, 11);
  const cell = (results, way) => percent(interval(results.get(way)));
  const over = (results, way) => interval(above(results.get(way), results.get(bare)));
  const judged = (figure) => `${percent(figure)} ${atMost(figure.median, BAR_PERCENT, '%')}`;
  const gapPercent = (way) => (above(gapsNs.get(way), gapsNs.get(bare)).map((ns) => (ns * hz) / 1e7));
  table(`cost at ${hz} Hz on each CPU: CPU time of the victims, over the same with nothing in the same run; median (95%), ${computed.get(bare).length} and ${compiled.get(bare).length} pairs`, [
    ['', 'computing', 'above bare', 'compiling', 'above bare', 'one interruption', 'above bare, × rate'],
    ...ways.map((way) => [
      way.name,
      cell(computed, way),
      way === bare ? '' : judged(over(computed, way)),
      cell(compiled, way),
      way === bare ? '' : judged(over(compiled, way)),
      spread(gapsNs.get(way), 0, 'ns'),
      way === bare ? '' : percent(interval(gapPercent(way)), 3),
    ]),
  ]);
}
