// Tests that other programs read the output of `dwell export`. speedscope, in a real browser, reads its own format and others
// (pprof, folded stacks, the text of perf script; callgrind's only without addresses). The command line of the Firefox Profiler
// contains its own code for loading and summing profiles. Each format must open, and every procedure must have its samples.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { target, top } from './step.mjs';

// It declares Node 24, but the parts used here also run on Node 20.
const profiler = join(top, 'node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js');
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const app = join(top, 'node_modules/speedscope/dist/release/index.html');
const missing = [executablePath, app].find((file) => !existsSync(file));
const skip = missing ? `no ${missing}` : false;
const dwell = process.env.DWELL ?? [join(target, 'debug/dwell'), join(target, 'release/dwell')].find(existsSync);

/** Number of samples of each procedure, one every 60,000 cycles. */
const samples = { hot: 900, warm: 300 };

const scratch = mkdtempSync(join(tmpdir(), 'dwell-export-'));
const program = join(scratch, 'program.so');
/** Returns the start address of a procedure of the program. */
const address = (name) => parseInt(symbols.find((words) => words[2] === name)[0], 16);
let symbols;
let browser;

before(async () => {
  compile();
  makeEpoch();
  if (skip) return;
  const { chromium } = await import('playwright-core');
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--allow-file-access-from-files'] });
});

after(async () => {
  await browser?.close();
  rmSync(scratch, { recursive: true, force: true });
});

function run(...words) {
  return execFileSync(dwell, ['--db', join(scratch, 'db'), ...words], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** Compiles a program with these procedures; another one is inlined into each of them. */
function compile() {
  const source = Object.keys(samples).map((name) => `int ${name}(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s = mix(s, p[i * 16] / (i + 1)); return s; }`);
  source.unshift('static inline __attribute__((always_inline)) int mix(int s, int x) { return s * 31 + x; }');
  writeFileSync(join(scratch, 'program.c'), source.join('\n'));
  execFileSync('gcc', ['-O1', '-g', '-shared', '-fPIC', '-o', program, join(scratch, 'program.c')]);
  symbols = execFileSync('nm', ['--defined-only', program], { encoding: 'utf8' }).trim().split('\n').map((line) => line.split(' '));
}

/** Makes an epoch with these samples, on two instructions of each procedure. */
function makeEpoch() {
  const rows = Object.entries(samples).flatMap(([name, count]) => {
    const one = Math.round(count / 3);
    return [[0, one], [2, count - one]].map(([offset, n]) => `${program}\t${(address(name) + offset).toString(16)}\t${n}`);
  });
  writeFileSync(join(scratch, 'counts.tsv'), rows.join('\n') + '\n');
  run('import', '--counts', join(scratch, 'counts.tsv'), '--image', program, '--machine', 'amd-zen4', '--event', 'cpu-clock', '--period', '1000000', '--unit', 'ns', '--clock-hz', '1e9');
}

/**
 * Opens a file in the way of speedscope's own command line, and reads its table of functions: name → own share in
 * percent.
 */
async function shown(file) {
  const bytes = readFileSync(file).toString('base64');
  const script = join(scratch, 'profile.js');
  writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(file.split('/').pop())}, ${JSON.stringify(bytes)})`);
  const page = await (await browser.newContext()).newPage();
  const errors = [];
  page.on('pageerror', (error) => errors.push(error.message));
  await page.goto(`${pathToFileURL(app).href}#localProfilePath=${script}&view=sandwich`);
  await page.getByText('Symbol Name').waitFor();
  const rows = await page.locator('tr').evaluateAll((all) => all.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent.trim())));
  await page.context().close();
  assert.deepEqual(errors, []);
  const percent = (text) => Number(text.match(/\(([\d.]+)%\)/)?.[1]);
  const own = rows.filter((cells) => cells.length >= 3).map((cells) => [cells[2], percent(cells[1])]);
  return Object.fromEntries(own);
}

for (const [format, name] of [['speedscope', 'p.speedscope.json'], ['pprof', 'p.pprof'], ['folded', 'p.folded.txt'], ['perf-script', 'p.perf.txt']]) {
  test(`speedscope reads ${format}`, { skip }, async () => {
    const file = join(scratch, name);
    run('export', '--format', format, '-o', file);
    const own = await shown(file);
    const all = Object.values(samples).reduce((sum, n) => sum + n, 0);
    for (const [procedure, count] of Object.entries(samples)) {
      const found = Object.entries(own).find(([symbol]) => symbol.startsWith(procedure));
      assert.ok(found, `${procedure} is not in ${JSON.stringify(own)}`);
      assert.ok(Math.abs(found[1] - (100 * count) / all) < 1, `${found}: expected ${count} of ${all}`);
    }
  });
}

/** Writes as many records of `perf script` as an instruction has samples. */
const records = (n, event, period, name, start, offset, image) =>
  `program 7/7 [000] 1.000000: ${period} ${event}: \n\t${(start + offset).toString(16)} ${name}+0x${offset.toString(16)} (${image})\n\n`.repeat(n);

