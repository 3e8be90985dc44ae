// What sampling costs its victims, above nothing and above the bare interrupt. Nothing, the bare interrupt and the collectors take
// turns of half a millisecond of the victim's work (turns.c): a machine that is shared wanders by percents within some, and ways
// that take their turns within a few milliseconds wander together. What starts with a process and ends with it, mappings and
// executions told beside the samples, is compared from process to process. What stays as it is while a collector runs, where its
// memory lies say, is part of the error: all start anew several times, and the intervals are of these parts.

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { atMost, interval, mean, median, percent, shuffled, table } from './figures.mjs';
import { helper, library, sleep, Talker } from './helpers.mjs';
import { middleSources } from './loads.mjs';
import { Stop } from '../step.mjs';

const GCC = ['gcc', '-O2', '-g', '-c', '-w', '-o', '/dev/null'];
/** Calls of malloc in a turn of gcc's compiler proper: some half a millisecond. */
const TURN_CALLS = 400;
/** Turns of a victim that computes that are one run. */
const RUN_TURNS = 200;
/** How often all start anew, and of how many there must be something to compare. */
const PARTS = 8;
const PARTS_MIN = 5;
/** Shares of the time; the rest starts programs. */
const COMPUTING = 0.15;
const COMPILING = 0.8;
/** Runs of the same work without which what it usually takes is not known. */
const RUNS_MIN = 5;
const BAR_PERCENT = 0.2;

const [NOTHING, BARE] = [0, 1];
const cpus = Array.from({ length: availableParallelism() }, (_, cpu) => cpu);

/** A process on a CPU that can turn the collectors' events there on and off; its turns, if it takes any, are in `log`. */
function borrower({ cpu, hz, pids, command, turns }) {
  const env = turns && { TURNS_NAME: turns.name, TURNS_CALLS: String(turns.calls), TURNS_LOG: turns.log, LD_PRELOAD: library('turns') };
  return new Talker([helper('lend'), String(cpu), String(hz), ...pids.map(String), '--', ...command], { env: { ...process.env, ...env } });
}

/** The runs of a log, a line each: `{ way, ns }` of each turn. None, if none ended. */
function runsIn(log) {
  if (!existsSync(log)) return [];
  return readFileSync(log, 'utf8').split('\n').filter(Boolean).map((line) => {
    const words = line.trim().split(' ').map(Number);
    return Array.from({ length: words.length / 2 }, (_, turn) => ({ way: words[2 * turn], ns: words[2 * turn + 1] }));
  });
}

/**
 * How much time each way took in each run, over what the same turns take usually: the median of all runs of the same work,
 * whatever way was on. Nothing of runs that went another way.
 */
function levels(runs) {
  if (runs.length < RUNS_MIN) return [];
  const length = median(runs.map((run) => run.turns.length));
  const alike = runs.filter((run) => run.turns.length === length);
  const usual = Array.from({ length }, (_, turn) => median(alike.map((run) => run.turns[turn].ns)));
  return alike.map(({ part, turns }) => {
    const sums = new Map();
    turns.forEach(({ way, ns }, turn) => {
      const sum = sums.get(way) ?? sums.set(way, { ns: 0, usual: 0 }).get(way);
      sum.ns += ns;
      sum.usual += usual[turn];
    });
    return { part, ways: new Map([...sums].map(([way, sum]) => [way, sum.ns / sum.usual])) };
  });
}

/** A victim on every CPU that computes. */
async function computing({ scratch, seconds, ...where }) {
  const logs = cpus.map((cpu) => join(scratch, `computing-${cpu}`));
  const victims = cpus.map((cpu) => borrower({ ...where, cpu, command: [helper('chunk')], turns: { name: 'chunk', calls: 1, log: logs[cpu] } }));
  await sleep(seconds * 1000);
  await Promise.all(victims.map((victim) => victim.end()));
  return logs.flatMap((log) => {
    const all = runsIn(log).flat();
    return Array.from({ length: Math.floor(all.length / RUN_TURNS) }, (_, run) => ({ work: '', turns: all.slice(run * RUN_TURNS, (run + 1) * RUN_TURNS) }));
  });
}

/** On every CPU, over and over for some time: `run` with a number that counts up. */
const everywhere = (seconds, run) => {
  const end = performance.now() + seconds * 1000;
  return Promise.all(
    cpus.map(async (cpu) => {
      for (let at = cpu; performance.now() < end; at++) await run(cpu, at);
    }),
  );
};

