// `npm run package`: everything that is given to users, in target/package: a tarball, Debian packages of the program and of the kernel
// module, the extension for VS Code, the package for Emacs, a bill of materials, checksums. All times are those of the commit.

import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { main } from './build.mjs';
import { forBuilding } from './needs.mjs';
import { billOfMaterials, bundled, crates, notices, ownLicense, rustArchitecture } from './package/components.mjs';
import { must, Stop, target, top } from './step.mjs';

/** The oldest C library that the program runs with: that of Debian 11. */
export const glibc = '2.31';
/** cargo with zig as its linker and C compiler, which knows the symbols of older C libraries. */
const tools = ['cargo-zigbuild==0.24.1', 'ziglang==0.17.1'];

const out = join(target, 'package');
const { version } = JSON.parse(readFileSync(join(top, 'package.json'), 'utf8'));
const architecture = { x64: 'amd64', arm64: 'arm64' }[process.arch];

function told(program, words) {
  const { status, stdout, stderr } = spawnSync(program, words, { cwd: top, encoding: 'utf8' });
  if (status !== 0) throw new Stop(`${program} ${words.join(' ')}: ${stderr.trim()}`);
  return stdout.trim();
}

/** Builds dwell and the binding for old C libraries, without paths of this machine. Returns their folder. */
async function portable() {
  const folder = join(target, 'zigbuild');
  if (!existsSync(join(folder, 'bin/cargo-zigbuild'))) {
    await must('zig', ['sh', '-c', `python3 -m venv '${folder}' && '${folder}/bin/pip' install -q ${tools.join(' ')}`]);
  }
  const cargoHome = process.env.CARGO_HOME ?? join(homedir(), '.cargo');
  const moved = [[top, '/dwell'], [cargoHome, '/cargo']];
  const env = {
    PATH: `${join(folder, 'bin')}:${process.env.PATH}`,
    RUSTFLAGS: moved.map(([from, to]) => `--remap-path-prefix=${from}=${to}`).join(' '),
    CFLAGS: moved.map(([from, to]) => `-ffile-prefix-map=${from}=${to}`).join(' '),
  };
  const triple = `${rustArchitecture()}-unknown-linux-gnu`;
  await must(`dwell for glibc ${glibc}`, ['cargo', 'zigbuild', '--release', '--locked', '--target', `${triple}.${glibc}`, '-p', 'dwell-cli', '-p', 'dwell-node'], { env });
  const built = join(target, triple, 'package');
  mkdirSync(built, { recursive: true });
  for (const name of ['dwell', 'libdwell_node.so']) {
    // Symbols stay, line tables go: they are three quarters of the size.
    told('strip', ['--strip-debug', '-o', join(built, name), join(target, triple, 'release', name)]);
  }
  return built;
}

/** Fills a folder as the package will fill the root of a file system. */
async function stage(root, built, texts) {
  await must('files of the package', ['packaging/systemd/install.sh', join(built, 'dwell')], { env: { DESTDIR: root }, quiet: true });
  const put = (from, to, mode = 0o644) => {
    mkdirSync(dirname(join(root, to)), { recursive: true });
    copyFileSync(from, join(root, to));
    chmodSync(join(root, to), mode);
  };
  for (const name of ['server.js', 'mcp.js']) put(join(top, 'lsp-server/dist', name), `usr/lib/dwell/${name}`, 0o755);
  put(join(built, 'libdwell_node.so'), 'usr/lib/dwell/dwell-core.node');
  symlinkSync('../lib/dwell/server.js', join(root, 'usr/bin/dwell-lsp'));
  for (const name of readdirSync(join(top, 'emacs')).filter((name) => name.endsWith('.el'))) put(join(top, 'emacs', name), `usr/share/emacs/site-lisp/dwell/${name}`);
  put(join(top, 'neovim/lua/dwell.lua'), 'usr/share/dwell/neovim/lua/dwell.lua');
  for (const name of ['CHANGELOG.md', 'README.md', 'lsp-server/README.md', 'lsp-server/PROTOCOL.md']) put(join(top, name), `usr/share/doc/dwell/${name.replace('/', '-')}`);
  for (const [name, text] of Object.entries(texts)) writeFileSync(join(root, 'usr/share/doc/dwell', name), text);
  for (const name of readdirSync(join(root, 'usr/share/man/man1'))) told('gzip', ['-9n', join(root, 'usr/share/man/man1', name)]);
  // Nothing depends on the umask of who packs.
  told('chmod', ['-R', 'u=rwX,go=rX', root]);
}

