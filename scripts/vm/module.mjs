// Tests the kernel module: its source by checkpatch, its build with all warnings and sparse, and the module itself in virtual
// machines. Prints TAP; a test that cannot run here prints a line `SKIPPED <name>: <reason>`.

import { spawnSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Stop, top } from '../step.mjs';
import { checks, dwellFiles } from './end_to_end.mjs';
import { boot, buildGuest, buildModule, command, lack, spinFiles, tryDkms } from './machine.mjs';
import { checkpatch, dkms, kernel, room } from './packages.mjs';

let number = 0;
const tell = (good, name, details = '') => {
  console.log(`${good ? 'ok' : 'not ok'} ${++number} - ${name}`);
  if (!good && details) console.log(details.replace(/^/gm, '    '));
};
const skip = (name, reason) => console.log(`SKIPPED ${name}: ${reason}`);

/** Runs something that may find that a requirement is missing. */
async function orSkip(name, work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Stop)) throw error;
    skip(name, error.message);
    return null;
  }
}

/** outside_kernel.h replaces the kernel's headers elsewhere, so the kernel's rules do not apply to it. */
const kernelSources = () => ['', 'test/spin'].flatMap((folder) => readdirSync(join(top, 'kmod', folder)).map((name) => join(folder, name)))
  .filter((name) => /\.[ch]$|Kbuild$|^Makefile$/.test(name) && name !== 'outside_kernel.h');

/** A module outside the kernel's tree must check the kernel's version; only compat.h does. */
const outOfTree = 'LINUX_VERSION_CODE,CONSTANT_COMPARISON';

async function lint() {
  const script = await orSkip('checkpatch', () => checkpatch());
  if (!script) return;
  const args = ['--no-tree', '--strict', '--no-summary', '--terse', `--ignore=${outOfTree}`, '-f'];
  const { status, output } = await command('perl', [script, ...args, ...kernelSources()], { cwd: join(top, 'kmod') });
  tell(status === 0, 'checkpatch has nothing to say', output);
}

/** DKMS builds natively, so only for amd64 on amd64. */
async function install() {
  const name = 'DKMS installs the module and removes it';
  if (process.arch !== 'x64') return skip(name, 'kernels for amd64 are built for here');
  if (process.getuid() !== 0) return skip(name, 'dkms takes root');
  const had = await orSkip(name, () => ({ chosen: kernel('6.12', 'amd64'), script: dkms() }));
  if (!had) return undefined;
  const { wrong, output } = await tryDkms(had.chosen, had.script);
  return tell(!wrong, name, `${wrong}\n${output}`);
}

/**
 * Number of attempts to boot. An emulator without enough CPU time sometimes hangs in its firmware or ends early, before the
 * guest's kernel prints anything; each was seen once in the ten machines of a loaded run. A defect of the module occurs again.
 * The number is limited, because a kernel that never boots must not use up the time of all other tests.
 */
const BOOTS_MAX = 3;
const BOOT_AGAIN_UNTIL = Date.now() + 8 * 60_000;

function isComplete({ text, inTime }) {
  const planned = Number(text.match(/^1\.\.(\d+)$/m)?.[1] ?? NaN);
  return inTime && [...text.matchAll(/^(ok|not ok) \d+ - /gm)].length === planned;
}

/** Reports the guest's results as ours, each with the machine's name. A plan that is not fulfilled is a failure. */
function report(name, { text, inTime }) {
  // The line of a test, and the following lines up to the next test: details of a failure.
  const results = [...text.matchAll(/^(ok|not ok) \d+ - (.*)$([^]*?)(?=^(?:ok|not ok) \d+ - |^1\.\.\d+$|(?![^]))/gm)];
  for (const [, word, what, details] of results) {
    const [title, reason] = what.split(' # SKIP ');
    if (reason) skip(`${name}: ${title}`, reason);
    else tell(word === 'ok', `${name}: ${what}`, details.trim());
  }
  const complete = isComplete({ text, inTime });
  tell(complete, `${name}: the machine ran all its tests`, `${inTime ? '' : 'stopped: it took too long\n'}${text.split('\n').slice(-30).join('\n')}`);
  if (!complete || /^not ok/m.test(text)) writeFileSync(join(room, `${name.replace(/[^\w.-]+/g, '-')}.log`), text);
}

const made = new Map();

