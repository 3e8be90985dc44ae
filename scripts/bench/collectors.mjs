// Collectors that sample the whole machine: none, perf, Dwell. Each can be turned on and off while victims run.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, openSync, closeSync, constants, readSync, rmSync, statSync, writeSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { dwell as built } from '../build.mjs';
import { Stop } from '../step.mjs';
import { countPerfData } from './perf-data.mjs';
import { bytesBelow, cpuMs, helper, residentBytes, sleep, Talker } from './helpers.mjs';

/** The measured program: the one that was built here, or another one for comparison. */
export const dwell = process.env.DWELL ?? built;

/** An event whose consumer does nothing. */
export class Bare {
  name = 'returns at once';

  get pid() {
    return this.talker.pid;
  }

  async start(hz) {
    this.talker = new Talker([helper('bare'), String(hz)]);
    await this.talker.line();
  }

  async turn(on) {
    await this.talker.ask(on ? '1' : '0');
  }

  async end() {
    await this.talker.end();
  }
}

/** `perf record -a`, controlled by its control files. */
export class Perf {
  name = 'perf record -a';

  constructor(scratch) {
    this.folder = mkdtempSync(join(scratch, 'perf-'));
    this.file = join(this.folder, 'perf.data');
  }

  async start(hz) {
    const [control, answers] = ['control', 'answers'].map((name) => join(this.folder, name));
    if (spawnSync('mkfifo', [control, answers]).status !== 0) throw new Stop(`mkfifo ${control} failed`);
    this.control = openSync(control, constants.O_RDWR);
    this.answers = openSync(answers, constants.O_RDWR);
    // -B: at its end perf 6.1 reads the build IDs of all images, and aborts on some (build-id.c:1010).
    this.talker = new Talker(['perf', 'record', '-q', '-B', '-a', '-e', 'cpu-clock', '-F', String(hz), '-D', '-1', '--control', `fifo:${control},${answers}`, '-o', this.file]);
    await sleep(1000); // It prints nothing when it is ready; the first command is answered then.
  }

  async turn(on) {
    writeSync(this.control, on ? 'enable\n' : 'disable\n');
    readSync(this.answers, Buffer.alloc(64));
  }

  get pid() {
    return this.talker.pid;
  }

  get bytes() {
    return statSync(this.file).size;
  }

  async end() {
    await this.talker.end('SIGINT');
    [this.control, this.answers].forEach(closeSync);
    Object.assign(this, countPerfData(this.file));
  }
}

/** `dwell daemon` with a database of its own. */
export class Dwell {
  constructor(scratch, backend, options = []) {
    this.backend = backend;
    this.name = `dwell ${backend}`;
    this.database = mkdtempSync(join(scratch, 'dwell-'));
    this.options = options;
  }

  async start(hz) {
    const command = [dwell, '--db', this.database, 'daemon', ...daemonOptions(this.backend, hz), ...this.options];
    this.talker = new Talker(command);
    while (!existsSync(join(this.database, 'daemon.sock'))) {
      await Promise.race([sleep(20), this.talker.closed.then(() => this.talker.line())]);
    }
    this.took = (await this.status()).backend;
  }

  /** Sends one request of the daemon's control protocol. */
  ask(request) {
    return new Promise((resolve, reject) => {
      const socket = connect(join(this.database, 'daemon.sock'));
      socket.on('error', reject);
      createInterface({ input: socket }).once('line', (line) => {
        socket.destroy();
        const answer = JSON.parse(line);
        if (answer.answer === 'failed') reject(new Stop(`dwell daemon: ${answer.why}`));
        else resolve(answer);
      });
      socket.write(`${JSON.stringify(request)}\n`);
    });
  }

  turn(on) {
    return this.ask({ request: on ? 'resume' : 'pause' });
  }

  status() {
    return this.ask({ request: 'status' });
  }

  flush() {
    return this.ask({ request: 'flush' });
  }

  get pid() {
    return this.talker.pid;
  }

  get bytes() {
    return bytesBelow(join(this.database, 'epochs')) + bytesBelow(join(this.database, 'sources'));
  }

  answer(...words) {
    const { stdout } = spawnSync(dwell, ['--db', this.database, '--json', ...words], { encoding: 'utf8', maxBuffer: 1 << 28 });
    return JSON.parse(stdout);
  }

  newest() {
    return this.answer('epoch', 'list').epochs.at(-1);
  }

  /**
   * Returns the samples of the newest epoch in images of generated code, `jit:…`, which belong to an application but to no file.
   */
  inJit() {
    const { id, events } = this.newest();
    const { rows } = this.answer('top', '--by', 'image', '-n', '0', '--epoch', id);
    const samples = (row) => Object.keys(events).reduce((sum, event) => sum + (row.samples[event] ?? 0), 0);
    return rows.filter((row) => row.build_id.startsWith('jit:')).reduce((sum, row) => sum + samples(row), 0);
  }

  /** Counts of the newest epoch, summed over its events. */
  tallies() {
    return Object.values(this.newest().events).reduce(
      (sum, { samples, unknown, lost }) => ({ samples: sum.samples + samples, unknown: sum.unknown + unknown, lost: sum.lost + lost }),
      { samples: 0, unknown: 0, lost: 0 },
    );
  }

  async end() {
    await this.talker.end('SIGTERM');
  }
}

/** Without a given rate the daemon uses its own settings. With a rate it has no budget, so that it keeps this rate. */
const daemonOptions = (backend, hz) => ['--backend', backend, ...(hz ? ['-F', String(hz), '--budget', '0'] : [])];

/** Returns whether the backend works here, or the reason why it does not. */
export async function unavailable(scratch, backend) {
  const collector = new Dwell(scratch, backend);
  try {
    await collector.start(100);
    await collector.end();
    rmSync(collector.database, { recursive: true, force: true });
    return undefined;
  } catch (error) {
    return error.message;
  }
}

/** Returns a function that measures the resources of a collector since its last call: CPU ms and bytes per second. */
export function meter(collector) {
  const look = () => ({ at: performance.now(), cpu: cpuMs(collector.pid), bytes: collector.bytes });
  const before = look();
  return () => {
    const after = look();
    const seconds = (after.at - before.at) / 1000;
    return { seconds, cpuMsPerSecond: (after.cpu - before.cpu) / seconds, bytes: after.bytes - before.bytes, resident: residentBytes(collector.pid) };
  };
}

export const scratchFolder = () => mkdtempSync(join(tmpdir(), 'dwell-bench-'));
