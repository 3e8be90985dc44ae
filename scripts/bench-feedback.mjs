// `npm run bench:feedback [-- OPTION…] [PROGRAM…]`: builds programs again with Dwell's profiles for the compiler, and measures
// how fast they are.
//
// --rounds N     how often each build of each program is timed (default 25; 0: build and sample only)
// --seconds N    seconds of CPU time for which each program is sampled (default 10)
// --paths N      percent of that time in which threads may be followed (dwell record --paths; default 5)
// --bare         adds a build with executions from a recording without followed paths
// --fresh        builds and samples again; otherwise sources, builds and profiles in target/feedback are reused
//
// clang-14 of Debian makes four builds of each program, with the same flags except for the profile:
//
// - `plain` has no profile.
// - `samples` uses raw samples, as AutoFDO does without LBR.
// - `executions` uses Dwell's estimates from the same recording.
// - `counted` uses clang's own instrumentation (-fprofile-instr-use), which is the upper limit.
//
// Each build is trained and timed with the same input. The measured time is CPU time in user mode and in the kernel. All builds
// of a program run in turn, in another order in each round. A speedup is computed for each round; the table contains the median
// and its 95% interval by resampling. Other load on the machine widens the interval, but favours no build.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { makeInputs } from './accuracy/inputs.mjs';
import { programs as all, stubs } from './accuracy/programs.mjs';
import { crateSource, debianSource } from './accuracy/sources.mjs';
import { interval, median, shuffled, table } from './bench/figures.mjs';
import { dwell as released, main } from './build.mjs';
import { must, Stop, target } from './step.mjs';

const here = join(dirname(fileURLToPath(import.meta.url)), 'accuracy/programs');
const rust = join(here, 'rust');
const work = join(target, 'feedback');
const inputs = join(work, 'inputs');
const chosen = ['lua', 'bzip2', 'minigzip', 'tinyxml2', 'xmlwf', 'sqlite'];
const rate_hz = 4000;

const common = '-O2 -w -fno-pie -no-pie -Wl,--build-id -gline-tables-only -fdebug-info-for-profiling';
/** Debian packages, each with one of its files. */
const tools = {
  'clang-14': '/usr/bin/clang-14', 'llvm-14': '/usr/bin/llvm-profdata-14', 'dpkg-dev': '/usr/bin/dpkg-source',
  'libclang-rt-14-dev': '/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.profile-x86_64.a',
};

function options() {
  try {
    const number = (fallback) => ({ type: 'string', default: String(fallback) });
    const flag = { type: 'boolean', default: false };
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: { rounds: number(25), seconds: number(10), paths: number(5), fresh: flag, bare: flag, dwell: { type: 'string', default: released } },
    });
    const strange = positionals.filter((name) => !all.some((program) => program.name === name && program.language !== 'rust'));
    if (strange.length > 0) throw new Error(`no such program: ${strange.join(', ')}`);
    return { ...values, rounds: Number(values.rounds), seconds: Number(values.seconds), names: positionals.length > 0 ? positionals : chosen };
  } catch (error) {
    throw new Stop(error.message);
  }
}

function checkTools() {
  const missing = Object.keys(tools).filter((name) => !existsSync(tools[name]));
  if (missing.length > 0) throw new Stop(`missing; as root: apt-get install ${missing.join(' ')}`);
}

/** A program and all its builds. */
class Subject {
  constructor(program, options) {
    Object.assign(this, { program, options, name: program.name, folder: join(work, program.name) });
    this.stubs = join(work, 'stubs');
    this.arguments = program.run.map((argument) => argument.replaceAll('{in}', inputs).replaceAll('{here}', here));
  }

  binary(way) {
    return join(this.folder, way.replace(' ', '-'), this.name);
  }

  async make() {
    mkdirSync(this.stubs, { recursive: true });
    for (const [name, text] of Object.entries(stubs)) writeFileSync(join(this.stubs, name), text);
    const { debian, crate } = this.program;
    this.origin = debian ? await debianSource(debian, join(work, 'sources')) : await crateSource(crate, rust);
    await this.#build('plain', '');
    this.#count(await this.#build('counting', '-fprofile-instr-generate'));
    await this.#build('counted', `-fprofile-instr-use=${this.#profile('counted')}`);
    this.#sample('paths', ['--paths', this.options.paths]);
    if (this.options.bare) this.#sample('bare', []);
    const profiles = [['samples', 'paths', 'samples'], ['executions', 'paths', 'executions'], ['no paths', 'bare', 'executions']];
    for (const [way, database, counts] of profiles.filter(([way]) => way !== 'no paths' || this.options.bare)) {
      const profile = this.#profile(way);
      if (!existsSync(profile)) this.#run([this.options.dwell, '--db', join(this.folder, database), 'feedback', '--for', 'clang', '--image', this.binary('plain'), '--counts', counts, '-o', profile]);
      await this.#build(way, `-fprofile-sample-use=${profile}`);
    }
  }

