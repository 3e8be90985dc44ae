// Checks which packages and tools are installed. Missing packages are installed with apt if we are root, and otherwise listed in
// one line.

import { spawnSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { must, run, Stop, tail, target, top } from './step.mjs';

const isRoot = process.getuid() === 0;

/** Debian packages, each with a file that shows that it is installed. */
const packages = {
  gcc: '/usr/bin/gcc',
  'libc6-dev': '/usr/include/stdio.h',
  make: '/usr/bin/make',
};
const testPackages = {
  'bolt-19': '/usr/bin/llvm-bolt-19',
  chromium: '/usr/bin/chromium',
  'clang-14': '/usr/bin/clang-14',
  debuginfod: '/usr/bin/debuginfod',
  dwz: '/usr/bin/dwz', // lets files share debug information, as distributions do
  'emacs-nox': '/usr/bin/emacs',
  'elpa-eglot': '/usr/share/emacs/site-lisp/elpa-src/eglot*',
  'elpa-lsp-mode': '/usr/share/emacs/site-lisp/elpa-src/lsp-mode*',
  'elpa-package-lint': '/usr/share/emacs/site-lisp/elpa-src/package-lint*',
  'elpa-relint': '/usr/share/emacs/site-lisp/elpa-src/relint*',
  'gcc-aarch64-linux-gnu': '/usr/bin/aarch64-linux-gnu-gcc',
  'gcc-riscv64-linux-gnu': '/usr/bin/riscv64-linux-gnu-gcc',
  'libc6-dev-arm64-cross': '/usr/aarch64-linux-gnu/include/stdio.h',
  'libc6-dev-riscv64-cross': '/usr/riscv64-linux-gnu/include/stdio.h',
  'linux-perf': '/usr/bin/perf',
  llvm: '/usr/bin/llvm-dwp',
  'llvm-14': '/usr/bin/llvm-profdata-14',
  'llvm-19': '/usr/bin/llvm-mca-19', // the version that the machine models cite
  'python3-venv': '/usr/share/doc/python3-venv',
  'qemu-system-arm': '/usr/bin/qemu-system-aarch64',
  'qemu-system-x86': '/usr/bin/qemu-system-x86_64',
  'qemu-user': '/usr/bin/qemu-aarch64',
  sparse: '/usr/bin/sparse',
  tmux: '/usr/bin/tmux',
  valgrind: '/usr/bin/callgrind_annotate',
  'xz-utils': '/usr/bin/xz',
};

const versionOf = (program) => {
  const { status, stdout } = spawnSync(program, ['--version'], { encoding: 'utf8', cwd: top });
  return status === 0 ? stdout.match(/(\d+)\.(\d+)(?:\.\d+)?/) : null;
};

/** Rust and Node, which are never installed automatically. */
function checkTools() {
  const [node] = process.versions.node.split('.').map(Number);
  if (node < 20) throw new Stop(`Node ${process.versions.node} is too old: install Node 20 or later`);
  const cargo = versionOf('cargo');
  if (!cargo) throw new Stop('cargo is not on PATH: install Rust 1.88 or later with rustup');
  const [, major, minor] = cargo.map(Number);
  if (major === 1 && minor < 88) throw new Stop(`Rust ${cargo[0]} is too old: rustup update (1.88 or later)`);
  return `Rust ${cargo[0]}, Node ${process.versions.node}`;
}

const present = (file) => (file.endsWith('*') ? spawnSync('sh', ['-c', `ls -d ${file}`]).status === 0 : existsSync(file));
const missing = (wanted) => Object.keys(wanted).filter((name) => !present(wanted[name]));

async function install(names) {
  console.log(`installing with apt: ${names.join(' ')}`);
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  await run('apt-get update', ['apt-get', 'update', '-q'], { env });
  return run('apt-get install', ['apt-get', 'install', '-y', '-q', '--no-install-recommends', ...names], { env });
}

/** Installs the npm packages of the lock file, unless they are installed. */
async function npmPackages() {
  const lock = join(top, 'package-lock.json');
  const installed = join(top, 'node_modules/.package-lock.json');
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  await must('npm packages', ['npm', 'ci', '--no-audit', '--no-fund']);
}

/** Checks and installs everything that building needs. */
export async function forBuilding() {
  const tools = checkTools();
  const names = missing(packages);
  if (names.length > 0) {
    const command = `apt-get install ${names.join(' ')}`;
    if (!isRoot || !existsSync('/usr/bin/apt-get')) throw new Stop(`missing: ${names.join(', ')}; as root: ${command}`);
    await install(names);
    if (missing(packages).length > 0) throw new Stop(`could not install ${missing(packages).join(', ')}: see above`);
  }
  console.log(`✓ ${tools}, gcc`);
  await npmPackages();
}

/** The object store that the fleet's suite tests with: a server of S3 in Python, in an environment of its own. */
const store = ['moto[s3]==5.2.5', 'flask==3.1.3', 'flask-cors==6.0.5'];

async function objectStore() {
  const folder = join(target, 'moto');
  if (existsSync(join(folder, 'bin/moto_server')) || !present(testPackages['python3-venv'])) return;
  const made = await run('object store', ['sh', '-c', `/usr/bin/python3 -m venv '${folder}' && '${folder}/bin/pip' install -q ${store.map((name) => `'${name}'`).join(' ')}`]);
  if (made.status !== 0) console.log(`no object store, so the suite of the fleet is skipped:\n${tail(made)}`);
}

/** What the jobs of fleet/ need: a Java runtime, and Spark in an environment of its own. Spark fetches its packages for object stores itself. chdb is ClickHouse. */
export async function forSpark() {
  const java = { 'openjdk-17-jre-headless': '/usr/bin/java', 'python3-venv': testPackages['python3-venv'] };
  const names = missing(java);
  if (names.length > 0 && (!isRoot || !existsSync('/usr/bin/apt-get'))) throw new Stop(`missing: ${names.join(', ')}; as root: apt-get install ${names.join(' ')}`);
  if (names.length > 0) await install(names);
  await objectStore();
  const folder = join(target, 'spark');
  if (existsSync(join(folder, 'bin/spark-submit'))) return;
  await must('Spark', ['sh', '-c', `/usr/bin/python3 -m venv '${folder}' && '${folder}/bin/pip' install -q pyspark==4.3.0 pyarrow==26.0.1 pandas==3.1.1 chdb==4.4.0`]);
}

/** The folder of Trino's server. */
export const trino = join(target, 'trino');

/** Makes Trino's server there, without the connectors that no test needs: the newest that Maven has and Debian's Java runs. */
export async function forTrino() {
  if (existsSync(join(trino, 'lib'))) return;
  const java = { maven: '/usr/bin/mvn', 'openjdk-17-jre-headless': '/usr/bin/java' };
  const names = missing(java);
  if (names.length > 0 && (!isRoot || !existsSync('/usr/bin/apt-get'))) throw new Stop(`missing: ${names.join(', ')}; as root: apt-get install ${names.join(' ')}`);
  if (names.length > 0) await install(names);
  const packed = join(target, 'trino-server.tar.gz');
  const steps = [
    `rm -rf '${trino}.new' && mkdir -p '${trino}.new'`,
    `mvn -q -B dependency:copy -Dartifact=io.trino:trino-server:368:tar.gz -DoutputDirectory='${target}' -Dmdep.stripVersion=true`,
    `tar xzf '${packed}' -C '${trino}.new' --strip-components=1`,
    `find '${trino}.new/plugin' -mindepth 1 -maxdepth 1 ! -name hive -exec rm -rf {} +`,
    `rm '${packed}' && mv '${trino}.new' '${trino}'`,
  ];
  await must('Trino', ['sh', '-c', steps.join(' && ')]);
}

/** Checks and installs what the suites need in addition. Returns what is missing; suites that need it are skipped by name. */
export async function forTesting() {
  const names = missing(testPackages);
  if (names.length > 0 && isRoot && existsSync('/usr/bin/apt-get')) await install(names);
  await objectStore();
  const still = missing(testPackages);
  if (still.length > 0) console.log(`not here, so some suites are skipped: ${still.join(', ')}${isRoot ? '' : ' (not root, so not installed)'}`);
  return still;
}
