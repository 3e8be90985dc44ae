// A real VS Code on loopback: code-server's build of it, from npm alone. In: nothing but a version. Out: a cached
// installation, and a running server with its address. Nothing here knows Dwell or a browser.
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { appendFile, cp, mkdir, open, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** code-server 4.139.1 is VS Code 1.139.1, whose server wants Node 24. */
const version = '4.139.1';
const nodeMajor = 24;
/** Part of the cache's name, raised when what `install` leaves behind changes. */
const layout = 1;

const arch = { x64: 'x64', arm64: 'arm64' }[process.arch];
const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'dwell-test', 'vscode-web');
const quietly = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];

/** Fills the cache when it is empty, and says where things lie. Several at once: one works, the others wait. */
export async function install() {
  const root = join(cache, `${version}-${layout}`);
  if (!existsSync(root)) await locked(`${root}.lock`, () => existsSync(root) || fill(root));
  const node = (await ownNode()) ?? join(root, 'node', 'node_modules', `node-linux-${arch}`, 'bin', 'node');
  return { node, main: join(root, 'vscode', 'out', 'server-main.js') };
}

/** Runs a program where no network is, if this machine can; `undefined`: it cannot. */
export async function offline() {
  const words = ['unshare', '--map-root-user', '--net'];
  return await run(words[0], [...words.slice(1), 'true']).then(() => words, () => undefined);
}

/** Installs .vsix files into an extensions folder, as a user does; without a network where the machine can keep it away. */
export async function installExtension({ extensions, vsix }) {
  const { node, main } = await install();
  await mkdir(extensions, { recursive: true });
  const [program, ...words] = [...await offline() ?? [], node];
  await run(program, [...words, main, '--accept-server-license-terms', '--telemetry-level', 'off',
    '--server-data-dir', join(extensions, '.server'), '--extensions-dir', extensions, '--force',
    '--install-extension', vsix]);
}

/**
 * Starts the server on a free port; `home` becomes its user data, `env` is added to its environment. Settings of machine
 * scope, paths for one, belong to the remote machine's own: among the user's they count only until VS Code knows their
 * scope.
 * Returns its address, its log file, and how to stop it.
 */
