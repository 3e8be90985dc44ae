// What sampling costs its victims, above nothing and above the bare interrupt: in each round nothing and every way are on once,
// in another order each time, and the same work is compared within the round. What stays as it is while a way runs, where its
// memory lies say, is part of the error: all start anew several times, and the intervals are of these parts.

import { availableParallelism } from 'node:os';
import { atMost, interval, percent, quantile, shuffled, spread, table } from './figures.mjs';
import { helper, sleep, Talker } from './helpers.mjs';
import { middleSources } from './loads.mjs';
import { Stop } from '../step.mjs';

const SEGMENT_MS = 250;
/** Chunks are compared by their lower quartile: what disturbs a chunk only ever makes it longer. */
const QUIET = 0.25;
/** How often all ways start anew, and of how many at least there must be something to compare. */
const PARTS = 8;
const PARTS_MIN = 5;
/** Runs of gcc vary more than chunks, so most of the time is theirs. */
const COMPILING = 0.9;
const BAR_PERCENT = 0.2;

const NOTHING = { name: 'nothing', turn() {} };
const allCpus = Array.from({ length: availableParallelism() }, (_, cpu) => cpu);

const nowNs = () => Number(process.hrtime.bigint());

/** For each round, what `run` returned of it while each way, by its name, was on. */
async function rounds(ways, seconds, run) {
  const all = [];
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    const round = new Map();
    for (const way of shuffled([NOTHING, ...ways])) {
      await way.turn(true);
      round.set(way.name, await run(all.length));
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
  const compile = (round) => Promise.all(runners.map(async (runner) => Number(await runner.ask(files[round % files.length]))));
  const all = await rounds(ways, seconds, compile);
  for (const runner of runners) await runner.end();
  return all;
}

/** How much more one way takes than another in some rounds, in percent. */
const excess = (all, way, base) =>
  all.flatMap((round) => {
    const than = round.get(base);
    return round.get(way).flatMap((taken, at) => (taken && than[at] ? [(taken / than[at] - 1) * 100] : []));
  });

/** The median gap that an interruption leaves in a tight loop, in ns. */
async function gaps(ways, rounds) {
  const results = new Map(ways.map((way) => [way.name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const way of shuffled(ways)) {
      await way.turn(true);
      const gap = new Talker([helper('gap'), String(round % availableParallelism()), '0.5']);
      results.get(way.name).push(Number((await gap.line()).split(' ')[3]));
      await gap.end();
      await way.turn(false);
    }
  }
  return results;
}

/** One part: all ways start, are compared, and end. */
async function part(begin, seconds) {
  const ways = await begin();
  try {
    const computed = await computing(ways, seconds * (1 - COMPILING));
    const compiled = await compiling(ways, seconds * COMPILING);
    return { names: ways.map((way) => way.name), computed, compiled, gapsNs: await gaps(ways, 2) };
  } finally {
    for (const way of ways) await way.end();
  }
}

/** Prints what the ways cost at a rate; of those that `begin` starts the first is the bare interrupt. */
export async function cost({ begin, hz, seconds }) {
  const parts = [];
  for (let at = 0; at < PARTS; at++) parts.push(await part(begin, seconds / PARTS));
  const { names } = parts[0];
  const [bare] = names;
  const over = (load, name, base) => {
    const groups = parts.map((one) => excess(one[load], name, base)).filter((group) => group.length > 0);
    if (groups.length < PARTS_MIN) throw new Stop('too little to compare: the machine is too busy, or --seconds too short');
    return interval(groups);
  };
  const judged = (figure) => `${percent(figure)} ${atMost(figure.median, BAR_PERCENT, '%')}`;
  const cells = (load, name) => [percent(over(load, name, NOTHING.name)), name === bare ? '' : judged(over(load, name, bare))];
  const gapsNs = (name) => parts.flatMap((one) => one.gapsNs.get(name));
  const gapPercent = (name) => gapsNs(name).map((ns, at) => ((ns - gapsNs(bare)[at]) * hz) / 1e7);
  const count = (load) => parts.reduce((sum, one) => sum + one[load].length, 0);
  table(
    `cost at ${hz} Hz on each CPU: CPU time of the victims, over the same with nothing or the bare interrupt in the same round; ` +
      `median (95%, by resampling ${PARTS} parts), ${count('computed')} and ${count('compiled')} rounds`,
    [
      ['', 'computing', 'above bare', 'compiling', 'above bare', 'one interruption', 'above bare, × rate'],
      ...names.map((name) => [
        name,
        ...cells('computed', name),
        ...cells('compiled', name),
        spread(gapsNs(name), 0, 'ns'),
        name === bare ? '' : percent(interval(gapPercent(name)), 3),
      ]),
    ],
  );
}
