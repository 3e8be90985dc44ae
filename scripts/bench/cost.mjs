// Measures what sampling costs its victims, compared with no sampling and with the bare interrupt.
//
// The compared *ways* (no sampling, the bare interrupt, each collector) take turns of some milliseconds of the victim's work
// (turns.c). The speed of a shared machine varies by percents within seconds, but ways whose turns are a few milliseconds apart
// see the same speed. Only the end of each turn counts, when the way has been on for some samples: a way that was off for ten
// milliseconds has nothing in the caches, so its first two or three samples cost more than those of a way that is always on.
//
// Work at the start and the end of processes (reports of mappings and executions) is compared from process to process.
// Conditions that do not change while a collector runs, such as the location of its memory, are part of the error. So all
// collectors are started several times, and the intervals are over these *parts*.

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { atMost, interval, mean, median, percent, shuffled, table } from './figures.mjs';
import { helper, library, sleep, Talker } from './helpers.mjs';
import { middleSources } from './loads.mjs';
import { Stop } from '../step.mjs';

const GCC = ['gcc', '-O2', '-g', '-c', '-w', '-o', '/dev/null'];
/**
 * Number of calls of malloc in a piece of a turn of gcc's compiler proper: about half a millisecond, like a piece of a
 * computing victim.
 */
const PIECE_CALLS = 400;
/** Number of pieces of a turn, and how many at its beginning are not counted. */
const PIECES = 6;
const COLD_PIECES = 2;
/** Number of rounds of turns that form one run of a computing victim. */
const RUN_ROUNDS = 10;
/**
 * Times of pieces beyond these percentiles are replaced by the percentile, because most such pieces were disturbed by something
 * else. If all pieces become longer, the mean moves only by the share between the percentiles, which is corrected for.
 */
const CLIPPED = [0.02, 0.98];
/** Number of restarts, and how many of them must give results. */
const PARTS = 12;
const PARTS_MIN = 5;
/** Shares of the time for the kinds of victims; the rest is used to start programs. */
const COMPUTING = 0.25;
const COMPILING = 0.7;
/** Fewest runs of the same work from which its usual time can be determined. */
const RUNS_MIN = 5;
const BAR_PERCENT = 0.2;

const [NOTHING, BARE] = [0, 1];
const cpus = Array.from({ length: availableParallelism() }, (_, cpu) => cpu);

/**
 * A process on a CPU that can turn the collectors' events there on and off. If it takes turns, they are written to
 * `log`.
 */
function borrower({ cpu, hz, pids, command, turns }) {
  const env = turns && { TURNS_NAME: turns.name, TURNS_CALLS: String(turns.calls), TURNS_PIECES: String(PIECES), TURNS_LOG: turns.log, LD_PRELOAD: library('turns') };
  return new Talker([helper('lend'), String(cpu), String(hz), ...pids.map(String), '--', ...command], { env: { ...process.env, ...env } });
}

/**
 * Returns the runs of a log, one per line: for each piece the number of its way and its time in ns. Returns none if no
 * run ended.
 */
function runsIn(log) {
  if (!existsSync(log)) return [];
  return readFileSync(log, 'utf8').split('\n').filter(Boolean).map((line) => Uint32Array.from(line.trim().split(' '), Number));
}

/**
 * The relative time of the counted pieces, by part and way. The time of a piece is divided by its usual time, which is the median
 * over all runs of the same work with any way, and by the slowdown of its round. Runs with another course of work are left out.
 */
class Levels {
  constructor(ways) {
    this.ways = ways;
    this.of = Array.from({ length: PARTS }, () => Array.from({ length: ways }, () => []));
    this.runs = 0;
  }