export async function start({ home, extensions, settings = {}, machineSettings = {}, env = {}, args = [] }) {
  const { node, main } = await install();
  await mkdir(join(home, 'User'), { recursive: true });
  await mkdir(extensions, { recursive: true });
  await writeFile(join(home, 'User', 'settings.json'), JSON.stringify({ ...quietSettings, ...settings }, null, 2));
  await mkdir(join(home, 'Machine'), { recursive: true });
  await writeFile(join(home, 'Machine', 'settings.json'), JSON.stringify(machineSettings, null, 2));
  const log = join(home, 'server.log');
  const child = spawn(node, [main, '--host', '127.0.0.1', '--port', '0', '--without-connection-token',
    '--accept-server-license-terms', '--telemetry-level', 'off', '--disable-getting-started-override',
    '--server-data-dir', join(home, 'server'), '--user-data-dir', home, '--extensions-dir', extensions, ...args],
  { env: { ...process.env, EXTENSIONS_GALLERY: '{}', CS_DISABLE_TELEMETRY: '1', ...env }, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  const base = await new Promise((resolve, reject) => {
    let text = '';
    const hear = (bytes) => {
      text += bytes;
      void appendFile(log, bytes);
      const port = /Extension host agent listening on (\d+)/.exec(text)?.[1];
      if (port) resolve(`http://127.0.0.1:${port}`);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`VS Code's server ended with ${code}: ${text.slice(-2000)}`)));
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const stop = async () => {
    try { process.kill(-child.pid, 'SIGTERM'); } catch { /* it has ended already */ }
    const late = setTimeout(() => { try { process.kill(-child.pid, 'SIGKILL'); } catch { /* as above */ } }, 5000);
    await ended;
    clearTimeout(late);
  };
  return { base, log, stop };
}

/** Nothing that asks, moves, or phones home. */
const quietSettings = {
  'security.workspace.trust.startupPrompt': 'never',
  'security.workspace.trust.enabled': false,
  'workbench.startupEditor': 'none',
  'workbench.welcomePage.walkthroughs.openOnInstall': false,
  'workbench.tips.enabled': false,
  'workbench.enableExperiments': false,
  'workbench.reduceMotion': 'on',
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'telemetry.telemetryLevel': 'off',
  'chat.disableAIFeatures': true,
  'chat.commandCenter.enabled': false,
  'update.mode': 'none',
  'update.showReleaseNotes': false,
  'extensions.autoUpdate': false,
  'extensions.autoCheckUpdates': false,
  'extensions.ignoreRecommendations': true,
  'git.enabled': false,
  'npm.autoDetect': 'off',
  'grunt.autoDetect': 'off',
  'gulp.autoDetect': 'off',
  'jake.autoDetect': 'off',
  'editor.minimap.enabled': false,
  'editor.hover.delay': 100,
  'editor.cursorBlinking': 'solid',
  'files.autoSave': 'off',
};

/** This process's Node when it is the one wanted. */
async function ownNode() {
  return process.versions.node.split('.')[0] === String(nodeMajor) ? process.execPath : undefined;
}

/** Builds the installation beside its place and renames it there, so that a torn one is never taken for whole. */
async function fill(root) {
  if (!arch) throw new Error(`no VS Code server for ${process.arch}`);
  const work = `${root}.part`;
  await rm(work, { recursive: true, force: true });
  await mkdir(join(work, 'node'), { recursive: true });
  let node = await ownNode();
  if (!node) {
    await run('npm', ['install', '--prefix', join(work, 'node'), ...quietly, `node-linux-${arch}@${nodeMajor}`]);
    node = join(work, 'node', 'node_modules', `node-linux-${arch}`, 'bin', 'node');
  }
  await run('npm', ['pack', '--silent', `code-server@${version}`], { cwd: work });
  await run('tar', ['xzf', `code-server-${version}.tgz`], { cwd: work });
  // VS Code itself alone: its server needs neither code-server's wrapper nor argon2.
  await rename(join(work, 'package', 'lib', 'vscode'), join(work, 'vscode'));
  await rm(join(work, 'package'), { recursive: true });
  await rm(join(work, `code-server-${version}.tgz`));
  const vscode = join(work, 'vscode');
  await run('npm', ['install', '--omit=dev', ...quietly], {
    cwd: vscode, env: { ...process.env, PATH: `${dirname(node)}:${process.env.PATH}` }, maxBuffer: 1 << 26,
  });
  await symlink('node_modules', join(vscode, 'node_modules.asar'));
  await withoutAgents(vscode);
  await standIns(vscode, work);
  await closedProduct(vscode);
  await rename(work, root);
}

/** 200 MB of run-time for AI agents, which no test needs. */
async function withoutAgents(vscode) {
  const github = join(vscode, 'node_modules', '@github');
  const names = existsSync(github) ? await readdir(github) : [];
  for (const name of names.filter((n) => n.startsWith('copilot-sdk-linux-'))) await rm(join(github, name), { recursive: true });
  await rm(join(vscode, 'node_modules', '@microsoft', 'mxc-sdk'), { recursive: true, force: true });
}

/** Native modules that npm does not ship built get plain stand-ins; no compiler is asked for. */
async function standIns(vscode, work) {
  await cp(join(import.meta.dirname, 'spdlog.stub.cjs'), join(vscode, 'node_modules', '@vscode', 'spdlog', 'index.js'));
  for (const name of ['native-watchdog', '@vscode/native-watchdog']) {
    const folder = join(vscode, 'node_modules', name);
    if (!existsSync(folder)) continue;
    await writeFile(join(folder, 'index.js'), 'exports.start = () => {};\n');
    await editJson(join(folder, 'package.json'), (json) => { json.main = 'index.js'; delete json.exports; });
  }
  const ripgrep = join(vscode, 'node_modules', '@vscode', 'ripgrep');
  if (existsSync(ripgrep) && !existsSync(join(ripgrep, 'bin', 'rg'))) {
    await run('npm', ['install', '--prefix', join(work, 'rg'), ...quietly, `@vscode/ripgrep-linux-${arch}@1`]);
    await mkdir(join(ripgrep, 'bin'), { recursive: true });
    await cp(join(work, 'rg', 'node_modules', '@vscode', `ripgrep-linux-${arch}`, 'bin', 'rg'), join(ripgrep, 'bin', 'rg'));
  }
}

/** No gallery, no telemetry, no updates. */
async function closedProduct(vscode) {
  await editJson(join(vscode, 'product.json'), (json) => {
    for (const key of ['extensionsGallery', 'aiConfig', 'voiceWsUrl']) delete json[key];
    json.enableTelemetry = false;
    if (json.builtInExtensionsEnabledWithAutoUpdates) json.builtInExtensionsEnabledWithAutoUpdates = [];
  });
}

async function editJson(path, change) {
  const json = JSON.parse(await readFile(path, 'utf8'));
  change(json);
  await writeFile(path, JSON.stringify(json));
}

/** Runs `work` while no other process holds `path`; a lock whose holder died is taken over. */
async function locked(path, work) {
  await mkdir(dirname(path), { recursive: true });
  for (;;) {
    try {
      const file = await open(path, 'wx');
      await file.writeFile(String(process.pid));
      await file.close();
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
      if (await abandoned(path)) await rm(path, { force: true });
      else await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
  try { return await work(); } finally { await rm(path, { force: true }); }
}

async function abandoned(path) {
  try {
    const pid = Number(await readFile(path, 'utf8'));
    // Without a pid it was created a moment ago, or its holder died between two calls.
    if (!pid) return Date.now() - (await stat(path)).mtimeMs > 10_000;
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error.code === 'ESRCH' || error.code === 'ENOENT';
  }
}
