// Tests `dwell report --html` in a real browser: the page is complete without a network, hostile names stay text, the table
// sorts and filters, links lead to instructions, and the page is legible in both colour schemes.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { paint } from '../flame-graph/flameGraph.mjs';
import { target, top } from './step.mjs';

const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const skip = existsSync(executablePath) ? false : `no ${executablePath} (apt-get install chromium)`;
const dwell = process.env.DWELL ?? [join(target, 'debug/dwell'), join(target, 'release/dwell')].find(existsSync);

/** Text that would run or break out if a name reached the page unescaped. It has no spaces, for objcopy. */
const hostile = '<img/src=x/onerror=document.title=1>"\'</title></script><script>document.title=2</script>{{7*7}}';

let scratch;
let browser;
let file;

before(async () => {
  if (skip) return;
  scratch = mkdtempSync(join(tmpdir(), 'dwell-report-'));
  file = join(scratch, 'report.html');
  makeReport();
  const { chromium } = await import('playwright-core');
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
});

after(async () => {
  await browser?.close();
  if (scratch) rmSync(scratch, { recursive: true, force: true });
});

/** Makes a program with hostile symbols, samples on each of its instructions, and its report. */
function makeReport() {
  const program = join(scratch, 'program.so');
  const names = [hostile, 'plain', '](javascript:document.title=3)'];
  const source = names.map((_, n) => `__attribute__((used, visibility("hidden"))) int f${n}(int *p) {
  int s = ${n}; for (int i = 0; i < 100; i++) s += p[i * 16] / (i + 1); return s; }`).join('\n');
  writeFileSync(join(scratch, 'program.c'), source);
  writeFileSync(join(scratch, 'names'), names.map((name, n) => `f${n} ${name}\n`).join(''));
  execFileSync('gcc', ['-O1', '-g', '-shared', '-fPIC', '-o', program, join(scratch, 'program.c')]);
  execFileSync('objcopy', [`--redefine-syms=${join(scratch, 'names')}`, program]);
  const symbols = execFileSync('nm', ['--defined-only', program], { encoding: 'utf8' }).trim().split('\n');
  const rows = symbols.filter((line) => / [tT] /.test(line) && names.some((name) => line.endsWith(name)))
    .flatMap((line, n) => [4, 8, 12, 24].map((offset) => `${program}\t${(parseInt(line, 16) + offset).toString(16)}\t${900 - 200 * n + offset}`));
  assert.equal(rows.length, 4 * names.length);
  const counts = join(scratch, 'counts.tsv');
  writeFileSync(counts, rows.join('\n') + '\n');
  const run = (...words) => execFileSync(dwell, ['--db', join(scratch, 'db'), ...words], { encoding: 'utf8' });
  run('import', '--counts', counts, '--image', program, '--machine', 'amd-zen4', '--event', 'cycles', '--period', '60000',
    '--unit', 'cycles', '--name', hostile.replaceAll('/', '_'));
  run('report', '--html', file);
}

/** Records a program with a hostile symbol whose calls are known, and makes its report; null if nothing can be sampled here. */
function recordReport() {
  const [program, names, report] = ['called', 'called-names', 'called.html'].map((name) => join(scratch, name));
  writeFileSync(`${program}.c`, `static volatile long sum;
__attribute__((noinline)) void f0(long n) { for (long i = 0; i < n; i++) sum += i / (i % 7 + 1); }
__attribute__((noinline)) void parse(void) { f0(21000); sum++; }
__attribute__((noinline)) void load(void) { f0(9000); sum++; }
int main(void) { for (int i = 0; i < 10000; i++) { parse(); load(); } return 0; }`);
  writeFileSync(names, `f0 ${hostile}\n`);
  execFileSync('gcc', ['-O1', '-g', '-o', program, `${program}.c`]);
  execFileSync('objcopy', [`--redefine-syms=${names}`, program]);
  const database = join(scratch, 'called-db');
  const { status, stderr } = spawnSync(dwell, ['--db', database, 'record', '-e', 'cpu-clock', '-F', '2000', '--stacks', '1000', '--', program], { encoding: 'utf8' });
  if (status !== 0) {
    console.log(`SKIPPED flame graph of a report: ${stderr.trim().split('\n').at(-1)}`);
    return null;
  }
  execFileSync(dwell, ['--db', database, 'report', '--html', report]);
  return report;
}

