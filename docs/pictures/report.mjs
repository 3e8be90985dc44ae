// Makes report-light.png, report-dark.png and report-listing.png of `dwell report --html`, in Chromium:
//   node docs/pictures/report.mjs [FOLDER [PAGE.html]]     after `npm start`; records the workloads anew unless a page is named
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const top = join(import.meta.dirname, '..', '..');
const folder = process.argv[2] ?? import.meta.dirname;
const scratch = mkdtempSync(join(tmpdir(), 'dwell-pictures-'));

function record() {
  const page = join(scratch, 'report.html');
  const dwell = process.env.DWELL ?? join(top, 'target/release/dwell');
  const run = (...words) => execFileSync(dwell, ['--db', join(scratch, 'db'), ...words], { cwd: join(top, 'test-fixtures/programs'), stdio: 'ignore' });
  run('record', '-F', '5000', '--name', 'workloads', '--', 'sh', '-c', 'cd build; ./chase; ./hashjoin 20; ./mispredict; ./sort; ./divide; ./copy');
  run('report', '--html', page);
  return page;
}

const page = pathToFileURL(process.argv[3] ?? record()).href;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
try {
  for (const [name, colorScheme, selector] of [['light', 'light'], ['dark', 'dark'], ['listing', 'light', '#p0'], ['listing-dark', 'dark', '#p0']]) {
    const context = await browser.newContext({ colorScheme, viewport: { width: 1280, height: 1180 }, deviceScaleFactor: 1.5 });
    const view = await context.newPage();
    await view.goto(page);
    if (selector) await view.locator(selector).scrollIntoViewIfNeeded().then(() => view.evaluate((s) => document.querySelector(s).scrollIntoView(), selector));
    await view.screenshot({ path: join(folder, `report-${name}.png`) });
    await context.close();
  }
} finally {
  await browser.close();
  rmSync(scratch, { recursive: true, force: true });
}