  #profile(way) {
    return join(this.folder, `${way.replace(' ', '-')}.prof`);
  }

  async #build(way, profile) {
    const binary = this.binary(way);
    if (existsSync(binary)) return binary;
    mkdirSync(dirname(binary), { recursive: true });
    const compiler = this.program.language === 'c' ? 'clang-14' : 'clang++-14';
    const env = { CC: `${compiler} ${common} ${profile}`, OUT: binary, STUBS: this.stubs, HERE: here };
    await must(`${this.name}, ${way}`, ['bash', '-c', `cd "$0" && ${this.program.build}`, this.origin.path], { env });
    return binary;
  }

  #count(binary) {
    if (existsSync(this.#profile('counted'))) return;
    const raw = join(this.folder, 'counted.raw');
    this.#run([binary, ...this.arguments], { LLVM_PROFILE_FILE: raw });
    this.#run(['llvm-profdata-14', 'merge', '-o', this.#profile('counted'), raw]);
  }

  /** Makes as many runs as fill the time, in one recording. */
  #sample(name, more) {
    const database = join(this.folder, name);
    if (existsSync(database)) return;
    const runs = Math.max(1, Math.ceil(this.options.seconds / this.time('plain')));
    const loop = ['bash', '-c', 'for ((i = 0; i < $0; i++)); do "$@" > /dev/null || exit; done', String(runs), this.binary('plain'), ...this.arguments];
    this.#run([this.options.dwell, '--db', database, 'record', '-e', 'cpu-clock', '-F', String(rate_hz), ...more, '--', ...loop]);
  }

  /** Returns the CPU seconds of one run. */
  time(way) {
    const command = ['-c', 'TIMEFORMAT="%3U %3S"; time "$@" > /dev/null', 'bash', this.binary(way), ...this.arguments];
    const { status, stderr } = spawnSync('bash', command, { encoding: 'utf8', cwd: work, maxBuffer: 1 << 26 });
    const [user, system] = stderr.trim().split('\n').pop().split(' ').map(Number);
    if (status !== 0) throw new Stop(`${this.name}, ${way}: status ${status}: ${stderr.trim()}`);
    return user + system;
  }

  #run(command, env = {}) {
    const { status, stderr, error } = spawnSync(command[0], command.slice(1), { encoding: 'utf8', maxBuffer: 2 ** 30, cwd: work, env: { ...process.env, ...env } });
    if (status !== 0) throw new Stop(`${this.name}: ${command.slice(0, 4).join(' ')} …: ${error?.message ?? stderr.trim().split('\n').pop()}`);
  }
}

/** Returns seconds by way, a number for each round. */
function measure(subjects, ways, rounds) {
  const seconds = new Map(subjects.map(({ name }) => [name, Object.fromEntries(ways.map((way) => [way, []]))]));
  for (let round = 0; round < rounds; round++) {
    for (const subject of subjects) {
      for (const way of shuffled(ways)) seconds.get(subject.name)[way].push(subject.time(way));
    }
    if (process.stderr.isTTY) process.stderr.write(`\rround ${round + 1} of ${rounds}`);
  }
  return seconds;
}

/** Returns by how many percent a way is faster than plain, in each round. */
const gains = (seconds, way) => seconds.plain.map((plain, round) => (plain / seconds[way][round] - 1) * 100);

const signed = (value) => `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(1)}`;

function report(subjects, estimated, seconds) {
  const ways = [...estimated, 'counted'];
  const rows = [['program', 'plain, s', ...ways.map((way) => `${way}, %`), ...estimated.map((way) => `${way} of counted`)]];
  const logs = Object.fromEntries(ways.map((way) => [way, 0]));
  for (const { name } of subjects) {
    const of = seconds.get(name);
    const cells = ways.map((way) => {
      const { middle, low, high } = interval(gains(of, way));
      logs[way] += Math.log(1 + middle / 100);
      return `${signed(middle)} (${signed(low)} to ${signed(high)})`;
    });
    const gain = (way) => median(gains(of, way));
    // If the ceiling itself is within chance, shares of it are meaningless.
    const share = (way) => (interval(gains(of, 'counted')).low > 1 ? `${((gain(way) / gain('counted')) * 100).toFixed(0)} %` : '–');
    rows.push([name, median(of.plain).toFixed(3), ...cells, ...estimated.map(share)]);
  }
  const mean = (way) => logs[way] / subjects.length;
  const shares = estimated.map((way) => `${((mean(way) / mean('counted')) * 100).toFixed(0)} %`);
  rows.push(['geometric mean', '', ...ways.map((way) => signed((Math.exp(mean(way)) - 1) * 100)), ...shares]);
  table('Faster than plain -O2 by, and that as a share of what counted profiles give', rows);
}

await main(async () => {
  const asked = options();
  checkTools();
  if (asked.fresh) for (const name of asked.names) rmSync(join(work, name), { recursive: true, force: true });
  mkdirSync(work, { recursive: true });
  if (asked.dwell === released) await must('dwell', ['cargo', 'build', '--release', '-p', 'dwell-cli']);
  makeInputs(inputs);
  const subjects = asked.names.map((name) => new Subject(all.find((program) => program.name === name), asked));
  for (const subject of subjects) await subject.make();
  if (asked.rounds === 0) return;
  const before = loadavg()[0];
  const estimated = ['samples', ...(asked.bare ? ['no paths'] : []), 'executions'];
  const seconds = measure(subjects, ['plain', ...estimated, 'counted'], asked.rounds);
  report(subjects, estimated, seconds);
  console.log(`\n${asked.rounds} rounds; ${cpus()[0].model}, ${availableParallelism()} CPUs, Linux ${release()}; load ${before.toFixed(1)} before, ${loadavg()[0].toFixed(1)} after; ${rate_hz} Hz, ${asked.seconds} s, --paths ${asked.paths}`);
});
