// What sampling costs its victims, above nothing and above the bare interrupt: in each round nothing and every way are on once,
// in another order each time, and the same work is compared within the round.

import { availableParallelism } from 'node:os';
import { atMost, interval, percent, quantile, shuffled, spread, table } from './figures.mjs';
import { helper, sleep, Talker } from './helpers.mjs';
import { middleSources } from './loads.mjs';
import { Stop } from '../step.mjs';

const SEGMENT_MS = 250;
/** Chunks are compared by their lower quartile: what disturbs a chunk only ever makes it longer. */
const QUIET = 0.25;
/** Runs of gcc vary more than chunks, so most of the time is theirs. */
const COMPILING = 0.9;
const BAR_PERCENT = 0.2;

const NOTHING = { name: 'nothing', turn() {} };
const allCpus = Array.from({ length: availableParallelism() }, (_, cpu) => cpu);

const nowNs = () => Number(process.hrtime.bigint());

/** For each round, what `run` returned while each way was on. */
async function rounds(ways, seconds, run) {
  const all = [];
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    const round = new Map();
    for (const way of shuffled([NOTHING, ...ways])) {
      await way.turn(true);
      round.set(way, await run());
      await way.turn(false);
    }
    all.push(round);
  }
  return all;
}

/** A victim that computes on every CPU: of each segment its CPU time for a chunk, for each CPU. */
async function computing(ways, seconds) {
  const victims = allCpus.map((cpu) => new Talker([helper('chunk'), String(cpu)]));
  const segments = await rounds(ways, seconds, async () => {
    const start = nowNs();
    await sleep(SEGMENT_MS * (0.8 + Math.random() * 0.4));
    return { start, end: nowNs() };
  });
  const chunks = [];
  for (const victim of victims) {
    await victim.end();
    chunks.push(victim.takeLines().map((line) => line.split(' ').map(Number)).map(([end, cpu]) => ({ end, cpu })));
  }
  const level = ({ start, end }, from) => {
    const within = from.filter((chunk) => chunk.end - chunk.cpu > start && chunk.end < end).map(({ cpu }) => cpu);
    return within.length >= 5 ? quantile(within, QUIET) : undefined;
  };
  return segments.map((round) => new Map([...round].map(([way, segment]) => [way, chunks.map((from) => level(segment, from))])));
}

/** gcc on every CPU: its CPU time, for each CPU; another file each round. */
async function compiling(ways, seconds) {
  const gcc = ['gcc', '-O2', '-g', '-c', '-w', '-o', '/dev/null'];
  const runners = allCpus.map((cpu) => new Talker(['taskset', '-c', String(cpu), helper('runner'), ...gcc]));
  const files = middleSources();
  let runs = 0;
  const all = await rounds(ways, seconds, () => {
    const file = files[Math.floor(runs++ / (ways.length + 1)) % files.length];
    return Promise.all(runners.map(async (runner) => Number(await runner.ask(file))));
  });
  for (const runner of runners) await runner.end();
  return all;
}

/** How much more one way takes than another, in percent: for each round that of all its work. */
const excess = (all, way, base) =>
  all.map((round) => {
    const than = round.get(base);
    return round.get(way).flatMap((taken, at) => (taken && than[at] ? [(taken / than[at] - 1) * 100] : []));
  });

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

/** Prints what the ways cost at a rate; `ways[0]` is the bare interrupt. */
export async function cost({ ways, hz, seconds }) {
  const [bare] = ways;
  const enough = (all) => {
    if (all.length < 5) throw new Stop('too few rounds: the machine is too busy, or --seconds too short');
    return all;
  };
  const [computed, compiled] = [enough(await computing(ways, seconds * (1 - COMPILING))), enough(await compiling(ways, seconds * COMPILING))];
  const gapsNs = await gaps(ways, 11);
  const over = (all, way, base) => interval(excess(all, way, base));
  const cell = (all, way) => percent(over(all, way, NOTHING));
  const judged = (figure) => `${percent(figure)} ${atMost(figure.median, BAR_PERCENT, '%')}`;
  const gapPercent = (way) => gapsNs.get(way).map((ns, at) => ((ns - gapsNs.get(bare)[at]) * hz) / 1e7);
  table(`cost at ${hz} Hz on each CPU: CPU time of the victims, over the same with nothing or the bare interrupt in the same round; median (95%), ${computed.length} and ${compiled.length} rounds`, [
    ['', 'computing', 'above bare', 'compiling', 'above bare', 'one interruption', 'above bare, × rate'],
    ...ways.map((way) => [
      way.name,
      cell(computed, way),
      way === bare ? '' : judged(over(computed, way, bare)),
      cell(compiled, way),
      way === bare ? '' : judged(over(compiled, way, bare)),
      spread(gapsNs.get(way), 0, 'ns'),
      way === bare ? '' : percent(interval(gapPercent(way)), 3),
    ]),
  ]);
}
