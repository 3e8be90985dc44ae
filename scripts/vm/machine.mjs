// Builds the module and the guest for a kernel, and boots both in QEMU. Leaves: the text that the guest printed on its console.

import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Stop, top } from '../step.mjs';
import { cpio } from './cpio.mjs';
import { room } from './packages.mjs';

const sources = join(top, 'kmod');
const guestSources = ['guest', 'tests', 'gate', 'given_up', 'bench', 'end_to_end', 'reader', 'work'].map((name) => join(sources, `test/${name}.c`));
const machines = {
  amd64: { program: 'qemu-system-x86_64', debian: 'qemu-system-x86', args: ['-machine', 'q35', '-cpu', 'max'], console: 'ttyS0', options: 'mitigations=off', cross: '', gcc: 'gcc' },
  arm64: { program: 'qemu-system-aarch64', debian: 'qemu-system-arm', args: ['-M', 'virt', '-cpu', 'cortex-a57'], console: 'ttyAMA0', options: '', cross: 'aarch64-linux-gnu-', gcc: 'aarch64-linux-gnu-gcc' },
};

/** Returns what is missing here for that architecture, or null. */
export function lack(arch) {
  const { program, debian, gcc } = machines[arch];
  const has = (name) => !spawnSync(name, ['--version']).error;
  if (!has(program)) return `${program} is not installed (Debian: apt-get install ${debian})`;
  return has(gcc) ? null : `${gcc} is not installed`;
}

/** Runs a command to its end. */
export function command(program, args, options = {}) {
  return new Promise((resolve) => {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
    const chunks = [];
    child.stdout.on('data', (chunk) => chunks.push(chunk));
    child.stderr.on('data', (chunk) => chunks.push(chunk));
    child.on('error', (error) => resolve({ status: null, output: error.message }));
    child.on('close', (status) => resolve({ status, output: Buffer.concat(chunks).toString() }));
  });
}

/**
 * Builds the modules of a copied folder as strictly as the kernel's build can: with W=1, and with sparse where it is
 * installed.
 */