async function open({ colorScheme = 'light', viewport = { width: 1280, height: 900 }, hash = '', file: shown = file } = {}) {
  const context = await browser.newContext({ colorScheme, viewport });
  const page = await context.newPage();
  const seen = { requests: [], errors: [] };
  page.on('request', (request) => seen.requests.push(request.url()));
  page.on('pageerror', (error) => seen.errors.push(error.message));
  page.on('console', (message) => { if (message.type() === 'error') seen.errors.push(message.text()); });
  page.on('dialog', (dialog) => { seen.errors.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(pathToFileURL(shown).href + hash);
  return { context, page, seen };
}

test('the page loads no other files, and hostile names stay text', { skip }, async () => {
  const { context, page, seen } = await open();
  const title = await page.title();
  assert.match(title, /where the cycles went$/);
  assert.ok(title.startsWith('<img_src=x'), title);
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.locator('script').count(), 1);
  assert.ok((await page.locator('.procs .name').allTextContents()).some((name) => name.includes('<img/src=x/onerror=')));
  assert.deepEqual(seen.errors, []);
  assert.deepEqual(seen.requests.filter((url) => !/^(file|data):/.test(url)), []);
  assert.equal(seen.requests.filter((url) => url.startsWith('file:')).length, 1);
  assert.doesNotMatch(readFileSync(file, 'utf8'), /(src|href)\s*=\s*["']?https?:/);
  await context.close();
});

test('the table sorts and filters', { skip }, async () => {
  const { context, page } = await open();
  const shares = async () => (await page.locator('.procs td.share').allTextContents()).map(Number.parseFloat);
  const sorted = (numbers, sign) => numbers.every((n, i) => i === 0 || sign * (n - numbers[i - 1]) >= 0);
  assert.ok(sorted(await shares(), -1));
  await page.locator('.procs th').first().click();
  assert.ok(sorted(await shares(), 1));
  await page.locator('.procs th').nth(1).press('Enter');
  const names = (await page.locator('.procs td.name').allTextContents()).map((name) => name.toLowerCase());
  assert.deepEqual(names, names.toSorted());
  await page.locator('#filter').fill('PLAIN');
  assert.equal(await page.locator('.procs tbody tr:visible').count(), 1);
  await context.close();
});

test('links lead to instructions, even in a closed listing', { skip }, async () => {
  const { context, page } = await open();
  await page.locator('.skyline').last().scrollIntoViewIfNeeded();
  const link = await page.locator('.skyline a').last().getAttribute('href');
  await page.locator('details').evaluateAll((all) => all.forEach((d) => { d.open = false; }));
  await page.evaluate((hash) => { location.hash = hash; }, link);
  await page.locator(`[id="${link.slice(1)}"]`).waitFor({ state: 'visible' });
  await context.close();
});

/** Returns the relative luminance according to WCAG 2. */
function luminance(rgb) {
  const [r, g, b] = rgb.match(/[\d.]+/g).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

for (const colorScheme of ['light', 'dark']) {
  test(`text is legible in the ${colorScheme} scheme, and the page fits`, { skip }, async () => {
    for (const width of [390, 1280]) {
      const { context, page } = await open({ colorScheme, viewport: { width, height: 900 } });
      const colors = await page.evaluate(() => ['body', '.lead', '.because', '.bubble', 'td.address', '.procs .name a'].flatMap((selector) => {
        const element = document.querySelector(selector);
        if (!element) return [];
        let behind = element;
        while (behind && /rgba\(0, 0, 0, 0\)/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
        return [[selector, getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]];
      }));
      assert.ok(colors.length >= 5, JSON.stringify(colors));
      for (const [selector, ink, paper] of colors) {
        const [light, dark] = [luminance(ink), luminance(paper)].sort((a, b) => b - a);
        const least = selector === '.bubble' ? 3 : 4.5;
        assert.ok((light + 0.05) / (dark + 0.05) >= least, `${selector}: ${ink} on ${paper}`);
      }
      const paper = luminance(colors[0][2]);
      assert.ok(colorScheme === 'dark' ? paper < 0.1 : paper > 0.8);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `at ${width}`);
      await context.close();
    }
  });
}

test('the flame graph is walked, zoomed, searched, turned around and colored, and leads to listings', { skip }, async () => {
  const report = recordReport();
  if (report === null) return;
  const { context, page, seen } = await open({ file: report });
  const status = page.locator('.flame-status');
  const says = (text) => status.filter({ hasText: text }).waitFor({ timeout: 10_000 });
  const graph = page.locator('.flame-scroller');
  await graph.focus();
  for (const name of ['_start', '__libc_start', '__libc_start', 'main', 'parse']) {
    await page.keyboard.press('ArrowDown');
    await says(name);
  }
  await page.keyboard.press('ArrowRight');
  await says('load');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Enter');
  const whole = page.getByRole('button', { name: 'Show all' });
  assert.ok(await whole.isEnabled());
  await page.keyboard.press('ArrowDown');
  await says('<img/src=x/onerror=');
  await page.keyboard.press('Escape');
  assert.ok(await whole.isDisabled());

  const search = page.getByLabel('Search functions');
  await search.fill('parse');
  const matches = await page.locator('.flame-matches').textContent();
  // 70 % of the calls' time, known to about 2 % from some 500 stacks.
  assert.match(matches, /^[67]\d\.\d % of the stacks, functions: 1$/);
  await search.fill('');

  await page.getByLabel('From the innermost').check();
  await graph.focus();
  await page.keyboard.press('ArrowDown');
  await says('<img/src=x/onerror=');
  await page.keyboard.press('ArrowDown');
  await says('parse');
  await page.keyboard.press('ArrowUp');
  await page.locator('.flame-bar select').selectOption('cause');
  assert.ok((await page.locator('.flame-legend li').count()) > 2);
  await status.getByRole('link', { name: 'listing' }).click();
  assert.match(page.url(), /#p\d+$/);
  assert.equal(await page.locator('img').count(), 0);
  assert.deepEqual(seen.errors, []);
  assert.deepEqual(seen.requests.filter((url) => !/^(file|data):/.test(url)), []);
  await context.close();
});

test('names in the flame graph are legible on every color, light and dark', () => {
  const colors = readFileSync(join(top, 'flame-graph', 'flameGraph.mjs'), 'utf8').match(/#[0-9a-f]{6}\b/g);
  assert.ok(colors.length > 15, String(colors));
  for (const color of colors) {
    for (const shade of [1, 0.85, 0.5, 0.4]) {
      const { fill, ink } = paint(color, shade);
      const [light, dark] = [luminance(fill), ink === '#000' ? 0 : 1].sort((a, b) => b - a);
      assert.ok((light + 0.05) / (dark + 0.05) >= 4.5, `${ink} on ${color} × ${shade}`);
    }
  }
});
