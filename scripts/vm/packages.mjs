// Fetches Debian's kernels, headers and checkpatch once, and unpacks them below target/vm, without any change to this system.
//
// apt uses a separate state there, so that it can know arm64 even if dpkg on this machine does not. Nothing is installed.

import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Stop, target } from '../step.mjs';

export const room = join(target, 'vm');
const state = join(room, 'apt');
const architectures = ['amd64', 'arm64'];
/** Name of each kernel's newest image, without the architecture. */
const metaPackages = { '6.1': 'linux-image-cloud', '6.12': 'linux-image-6.12-cloud' };

const settings = [
  '-q', `-oDir::State=${state}`, `-oDir::State::status=${join(state, 'status')}`, `-oDir::Cache=${join(state, 'cache')}`,
  '-oAPT::Architecture=amd64', ...architectures.map((name) => `-oAPT::Architectures::=${name}`),
  '-oAcquire::Languages=none', '-oAPT::Sandbox::User=root',
];

function tool(program, args, cwd = room) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd, encoding: 'utf8', maxBuffer: 1 << 28, env: { ...process.env, LC_ALL: 'C' } });
  if (error) throw new Stop(`${program} is not installed`);
  if (status !== 0) throw new Stop(`${program} ${args.filter((word) => !word.startsWith('-')).slice(0, 3).join(' ')}: ${stderr.trim().split('\n').pop()}`);
  return stdout;
}

/** Reads the package lists, once. */
function update() {
  if (existsSync(join(state, 'updated'))) return;
  for (const folder of ['lists/partial', 'cache/archives/partial']) mkdirSync(join(state, folder), { recursive: true });
  writeFileSync(join(state, 'status'), '');
  tool('apt-get', [...settings, 'update']);
  writeFileSync(join(state, 'updated'), '');
}

const dependencies = (name) => [...tool('apt-cache', [...settings, 'depends', name]).matchAll(/^ +Depends: <?([^\s>]+)/gm)].map((match) => match[1]);

/** Unpacks packages into a folder that appears when it is complete. */
function unpack(names, folder) {
  const unfinished = `${folder}.part`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { recursive: true });
  tool('apt-get', [...settings, 'download', ...names], unfinished);
  for (const file of readdirSync(unfinished).filter((name) => name.endsWith('.deb'))) {
    tool('dpkg-deb', ['-x', join(unfinished, file), unfinished]);
    rmSync(join(unfinished, file));
  }
  renameSync(unfinished, folder);
}

const only = (folder, pattern) => {
  const names = readdirSync(folder).filter((name) => pattern.test(name));
  if (names.length !== 1) throw new Stop(`${folder}: ${names.length} files like ${pattern}`);
  return join(folder, names[0]);
};

/** The Makefile of the headers names a folder of the system, which is elsewhere here. */
function mend(headers, common) {
  const makefile = join(headers, 'Makefile');
  if (lstatSync(makefile).isSymbolicLink()) rmSync(makefile);
  writeFileSync(makefile, `include ${join(common, 'Makefile')}\n`);
}

/**
 * Returns a kernel to boot, and the headers to build for it.
 * @returns {{ name: string, arch: string, release: string, image: string, headers: string }}
 */
export function kernel(version, arch) {
  const folder = join(room, `${version}-${arch}`);
  if (!existsSync(folder)) {
    mkdirSync(room, { recursive: true });
    update();
    const image = dependencies(`${metaPackages[version]}-${arch}:${arch}`).find((name) => name.startsWith('linux-image-'));
    if (!image) throw new Stop(`no package of Linux ${version} for ${arch} in this system's sources`);
    const headers = image.replace('linux-image-', 'linux-headers-');
    // Tools that run on this machine, and headers for all architectures.
    const beside = dependencies(headers).map((name) => name.replace(/:.*/, '')).filter((name) => /^linux-(kbuild|headers)-/.test(name));
    unpack([image, headers, ...beside.map((name) => (name.startsWith('linux-kbuild') ? `${name}:amd64` : name))], folder);
  }
  const sources = join(folder, 'usr/src');
  const headers = only(sources, new RegExp(`-cloud-${arch}$`));
  mend(headers, only(sources, /-common$/));
  const image = only(join(folder, 'boot'), /^vmlinuz-/);
  return { name: `${version} ${arch}`, arch, release: basename(image).replace('vmlinuz-', ''), image, headers };
}

/** Returns Debian's dkms, a script that accepts each of its folders as an argument. */
export function dkms() {
  const folder = join(room, 'dkms');
  if (!existsSync(folder)) {
    update();
    unpack(['dkms'], folder);
  }
  return join(folder, 'usr/sbin/dkms');
}

/** Returns checkpatch.pl, which Debian ships only in the kernel's source. */
export function checkpatch() {
  const folder = join(room, 'checkpatch');
  const script = join(folder, 'scripts/checkpatch.pl');
  if (existsSync(script)) return script;
  update();
  unpack(['linux-source-6.12'], `${folder}-source`);
  mkdirSync(`${folder}.part`, { recursive: true });
  const wanted = ['checkpatch.pl', 'spelling.txt', 'const_structs.checkpatch'].map((name) => `linux-source-6.12/scripts/${name}`);
  const archive = join(`${folder}-source`, 'usr/src/linux-source-6.12.tar.xz');
  tool('tar', ['-xJf', archive, '-C', `${folder}.part`, '--strip-components=1', ...wanted]);
  rmSync(`${folder}-source`, { recursive: true });
  renameSync(`${folder}.part`, folder);
  return script;
}