/** Machines share modules and guests. A file that is being read must not be rewritten. */
function shared(name, make) {
  if (!made.has(name)) made.set(name, make());
  return made.get(name);
}

const kind = ({ nmi, bench, dwell }) => (nmi ? ' with NMIs' : '') + (bench ? ' bench' : '') + (dwell ? ' with dwell' : '');

/**
 * Builds, boots and tests with one kernel. `nmi`: use the build whose CPUs send each other NMIs. `bench`: measure how many
 * instructions a sample takes, in a machine where an instruction takes one ns. `dwell`: run dwell itself with the module.
 */
async function machine({ version, arch, nmi = false, bench = false, dwell = false, only = '', options: own = '' }) {
  const name = `${version} ${arch}${kind({ nmi, bench, dwell })}`;
  const reason = lack(arch);
  if (reason) return skip(name, reason);
  const chosen = await orSkip(name, () => kernel(version, arch));
  const files = dwell ? await orSkip(name, () => dwellFiles(arch)) : {};
  if (!chosen || !files) return undefined;
  if (dwell) Object.assign(files, await spinFiles(chosen));
  const isUsual = !nmi && !bench && !dwell;
  const sparse = !spawnSync('sparse', ['--version']).error;
  if (!sparse && isUsual) skip(`${name}: sparse`, 'it is not installed (Debian: apt-get install sparse)');
  const { file, output } = await shared(`${chosen.name}${nmi}`, () => buildModule(chosen, { nmi, sparse: sparse && !nmi }));
  if (isUsual) tell(output === '', `${name}: builds without a word from W=1${sparse ? ' and sparse' : ''}`, output);
  const guest = await shared(arch, () => buildGuest(arch));
  const mode = bench ? 'bench' : dwell ? 'end_to_end' : 'tests';
  const options = `${own} dwell_mode=${mode} ${nmi ? 'dwell_nmi=1' : ''} ${only ? `dwell_only=${only}` : ''}`;
  const shape = bench ? { icount: 'shift=0,sleep=off', cpus: 1 } : dwell ? { memory: 1024, files, limitSeconds: 800 } : {};
  const once = () => boot({ kernel: chosen, module: file, guest, options, ...shape });
  let ended = await once();
  for (let left = BOOTS_MAX - 1; left > 0 && !isComplete(ended) && Date.now() < BOOT_AGAIN_UNTIL; left -= 1) {
    writeFileSync(join(room, `${name.replace(/[^\w.-]+/g, '-')}-unfinished-${left}.log`), ended.text);
    console.log(`# ${name}: ended early (${ended.inTime ? `by itself, ${ended.status}` : 'stopped: it took too long'}); booted again`);
    ended = await once();
  }
  report(name, ended);
  if (dwell) checks(ended.text).forEach(([what, good]) => tell(good, `${name}: ${what}`));
}

const machines = [
  { version: '6.12', arch: 'amd64' },
  { version: '6.12', arch: 'arm64' },
  // Its second CPU comes online while the guest runs, which provides what that needs here (work_pause in
  // kmod/test/work.c).
  { version: '6.1', arch: 'amd64', options: 'maxcpus=1' },
  { version: '6.1', arch: 'arm64' },
  { version: '6.12', arch: 'amd64', nmi: true, only: 'nmis' },
  { version: '6.12', arch: 'amd64', bench: true },
  { version: '6.12', arch: 'arm64', bench: true },
  { version: '6.12', arch: 'amd64', dwell: true },
  { version: '6.1', arch: 'amd64', dwell: true, options: 'maxcpus=1' },
  { version: '6.12', arch: 'arm64', dwell: true },
  { version: '6.1', arch: 'arm64', dwell: true },
];

await lint();
// Two machines run at a time, because one QEMU uses one CPU. Kernels are unpacked one after the other.
const words = process.argv.slice(2);
const queue = machines.filter((one) => words.every((word) => `${one.version} ${one.arch}${kind(one)}`.toLowerCase().includes(word)));
if (words.length === 0) await install();
const worker = async () => {
  for (let next = queue.shift(); next; next = queue.shift()) {
    try {
      await machine(next);
    } catch (error) {
      if (!(error instanceof Stop)) throw error;
      tell(false, `${next.version} ${next.arch}`, error.message);
    }
  }
};
await Promise.all([worker(), worker()]);
console.log(`1..${number}`);