/** gcc on every CPU, its compiler proper taking turns; and what a file takes it, in ns. */
async function compiling({ scratch, seconds, ...where }) {
  const files = middleSources();
  const logs = cpus.map((cpu) => join(scratch, `compiling-${cpu}`));
  const command = [helper('runner'), ...GCC];
  const runners = cpus.map((cpu) => borrower({ ...where, cpu, command, turns: { name: 'cc1', calls: TURN_CALLS, log: logs[cpu] } }));
  const asked = cpus.map(() => []);
  const taken = [];
  await everywhere(seconds, async (cpu, at) => {
    taken.push(Number(await runners[cpu].ask(`-1 ${files[at % files.length]}`)));
    asked[cpu].push(files[at % files.length]);
  });
  await Promise.all(runners.map((runner) => runner.end()));
  return { runs: cpus.flatMap((cpu) => runsIn(logs[cpu]).map((turns, at) => ({ work: asked[cpu][at], turns }))), ns: mean(taken) };
}

/** gcc of nothing on every CPU, way by way: what it takes to start and to end, in ns. */
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

/** One part, its files in a folder: all collectors start, are compared, and end. */
async function part(begin, within, hz, seconds) {
  const scratch = mkdtempSync(join(within, 'cost-'));
  const collectors = await begin();
  try {
    const where = { scratch, hz, pids: collectors.map(({ pid }) => pid) };
    const computed = await computing({ ...where, seconds: seconds * COMPUTING });
    const compiled = await compiling({ ...where, seconds: seconds * COMPILING });
    const started = await starting({ ...where, seconds: seconds * (1 - COMPUTING - COMPILING), count: collectors.length + 2 });
    return { names: ['nothing', 'bare interrupt', ...collectors.map(({ name }) => name)], computed, compiled, started };
  } finally {
    for (const collector of collectors) await collector.end();
    rmSync(scratch, { recursive: true });
  }
}

/** How much more one way takes than another, in percent, run by run. */
const excess = (runs, way, base) => runs.flatMap((run) => (run.has(way) && run.has(base) ? [(run.get(way) / run.get(base) - 1) * 100] : []));

/** The levels of all parts' runs, part by part; `of` has a part's runs, by what they did. */
function leveled(parts, of) {
  const works = new Map();
  parts.forEach((one, part) => {
    for (const { work, turns } of of(one)) works.set(work, [...(works.get(work) ?? []), { part, turns }]);
  });
  const all = [...works.values()].flatMap(levels);
  return parts.map((_, part) => all.filter((level) => level.part === part).map(({ ways }) => ways));
}

/** Prints what collectors cost at a rate. */
export async function cost({ begin, scratch, hz, seconds }) {
  const parts = [];
  for (let at = 0; at < PARTS; at++) parts.push(await part(begin, scratch, hz, seconds / PARTS));
  const computed = leveled(parts, (one) => one.computed);
  const compiled = leveled(parts, (one) => one.compiled.runs);
  const over = (all) => {
    const groups = all.filter((group) => group.length > 0);
    if (groups.length < PARTS_MIN) throw new Stop('too little to compare: the machine is too busy, or --seconds too short');
    return interval(groups);
  };
  /** Of starts, a share of what gcc takes for a file. */
  const starts = (way, base) =>
    over(parts.map((one) => (one.compiled.ns ? one.started.map((round) => ((round.get(way) - round.get(base)) / one.compiled.ns) * 100) : [])));
  const judged = (figure) => `${percent(figure)} ${atMost(figure.median, BAR_PERCENT, '%')}`;
  const above = (way, base, show) => [
    show(over(computed.map((runs) => excess(runs, way, base)))),
    show(over(compiled.map((runs) => excess(runs, way, base)))),
    percent(starts(way, base)),
  ];
  const { names } = parts[0];
  const count = (all) => all.reduce((sum, { length }) => sum + length, 0);
  const fileMs = mean(parts.map((one) => one.compiled.ns)) / 1e6;
  table(
    `cost at ${hz} Hz on each CPU: CPU time of the victims, median of runs (95%, by resampling ${PARTS} parts), ` +
      `${count(computed)}, ${count(compiled)} and ${count(parts.map(({ started }) => started))} of them; a file takes gcc ${fileMs.toFixed(0)} ms`,
    [
      ['', 'computing', 'compiling', 'starting gcc, of a file'],
      [`${names[BARE]}, above nothing`, ...above(BARE, NOTHING, percent)],
      ...names.slice(BARE + 1).map((name, at) => [`${name}, above the bare interrupt`, ...above(BARE + 1 + at, BARE, judged)]),
    ],
  );
}
