// Makes captures of programs on this machine: `dwell record` takes the samples, and callgrind counts the truth.
//
// Enters: a row of `programs.mjs`. Leaves: a capture (core/accuracy/FORMAT.md). Both run the same program with the same input.
// Only the program's own image counts, because libraries choose other variants of their functions under valgrind.

import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Stop, must, top } from '../step.mjs';
import { readCallgrind } from './callgrind.mjs';
import { disassemble } from './disassembly.mjs';
import { simulateInstructions } from './events.mjs';
import { flags, stubs } from './programs.mjs';
import { crateSource, debianSource } from './sources.mjs';
import { writeJson, writeTable } from './tables.mjs';
import { imbalance, truthOf } from './truth.mjs';

const here = join(dirname(fileURLToPath(import.meta.url)), 'programs');
const rust = join(here, 'rust');
const fixtures = join(top, 'test-fixtures/programs');
/** Samples per second: many enough in short runs, and far below the rate that the kernel throttles. */
const rate_hz = 10_000;
/** The default rate of `dwell record`. */
const default_rate_hz = 1_000;
/**
 * Share of the CPU time for path bursts, and the same share for counted windows. A user gets as many at 1 % in forty
 * times the time.
 */
const stepped_percent = 40;
/**
 * Largest number of recordings for path bursts. A program that does most of its work in libraries never has enough of
 * them.
 */
const recordings_max = 20;
/** Largest share of executions without a transfer: entries from libraries, longjmp. */
const imbalance_max = 0.001;
/** Number of samples, as 10 s on two processors at 5 kHz give. With 30,000, most of each error would be sampling noise. */
const simulated_samples = 100_000;

/** The steps for one program, and its folder. */
class Job {
  constructor(program, { folder, work, inputs, dwell, evaluator, samples, bursts, windows }) {
    Object.assign(this, { program, folder, work, inputs, dwell, evaluator, samples, bursts, windows });
    this.name = program.name;
    this.binary = join(work, 'bin', program.name);
    /** Removes debug information, some of which stops valgrind. The code stays the same. */
    this.bare = join(work, 'bare', program.name);
    this.sources = join(work, 'sources');
    this.stubs = join(work, 'stubs');
    this.dump = join(work, `${program.name}.callgrind`);
    this.database = join(work, `${program.name}.dwell`);
    this.stepped = join(work, `${program.name}.stepped.dwell`);
    this.counted = join(work, `${program.name}.counted.dwell`);
  }

  arguments() {
    return this.program.run.map((argument) => argument.replaceAll('{in}', this.inputs).replaceAll('{here}', here));
  }

  async build() {
    for (const folder of [this.stubs, dirname(this.binary), dirname(this.bare)]) mkdirSync(folder, { recursive: true });
    for (const [name, text] of Object.entries(stubs)) writeFileSync(join(this.stubs, name), text);
    const { path, source } = await this.#origin();
    this.source = source;
    if (existsSync(this.binary)) return;
    const env = { CC: flags(this.program), OUT: this.binary, STUBS: this.stubs, HERE: here };
    await must(`build ${this.name}`, ['bash', '-c', `cd "$0" && ${this.program.build}`, path], { env });
  }