/** Returns what the Firefox Profiler reports about a file. It must not print or log a complaint. */
function inFirefoxProfiler(file, ask) {
  const sessions = mkdtempSync(join(scratch, 's'));
  const isQuiet = (text) => assert.doesNotMatch(text, /warn|error|fail|invalid|exception/i);
  const answer = (...words) => {
    const env = { ...process.env, PROFILER_CLI_SESSION_DIR: sessions };
    const { status, stdout, stderr } = spawnSync(process.execPath, [profiler, ...words], { env, encoding: 'utf8' });
    assert.equal(status, 0, `${words.join(' ')}: ${stderr}${stdout}`);
    // It requests sources from a browser, which does not exist here.
    isQuiet(stderr + stdout.replace(/"warnings": \[\s+"Could not fetch source for .*"\s+\]/, ''));
    return stdout;
  };
  answer('load', file);
  try {
    return ask((...words) => JSON.parse(answer(...words, '--json')));
  } finally {
    answer('stop');
    readdirSync(sessions).filter((name) => name.endsWith('.log')).forEach((name) => isQuiet(readFileSync(join(sessions, name), 'utf8')));
  }
}

const noProfiler = existsSync(profiler) ? false : `no ${profiler}`;

test('the Firefox Profiler adds up what dwell top and annotate show', { skip: noProfiler }, () => {
  const inlined = JSON.parse(run('annotate', 'hot', '--json')).instructions.find(({ line }) => line === 1);
  writeFileSync(join(scratch, 'perf.txt'), [
    records(60, 'cpu-clock', 1000000, 'hot', address('hot'), inlined.address - address('hot'), program),
    records(30, 'cpu-clock', 1000000, 'hot', address('hot'), 0, program),
    records(7, 'cpu-clock', 1000000, 'warm', address('warm'), 0, program),
    records(5, 'cpu-clock', 1000000, 'do_syscall_64', 0xffffffff81000000, 4, '[kernel.kallsyms]'),
    records(20, 'page-faults', 1, 'warm', address('warm'), 0, program),
  ].join(''));
  run('import', join(scratch, 'perf.txt'));
  const file = join(scratch, 'firefox.json');
  run('export', '--format', 'firefox', '-o', file);
  const { total, rows } = JSON.parse(run('top', '--json'));
  const instructions = Object.keys(samples).flatMap((name) => JSON.parse(run('annotate', name, '--json')).instructions);
  inFirefoxProfiler(file, (ask) => {
    const { threads } = ask('thread', 'list');
    assert.deepEqual(threads.map(({ name }) => name), Object.keys(total));
    for (const { threadHandle, name: event } of threads) {
      const tree = ask('thread', 'samples-top-down', '--thread', threadHandle).regularCallTree;
      assert.equal(tree.totalSamples, total[event]);
      const shown = Object.fromEntries(tree.children.map((node) => [node.nameWithLibrary, node.totalSamples]));
      const wanted = rows.filter((row) => row.samples[event]).map((row) => [`${row.image.split('/').pop()}!${row.demangled}`, row.samples[event]]);
      assert.deepEqual(shown, Object.fromEntries(wanted));
    }
    const [hot] = ask('thread', 'samples-top-down').regularCallTree.children;
    const calls = hot.children.map(({ name, inlineStatus, selfSamples }) => [name, inlineStatus, selfSamples]);
    assert.deepEqual([hot.name, hot.selfSamples, calls], ['hot', 30, [['mix', 'inlined', 60]]]);
    for (const { lineNumber, selfSamples } of ask('function', 'annotate', hot.functionHandle).srcAnnotation.lines) {
      const ours = instructions.filter(({ line }) => line === lineNumber).map((i) => i.samples['cpu-clock'] ?? 0);
      assert.equal(selfSamples, ours.reduce((sum, n) => sum + n, 0), `line ${lineNumber}`);
    }
  });
});

test('the Firefox Profiler opens a profile without samples', { skip: noProfiler }, () => {
  const file = join(scratch, 'empty.json');
  run('export', '--format', 'firefox', '--image', 'nothing', '-o', file);
  inFirefoxProfiler(file, (ask) => {
    assert.equal(ask('profile', 'info').threadCount, 2);
    assert.equal(ask('thread', 'samples-top-down').regularCallTree.totalSamples, 0);
  });
});

/** Functions of each program with their samples. In folded stacks, an image is a function, too. */
const others = {
  folded: { mix: 60, hot: 90, warm: 7, do_syscall_64: 5, 'program.so': 97, '[kernel.kallsyms]': 5 },
  'perf-script': { mix: 60, hot: 90, warm: 7, do_syscall_64: 5 },
};

for (const [format, wanted] of Object.entries(others)) {
  test(`the Firefox Profiler reads ${format}`, { skip: noProfiler }, () => {
    const file = join(scratch, `firefox.${format}`);
    run('export', '--format', format, '-o', file);
    inFirefoxProfiler(file, (ask) => {
      const shown = ask('thread', 'list').threads.flatMap(({ threadHandle }) => ask('thread', 'functions', '--thread', threadHandle).functions);
      const sums = {};
      for (const { name, totalSamples } of shown) sums[name] = (sums[name] ?? 0) + totalSamples;
      assert.deepEqual(sums, wanted);
    });
  });
}
