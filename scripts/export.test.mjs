// What `dwell export` writes, read by speedscope in a real browser: its own format, and those of others that it reads too
// (pprof, folded stacks, the text of perf script; callgrind's only without addresses). Each opens, and every procedure has the
// samples it should.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { target, top } from './step.mjs';

const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const app = join(top, 'node_modules/speedscope/dist/release/index.html');
const missing = [executablePath, app].find((file) => !existsSync(file));
const skip = missing ? `no ${missing}` : false;
const dwell = process.env.DWELL ?? [join(target, 'debug/dwell'), join(target, 'release/dwell')].find(existsSync);

/** Samples of each procedure, every 60,000 cycles. */
const samples = { hot: 900, warm: 300 };

let scratch;
let browser;

before(async () => {
  if (skip) return;
  scratch = mkdtempSync(join(tmpdir(), 'dwell-export-'));
  makeEpoch();
  const { chromium } = await import('playwright-core');
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--allow-file-access-from-files'] });
});

after(async () => {
  await browser?.close();
  if (scratch) rmSync(scratch, { recursive: true, force: true });
});

function run(...words) {
  return execFileSync(dwell, ['--db', join(scratch, 'db'), ...words]);
}

/** An epoch with these samples, on two instructions of each procedure. */
function makeEpoch() {
  const program = join(scratch, 'program.so');
  const source = Object.keys(samples).map((name) => `int ${name}(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i * 16] / (i + 1); return s; }`);
  writeFileSync(join(scratch, 'program.c'), source.join('\n'));
  execFileSync('gcc', ['-O1', '-g', '-shared', '-fPIC', '-o', program, join(scratch, 'program.c')]);
  const symbols = execFileSync('nm', ['--defined-only', program], { encoding: 'utf8' }).trim().split('\n').map((line) => line.split(' '));
  const rows = Object.entries(samples).flatMap(([name, count]) => {
    const start = parseInt(symbols.find((words) => words[2] === name)[0], 16);
    const one = Math.round(count / 3);
    return [[0, one], [2, count - one]].map(([offset, n]) => `${program}\t${(start + offset).toString(16)}\t${n}`);
  });
  writeFileSync(join(scratch, 'counts.tsv'), rows.join('\n') + '\n');
  run('import', '--counts', join(scratch, 'counts.tsv'), '--image', program, '--machine', 'amd-zen4', '--event', 'cpu-clock', '--period', '1000000', '--unit', 'ns', '--clock-hz', '1e9');
}

/** Opens a file as speedscope's own command line does, and reads its table of functions: name → own share in percent. */
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