async function make(kernel, from, kind, { sparse, options = [] }) {
  const folder = join(room, 'build', `${kernel.name.replace(' ', '-')}${kind}`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  cpSync(from, folder, { recursive: true, filter: (path) => ![join(sources, 'test'), join(sources, 'build')].includes(path) });
  const cross = kernel.arch === 'arm64' ? ['ARCH=arm64', `CROSS_COMPILE=${machines.arm64.cross}`] : [];
  const args = ['-s', '-C', kernel.headers, `M=${folder}`, 'CONFIG_DEBUG_INFO_BTF_MODULES=', 'W=1', ...cross, ...(sparse ? ['C=2'] : []), ...options, 'modules'];
  const { output } = await command('make', args);
  return { folder, output: output.trim() };
}

/**
 * Builds dwell.ko.
 * @returns {Promise<{ file: string, output: string }>} `output`: messages of all tools; none is expected
 */
export async function buildModule(kernel, { nmi = false, sparse = false } = {}) {
  const { folder, output } = await make(kernel, sources, nmi ? '-nmi' : '', { sparse, options: nmi ? ['DWELL_TEST_NMI=y'] : [] });
  const file = join(folder, 'dwell.ko');
  if (!existsSync(file)) throw new Stop(`the module for ${kernel.name} was not built: ${output}`);
  return { file, output };
}

/**
 * Installs the module by DKMS into folders of our own and removes it again, as the README describes.
 * @returns {Promise<{ wrong: string | null, output: string }>} `wrong`: the step that failed
 */
export async function tryDkms(kernel, script) {
  const readme = readFileSync(join(sources, 'README.md'), 'utf8');
  const [, source, module] = readme.match(/cp -r kmod \/usr\/src\/(\S+) && dkms install (\S+)/);
  const folder = join(room, 'build', 'dkms');
  rmSync(folder, { recursive: true, force: true });
  const [tree, src, install] = ['tree', 'src', 'install'].map((name) => join(folder, name));
  for (const made of [tree, src, join(install, kernel.release)]) mkdirSync(made, { recursive: true });
  cpSync(sources, join(src, source), { recursive: true });
  const folders = ['--dkmstree', tree, '--sourcetree', src, '--installtree', install, '--kernelsourcedir', kernel.headers];
  // The headers are not where Debian's BTF tools expect them, and no signing key may be created in this system.
  const env = { ...process.env, LC_ALL: 'C', MAKEFLAGS: 'CONFIG_DEBUG_INFO_BTF_MODULES=', mok_signing_key: join(folder, 'key'), mok_certificate: join(folder, 'certificate') };
  const dkms = (verb) => command(script, [verb, module, '-k', `${kernel.release}/x86_64`, ...folders, '--no-depmod'], { env });
  const installed = () => existsSync(install) && readdirSync(install, { recursive: true }).find((name) => /\/dwell\.ko/.test(name));
  const { status, output } = await dkms('install');
  if (status !== 0 || !installed()) return { wrong: 'it is not installed', output };
  const removed = await dkms('remove');
  return { wrong: removed.status === 0 && !installed() ? null : 'it is not removed', output: removed.output };
}

/** Builds the modules that are loaded and unloaded while dwell runs, as files of the virtual machine. */
export async function spinFiles(kernel) {
  const { folder, output } = await make(kernel, join(sources, 'test/spin'), '-spin', { sparse: false });
  if (output) throw new Stop(`the modules of kmod/test/spin for ${kernel.name}: ${output}`);
  return Object.fromEntries(['dwell_spin.ko', 'dwell_turn.ko'].map((name) => [name, readFileSync(join(folder, name))]));
}

/** Builds the program that tests the module, the first process of the virtual machine. It is static, so it needs no other file. */
export async function buildGuest(arch) {
  const file = join(room, `guest-${arch}`);
  const { status, output } = await command(machines[arch].gcc, ['-static', '-std=gnu11', '-O2', '-Wall', '-Wextra', '-Werror', '-o', file, ...guestSources]);
  if (status !== 0) throw new Stop(`the guest for ${arch} was not built: ${output.trim()}`);
  return file;
}

/**
 * Boots a kernel with the guest as its first process.
 * @param {{ kernel: object, module: string, guest: string, options?: string, files?: Record<string, Buffer | null>, cpus?: number, memory?: number, icount?: string | null, limitSeconds?: number }} what
 * `icount`: virtual time advances by instructions, so that the load of this machine does not affect the virtual one. In real
 * time (null), a virtual machine without enough CPU time finds no working timer at boot and panics, or its kernel reports stalls
 */
export async function boot({ kernel, module, guest, options = '', files = {}, cpus = 2, memory = 512, icount = 'shift=3,sleep=off', limitSeconds = 400 }) {
  const machine = machines[kernel.arch];
  const initrd = join(room, `initrd-${kernel.name.replace(' ', '-')}-${process.pid}-${Math.random().toString(36).slice(2)}`);
  writeFileSync(initrd, cpio({ init: readFileSync(guest), 'dwell.ko': readFileSync(module), dev: null, proc: null, sys: null, tmp: null, ...files }));
  const args = [
    ...machine.args, '-smp', String(cpus), '-m', String(memory), '-nographic', '-no-reboot', '-nodefaults', '-serial', 'stdio', ...(icount ? ['-icount', icount] : []),
    '-kernel', kernel.image, '-initrd', initrd, '-append', `console=${machine.console} quiet panic=-1 ${machine.options} ${options}`,
  ];
  const { status, output } = await command('timeout', [String(limitSeconds), machine.program, ...args]);
  rmSync(initrd);
  const text = output.replace(/\x1b\[[0-9;?]*[A-Za-z]|\x1bc/g, '').replace(/\r/g, '');
  return { text, status, inTime: status !== 124 };
}