  /** Adds runs of one work. */
  add(runs) {
    if (runs.length < RUNS_MIN) return;
    const length = median(runs.map(({ pieces }) => pieces.length));
    const alike = runs.filter(({ pieces }) => pieces.length === length);
    const usual = Array.from({ length: length / 2 }, (_, piece) => median(alike.map(({ pieces }) => pieces[2 * piece + 1])));
    const round = this.ways * PIECES;
    for (const { part, pieces } of alike) {
      for (let from = 0; from + round <= usual.length; from += round) {
        const levels = Array.from({ length: round }, (_, at) => pieces[2 * (from + at) + 1] / usual[from + at]);
        const level = median(levels);
        for (let at = 0; at < round; at++) {
          if (at % PIECES >= COLD_PIECES) this.of[part][pieces[2 * (from + at)]].push(levels[at] / level);
        }
      }
    }
    this.runs += alike.length;
  }

  /** Returns the mean of each way, part by part; nothing for parts without pieces. */
  means() {
    const all = Float64Array.from(this.of.flat(2)).sort();
    const [low, high] = CLIPPED.map((share) => all[Math.floor(share * all.length)]);
    const parts = this.of.filter((ways) => ways.every((levels) => levels.length > 0));
    return parts.map((ways) => ways.map((levels) => mean(levels.map((level) => Math.min(high, Math.max(low, level))))));
  }
}

/** A computing victim on every CPU. */
async function computing({ scratch, seconds, count, ...where }) {
  const logs = cpus.map((cpu) => join(scratch, `computing-${cpu}`));
  const victims = cpus.map((cpu) => borrower({ ...where, cpu, command: [helper('chunk')], turns: { name: 'chunk', calls: 1, log: logs[cpu] } }));
  await sleep(seconds * 1000);
  await Promise.all(victims.map((victim) => victim.end()));
  const length = 2 * RUN_ROUNDS * count * PIECES;
  const runs = logs.flatMap(runsIn).flatMap((log) => Array.from({ length: Math.floor(log.length / length) }, (_, run) => log.slice(run * length, (run + 1) * length)));
  return runs.map((pieces) => ({ work: '', pieces }));
}

/** Calls `run` repeatedly for some time on every CPU, with a number that counts up. */
const everywhere = (seconds, run) => {
  const end = performance.now() + seconds * 1000;
  return Promise.all(
    cpus.map(async (cpu) => {
      for (let at = cpu; performance.now() < end; at++) await run(cpu, at);
    }),
  );
};

/** Runs gcc on every CPU, whose compiler proper takes turns; returns the time of a file, in ns. */
async function compiling({ scratch, seconds, count: _, ...where }) {
  const files = middleSources();
  const logs = cpus.map((cpu) => join(scratch, `compiling-${cpu}`));
  const command = [helper('runner'), ...GCC];
  const runners = cpus.map((cpu) => borrower({ ...where, cpu, command, turns: { name: 'cc1', calls: PIECE_CALLS, log: logs[cpu] } }));
  const asked = cpus.map(() => []);
  const taken = [];
  await everywhere(seconds, async (cpu, at) => {
    taken.push(Number(await runners[cpu].ask(`-1 ${files[at % files.length]}`)));
    asked[cpu].push(files[at % files.length]);
  });
  await Promise.all(runners.map((runner) => runner.end()));
  return { runs: cpus.flatMap((cpu) => runsIn(logs[cpu]).map((pieces, at) => ({ work: asked[cpu][at], pieces }))), ns: mean(taken) };
}

/** Runs gcc on an empty file on every CPU, one way after another; returns the time to start and end, in ns. */
async function starting({ scratch, seconds, count, ...where }) {
  const empty = join(scratch, 'empty.c');
  writeFileSync(empty, '');
  const runners = cpus.map((cpu) => borrower({ ...where, cpu, command: [helper('runner'), ...GCC] }));
  const rounds = [];
  await everywhere(seconds, async (cpu) => {
    const round = new Map();
    for (const way of shuffled(Array.from({ length: count }, (_, way) => way))) {
      round.set(way, Number(await runners[cpu].ask(`${way} ${empty}`)));
    }
    rounds.push(round);
  });
  await Promise.all(runners.map((runner) => runner.end()));
  return rounds;
}