/** Makes a Debian package of a folder, described by the files in packaging/`kind`. */
async function debian(kind, root, file) {
  const size = told('du', ['-sk', '--apparent-size', root]).split('\t')[0];
  const control = join(root, 'DEBIAN');
  mkdirSync(control);
  for (const name of readdirSync(join(top, 'packaging', kind))) {
    const text = readFileSync(join(top, 'packaging', kind, name), 'utf8');
    const values = { VERSION: version, ARCHITECTURE: architecture, GLIBC: glibc, SIZE: size };
    writeFileSync(join(control, name), text.replace(/@([A-Z]+)@/g, (_, key) => values[key]), { mode: name === 'control' ? 0o644 : 0o755 });
  }
  await must(file, ['dpkg-deb', '--root-owner-group', '-Zxz', '--build', root, join(out, file)], { quiet: true });
  rmSync(control, { recursive: true });
}

/** The module's sources, where dkms looks for them. */
function stageModule(root) {
  const sources = join(root, `usr/src/dwell-${version}`);
  mkdirSync(sources, { recursive: true });
  const isWanted = (path) => !/\/(test|build|README\.md)$/.test(path) && !/\/(test_nmi\.c)$/.test(path);
  cpSync(join(top, 'kmod'), sources, { recursive: true, filter: isWanted });
  told('chmod', ['-R', 'u=rwX,go=rX', root]);
}

/** A tarball in the same order, by the same owner, of the same time. */
async function tarball(root, name, time) {
  const packed = join(out, `${name}.tar.gz`);
  const words = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', `--mtime=@${time}`, `--transform=s,^\\.,${name},`, '-C', root, '-cf', '-', '.'];
  await must(`${name}.tar.gz`, ['bash', '-o', 'pipefail', '-c', 'out=$1; shift; tar "$@" | gzip -9n > "$out"', 'pack', packed, ...words], { quiet: true });
}

await main(async () => {
  await forBuilding();
  const time = Number(process.env.SOURCE_DATE_EPOCH ?? told('git', ['log', '-1', '--format=%ct']));
  process.env.SOURCE_DATE_EPOCH = String(time);
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const built = await portable();
  // The server and the extension take the binding and the program that were just built.
  copyFileSync(join(built, 'libdwell_node.so'), join(top, `core/node/dwell-core.linux-${process.arch}.node`));
  await must('language server', ['npm', 'run', '-s', 'build', '-w', '@dwell/lsp-server']);
  await must('VS Code extension', ['npm', 'run', '-s', 'package', '-w', 'vscode-extension'], { env: { DWELL_BIN: join(built, 'dwell') } });
  copyFileSync(join(top, `vscode-extension/dwell-linux-${process.arch}.vsix`), join(out, `dwell-${version}-linux-${process.arch}.vsix`));
  await must('Emacs package', ['make', '-s', '-C', 'emacs', 'tar', `OUT=${out}`]);

  const components = [...crates(['dwell-cli', 'dwell-node']), ...(await bundled())];
  const bill = `${JSON.stringify(billOfMaterials(components, version, time), null, 2)}\n`;
  writeFileSync(join(out, `dwell-${version}.cdx.json`), bill);
  const root = join(out, 'root');
  await stage(root, built, { copyright: ownLicense(), 'NOTICES.txt': notices(components), 'sbom.cdx.json': bill });
  await debian('debian', root, `dwell_${version}_${architecture}.deb`);
  await tarball(root, `dwell-${version}-linux-${process.arch}`, time);
  rmSync(root, { recursive: true });
  const module = join(out, 'module');
  stageModule(module);
  await debian('dkms', module, `dwell-dkms_${version}_all.deb`);
  rmSync(module, { recursive: true });

  const files = readdirSync(out).toSorted();
  const sums = files.map((name) => `${createHash('sha256').update(readFileSync(join(out, name))).digest('hex')}  ${name}\n`);
  writeFileSync(join(out, 'SHA256SUMS'), sums.join(''));
  for (const name of files) console.log(`${(statSync(join(out, name)).size / 1e6).toFixed(1).padStart(7)} MB  ${join(out, name)}`);
});
