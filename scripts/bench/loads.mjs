// Loads for the machine while it is sampled: the build of a C project, a mix of languages, plain computation.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { Stop, top } from '../step.mjs';
import { endsWithUs } from './helpers.mjs';

/** Returns a C project that exists on every machine that has built Dwell: zstd, from cargo's store. */
export function cProject() {
  const { stdout } = spawnSync('cargo', ['metadata', '--format-version', '1', '--locked'], { cwd: top, encoding: 'utf8', maxBuffer: 1 << 28 });
  const zstd = JSON.parse(stdout).packages.find(({ name }) => name === 'zstd-sys');
  if (!zstd) throw new Stop('the sources of zstd are not in cargo’s store: cargo fetch');
  return join(zstd.manifest_path, '../zstd/lib');
}

/** Returns the medium-sized files of the project. gcc takes a few tenths of a second for each. */
export function middleSources() {
  const folder = cProject();
  const files = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.c')).map((name) => join(folder, name));
  return files.filter((file) => statSync(file).size > 10_000 && statSync(file).size < 35_000);
}

const cpus = availableParallelism();
const times = (count, command) => `for i in $(seq ${count}); do ${command}; done`;

/** A build: gcc runs on every file of the project, with one job per CPU. */
export const build = (objects) =>
  `cd ${objects} && find ${cProject()} -name '*.c' -print0 | xargs -0 -n1 -P${cpus} gcc -O2 -g -c -w`;

/** Compilers, JIT code, an interpreter and a shell that forks much, side by side. */
export const mixed = (objects) => `
  (cd ${objects} && find ${cProject()}/common ${cProject()}/decompress -name '*.c' -print0 | xargs -0 -n1 gcc -O2 -c -w) &
  node -e 'let s = 0; const f = (x) => (x * 31 + 7) % 1000003; for (let i = 0; i < 3e8; i++) s = f(s + i); process.exitCode = s < 0 ? 1 : 0' &
  python3 -c 'import hashlib, json
for i in range(60000): hashlib.sha1(json.dumps({"n": i, "l": list(range(20))}).encode()).digest()' &
  (${times(400, '/bin/true; /bin/ls / >/dev/null; echo $i | sed s/1/2/ | tr 2 3 >/dev/null')}) &
  wait`;

/** Plain computation on every CPU. */
export const computing = (seconds) => {
  const program = join(top, 'test-fixtures/programs/build/mispredict');
  // Otherwise its shell would loop without working.
  if (!existsSync(program)) throw new Stop(`${program} is missing: npm run build`);
  // With --foreground, timeout stays in our process group, which is killed at the end.
  return `${`timeout --foreground ${seconds} ${program} 100000000 >/dev/null & `.repeat(cpus)} wait; true`;
};

/** Thousands of processes. */
export const forking = (seconds) => `end=$((SECONDS + ${seconds})); while [ $SECONDS -lt $end ]; do /bin/true & /bin/true & wait; done`;

/** Runs a load to its end. */
export function runLoad(script) {
  return new Promise((resolve, reject) => {
    const child = spawn('bash', ['-c', script], { stdio: ['ignore', 'ignore', 'inherit'] });
    child.on('close', (status) => (status === 0 ? resolve() : reject(new Stop(`the load ended with status ${status}: ${script}`))));
  });
}

/** Runs a load repeatedly until it is stopped or this process ends in any way; then its shell is killed. */
export class Endless {
  constructor(script) {
    const shell = ['setpriv', '--pdeathsig', 'KILL', 'bash', '-c', `while :; do ${script}\ndone`];
    this.child = spawn(shell[0], shell.slice(1), { stdio: 'ignore', detached: true });
    this.ended = endsWithUs(-this.child.pid);
    this.closed = new Promise((resolve) => this.child.on('close', resolve));
  }

  async stop() {
    this.ended();
    process.kill(-this.child.pid, 'SIGKILL');
    await this.closed;
  }
}
