// Runs a real Helix on a terminal (tmux) against the built server, set up as README.md says: the test that its parts of LSP do.
// Helix comes from Debian 13 into a cache, with the C library that it was built for, and is never installed. Where it cannot be
// had, that is said and counted as skipped.
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeFixture, server } from './fixture.ts';

const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'dwell-test', 'helix-25.01');
const fetchHelix = String.raw`
set -eu
command -v apt-get >/dev/null && command -v dpkg >/dev/null && command -v tmux >/dev/null || { echo 'apt, dpkg or tmux is not here'; exit 1; }
exec 9> "$1.lock"; flock 9 # two runs must not unpack at once
[ ! -e "$1/.complete" ] || exit 0
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }')
[ -n "$mirror" ] || { echo 'apt has no Debian source'; exit 1; }
rm -rf "$1"; mkdir -p "$1/lists/partial" "$1/archives/partial" "$1/debs" "$1/root"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$1/sources.list"
apt="apt-get -qq -o Dir::Etc::sourcelist=$1/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$1/lists -o Dir::Cache=$1"
apt="$apt -o Acquire::Languages=none -o APT::Sandbox::User=$(id -un)"
$apt update >/dev/null 2>&1 || { echo "Debian 13's index did not download"; exit 1; }
cd "$1/debs"; $apt download hx/trixie libc6/trixie libgcc-s1/trixie >/dev/null 2>&1 || { echo 'hx did not download'; exit 1; }
for deb in *.deb; do dpkg -x "$deb" "$1/root"; done
rm -rf "$1/debs" "$1/lists" "$1/archives" "$1"/*.bin; touch "$1/.complete"`;

/** The command that runs Helix, or why there is none. */
function helix() {
  if (spawnSync('tmux', ['-V']).status !== 0) return { why: 'tmux is not installed' };
  for (const name of ['hx', 'helix']) if (spawnSync(name, ['--version']).status === 0) return { command: name };
  mkdirSync(join(cache, '..'), { recursive: true });
  const { status, stdout } = spawnSync('bash', ['-c', fetchHelix, 'bash', cache], { encoding: 'utf8', timeout: 300_000 });
  if (status !== 0) return { why: stdout.trim().split('\n').at(-1) || 'hx did not download' };
  const libraries = join(cache, 'root/usr/lib', `${{ x64: 'x86_64', arm64: 'aarch64' }[process.arch]}-linux-gnu`);
  const loader = { x64: 'ld-linux-x86-64.so.2', arm64: 'ld-linux-aarch64.so.1' }[process.arch];
  const runtime = join(cache, 'root/usr/lib/hx/runtime');
  const command = `HELIX_RUNTIME=${runtime} ${join(libraries, loader)} --library-path ${libraries} ${join(cache, 'root/usr/lib/hx/hx')}`;
  return spawnSync('bash', ['-c', `${command} --version`]).status === 0 ? { command } : { why: 'hx does not run here' };
}

const socket = `dwell-helix-${process.pid}`;
const tmux = (...args) => spawnSync('tmux', ['-L', socket, ...args], { encoding: 'utf8' });
const screen = () => tmux('capture-pane', '-p', '-t', '0').stdout;
const keys = (...names) => tmux('send-keys', '-t', '0', ...names);
let passed = 0;

/** The screen comes to show it. */
async function sees(what, pattern, nudge = () => undefined) {
  const end = Date.now() + 60_000;
  for (let turn = 0; Date.now() < end; turn++, await sleep(100)) {
    if (turn % 15 === 14) nudge();
    if (!pattern.test(screen())) continue;
    passed++;
    console.log(`ok - ${what}`);
    return;
  }
  throw new Error(`${what}: never saw ${pattern}\n${screen()}`);
}

/** README.md's setting, with a `dwell-lsp` on the PATH and this test's database. */
function setUp(folder, { database }) {
  const readme = readFileSync(join(import.meta.dirname, '../README.md'), 'utf8');
  const [languages] = /(?<=```toml\n)[^]*?(?=```)/.exec(readme) ?? [];
  if (languages === undefined) throw new Error('README.md has no setting for Helix');
  mkdirSync(join(folder, 'helix'), { recursive: true });
  mkdirSync(join(folder, 'bin'));
  const here = `config = { database = ${JSON.stringify(database)}, `;
  writeFileSync(join(folder, 'helix/languages.toml'), languages.replace('config = { ', here));
  writeFileSync(join(folder, 'helix/config.toml'), '[editor.lsp]\ndisplay-inlay-hints = true\ndisplay-messages = true\n');
  writeFileSync(join(folder, 'bin/dwell-lsp'), `#!/bin/sh\nexec '${process.execPath}' '${server}' "$@"\n`);
  chmodSync(join(folder, 'bin/dwell-lsp'), 0o755);
}

/** Apart from other keys: a terminal takes Escape and a letter for the letter with Alt. */
async function escape() {
  keys('Escape');
  await sleep(300);
}

async function run(command, fixture) {
  const folder = join(fixture.folder, 'config');
  setUp(folder, fixture);
  const line = fixture.hotLine + 1;
  const environment = `TERM=screen-256color LC_ALL=C.UTF-8 XDG_CONFIG_HOME=${folder} XDG_CACHE_HOME=${folder} PATH=${folder}/bin:$PATH`;
  tmux('-f', '/dev/null', '-u', 'new-session', '-d', '-x', '200', '-y', '50', `${environment} ${command} ${fixture.source}:${line}`);
  const nudge = () => keys('Escape'); // it asks for hints when it is idle after a key
  await sees('a hint stands on the stalled line', /next\[at\].*\d\d % · /, nudge);
  keys('Space', 'k');
  await sees('a hover tells the cost', /of all time/);
  await escape();
  keys('g', 'g', 'O', 'x');
  await escape();
  await sees('hints move with their lines', new RegExp(String.raw`\n +${line + 1} .*next\[at\].*\d\d % · `), nudge);
  keys('u');
  keys(':lsp-workspace-command', 'Enter');
  await sees("the server's commands are offered", /dwell\.server\.selectEpochs/);
}

const { command, why } = helix();
const fixture = command === undefined ? why : makeFixture();
if (typeof fixture === 'string') {
  console.log(`SKIPPED Helix: ${fixture}`);
  console.log('0 passed, 0 failed, 1 skipped');
} else {
  try {
    await run(command, fixture);
    console.log(`${passed} passed, 0 failed, 0 skipped`);
  } catch (error) {
    console.log(`not ok - ${error.message}`);
    console.log(`${passed} passed, 1 failed, 0 skipped`);
    process.exitCode = 1;
  } finally {
    tmux('kill-server');
    rmSync(fixture.folder, { recursive: true, force: true });
  }
}