/** Measures one part, with its files in a folder: all collectors start, are compared, and end. */
async function part(begin, within, hz, seconds) {
  const scratch = mkdtempSync(join(within, 'cost-'));
  const collectors = await begin();
  try {
    const names = ['nothing', 'bare interrupt', ...collectors.map(({ name }) => name)];
    const where = { scratch, hz, pids: collectors.map(({ pid }) => pid), count: names.length };
    const computed = await computing({ ...where, seconds: seconds * COMPUTING });
    const compiled = await compiling({ ...where, seconds: seconds * COMPILING });
    const started = await starting({ ...where, seconds: seconds * (1 - COMPUTING - COMPILING) });
    return { names, computed, compiled, started };
  } finally {
    for (const collector of collectors) await collector.end();
    rmSync(scratch, { recursive: true });
  }
}

/** Returns the levels of all parts' runs; `of` contains a part's runs by their work. */
function levelsOf(parts, of) {
  const works = new Map();
  parts.forEach((one, part) => {
    for (const { work, pieces } of of(one)) works.set(work, [...(works.get(work) ?? []), { part, pieces }]);
  });
  const levels = new Levels(parts[0].names.length);
  for (const runs of works.values()) levels.add(runs);
  return levels;
}

/** Prints what collectors cost at a rate. */
export async function cost({ begin, scratch, hz, seconds }) {
  const parts = [];
  for (let at = 0; at < PARTS; at++) parts.push(await part(begin, scratch, hz, seconds / PARTS));
  const enough = (groups) => {
    if (groups.length < PARTS_MIN) throw new Stop('too little to compare: the machine is too busy, or --seconds too short');
    return groups;
  };
  const computed = levelsOf(parts, (one) => one.computed);
  const compiled = levelsOf(parts, (one) => one.compiled.runs);
  const [computedMeans, compiledMeans] = [computed, compiled].map((levels) => enough(levels.means()));
  /** Returns how much more time one way takes than another. */
  const excess = (means, way, base) => interval(means.map((ways) => ((ways[way] / ways[base] - 1) * 100) / (CLIPPED[1] - CLIPPED[0])), mean);
  /** Returns the cost of starts as a share of gcc's time for a file. */
  const startsOf = (one, way, base) => one.started.map((round) => ((round.get(way) - round.get(base)) / one.compiled.ns) * 100);
  const starts = (way, base) => interval(enough(parts.filter((one) => one.compiled.ns).map((one) => startsOf(one, way, base)).filter((all) => all.length > 0)));
  const judged = (figure) => `${percent(figure)} ${atMost(figure.middle, BAR_PERCENT, '%')}`;
  const above = (way, base, show) => [show(excess(computedMeans, way, base)), show(excess(compiledMeans, way, base)), percent(starts(way, base))];
  const { names } = parts[0];
  const startCount = parts.reduce((sum, { started }) => sum + started.length, 0);
  const fileMs = mean(parts.map((one) => one.compiled.ns)) / 1e6;
  table(
    `cost at ${hz} Hz on each CPU: CPU time of the victims in turns of ${PIECES} pieces of half a millisecond after the first ${COLD_PIECES} ` +
      `(95%, by resampling ${PARTS} parts), ${computed.runs} and ${compiled.runs} runs; of ${startCount} starts; a file takes gcc ${fileMs.toFixed(0)} ms`,
    [
      ['', 'computing', 'compiling', 'starting gcc, of a file'],
      [`${names[BARE]}, above nothing`, ...above(BARE, NOTHING, percent)],
      ...names.slice(BARE + 1).map((name, at) => [`${name}, above the bare interrupt`, ...above(BARE + 1 + at, BARE, judged)]),
    ],
  );
}