  /** Returns the folder of its source, and a name for the source. */
  async #origin() {
    const { debian, crate, fixture } = this.program;
    if (fixture) return { path: fixtures, source: `test-fixtures/programs/${fixture}` };
    if (crate) return crateSource(crate, rust);
    return debianSource(debian, this.sources);
  }

  /** Runs the program repeatedly until there are enough samples. Each run is an epoch; the epochs are added up. */
  sample() {
    for (const database of [this.database, this.stepped, this.counted]) rmSync(database, { recursive: true, force: true });
    const record = [this.dwell, '--db', this.database, 'record', '-e', 'cpu-clock', '-F', String(rate_hz), '--paths', '0', '--windows', '0', '--', this.binary, ...this.arguments()];
    let sampling = { image_samples: 0 };
    for (let runs = 1; sampling.image_samples < this.samples; runs++) {
      if (runs > 200) throw new Stop(`${this.name}: it is too short, or spends its time in libraries: ${sampling.image_samples} samples after 200 runs`);
      this.#run(record);
      sampling = { ...JSON.parse(this.#export()), runs };
    }
    let bursts = 0;
    for (let recordings = 0; bursts < this.bursts; recordings++) {
      if (recordings >= recordings_max) throw new Stop(`${this.name}: only ${bursts} path bursts after ${recordings} recordings`);
      this.#repeat(sampling.runs, this.stepped, 'paths');
      ({ bursts } = JSON.parse(this.#export('--bursts', this.stepped)));
    }
    let windows = 0;
    for (let recordings = 0; windows < this.windows; recordings++) {
      if (recordings >= recordings_max) throw new Stop(`${this.name}: only ${windows} counted windows after ${recordings} recordings`);
      this.#repeat(sampling.runs, this.counted, 'windows');
      ({ windows } = JSON.parse(this.#export('--bursts', this.stepped, '--windows', this.counted)));
    }
    return { ...sampling, bursts, windows };
  }

  /** Runs it this many times in one recording with the defaults of `dwell record`. */
  recordByDefault(runs) {
    rmSync(this.database, { recursive: true, force: true });
    this.#record(runs, this.database);
    return { ...JSON.parse(this.#export()), runs };
  }

  /** Runs it as many times again while it is followed or counted at times. */
  #repeat(runs, database, how) {
    this.#record(runs, database, '-e', 'cpu-clock', '-F', '1000', `--${how}`, String(stepped_percent));
  }

  /** Makes this many runs in one recording, so that bursts and windows begin anywhere in them. */
  #record(runs, database, ...how) {
    const loop = ['bash', '-c', 'for ((i = 0; i < $0; i++)); do "$@" > /dev/null || exit; done', String(runs), this.binary, ...this.arguments()];
    this.#run([this.dwell, '--db', database, 'record', ...how, '--', ...loop]);
  }

  #export(...more) {
    return this.#run([this.evaluator, 'export-capture', '--db', this.database, '--image', this.binary, '--out', this.folder, ...more]);
  }

  /** Runs it once under callgrind, because each sampled run did the same work. */
  count() {
    const options = ['--tool=callgrind', '--dump-instr=yes', '--collect-jumps=yes', '--skip-plt=no', `--callgrind-out-file=${this.dump}`];
    this.#run(['strip', '--strip-debug', '-o', this.bare, this.binary]);
    this.#run(['nice', 'valgrind', '-q', ...options, this.bare, ...this.arguments()]);
    const instructions = disassemble(this.bare);
    const path = realpathSync(this.bare);
    // callgrind assigns stubs of the procedure linkage table to no object. Their addresses are those of the headers,
    // unless the program is `pie`.
    const belongs = (object, address) => object === path || (object === '???' && !this.program.pie && instructions.has(address));
    const truth = truthOf(readCallgrind(readFileSync(this.dump, 'utf8'), belongs), instructions);
    const { share, worst } = imbalance(truth, instructions);
    if (share > imbalance_max) {
      const rows = worst.map(({ address, executions, entered }) => `${address.toString(16)} ran ${executions}, entered ${entered}`);
      throw new Stop(`${this.name}: callgrind's counts do not add up (${(share * 100).toFixed(2)} %): ${rows.join('; ')}`);
    }
    return { truth, share };
  }

  #run(command) {
    const options = { encoding: 'utf8', maxBuffer: 2 ** 30, cwd: this.work };
    const { status, stdout, stderr, error } = spawnSync(command[0], command.slice(1), options);
    if (status !== 0) throw new Stop(`${this.name}: ${command.slice(0, 4).join(' ')} …: ${error?.message ?? stderr.trim().split('\n').pop()}`);
    return stdout;
  }
}

/** Makes a folder that appears when it is complete. */
async function making(folder, fill) {
  const unfinished = `${folder}.making`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { recursive: true });
  await fill(unfinished);
  rmSync(folder, { recursive: true, force: true });
  renameSync(unfinished, folder);
}

/** Makes the capture of one program. */
export const capture = (program, options) => making(join(options.folder, program.name), (folder) => fill(program, { ...options, folder }));

async function fill(program, options) {
  const job = new Job(program, options);
  await job.build();
  const { image_samples, ...sampling } = job.sample();
  const { truth, share } = job.count();
  copyFileSync(job.binary, join(options.folder, 'program'));
  writeTable(options.folder, 'executions.tsv', truth.executions);
  writeTable(options.folder, 'edges.tsv', truth.edges, 2);
  const simulated = simulateInstructions(options.folder, program.name, truth.executions, { runs: sampling.runs, wanted: simulated_samples });
  writeJson(options.folder, 'meta.json', {
    name: program.name,
    language: program.language,
    source: `${job.source}; ${flags(program)}; ${[program.name, ...program.run].join(' ')}`,
    role: program.role,
    ...sampling,
    image_samples,
    stepped_percent,
    truth: { tool: 'callgrind', imbalance: Number(share.toPrecision(3)) },
    simulated_events: [simulated],
  });
}

/**
 * Makes the capture of one program by a default `dwell record -- CMD`; its truth is that of `captured`, the other
 * capture of the program.
 */
export const captureByDefault = (program, captured, options) =>
  making(join(options.folder, program.name), async (folder) => {
    const meta = JSON.parse(readFileSync(join(captured, 'meta.json'), 'utf8'));
    delete meta.simulated_events;
    const job = new Job(program, { ...options, folder });
    await job.build();
    for (const name of ['program', 'executions.tsv', 'edges.tsv']) copyFileSync(join(captured, name), join(folder, name));
    const runs = (meta.runs * options.samples * rate_hz) / (meta.image_samples * default_rate_hz);
    const sampling = job.recordByDefault(Math.ceil(runs));
    writeJson(folder, 'meta.json', { ...meta, ...sampling, stepped_percent: 1 });
  });
