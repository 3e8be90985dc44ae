// `npm run bench:flame [-- --stacks N --rounds N]`: how long a report with many different call stacks takes until it is drawn, in
// headless Chromium. The database is simulated (core/query/examples/many_stacks.rs), so that each sample has a stack of its own.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { build, dwell, main } from './build.mjs';
import { top } from './step.mjs';

const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Time from the begin of the navigation to the first frame with the graph, and how long the graph's own script takes. */
async function load(browser, file) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.addInitScript(() => {
    // The graph is drawn when its canvas has a size; the frame after that shows it.
    const look = () => {
      const canvas = document.querySelector('#flame-graph canvas');
      if (canvas && canvas.style.width !== '') requestAnimationFrame(() => { window.drawn = performance.now(); });
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  await page.goto(pathToFileURL(file).href);
  const drawn = await page.waitForFunction(() => window.drawn).then((handle) => handle.jsonValue());
  await context.close();
  return drawn;
}

await main(async () => {
  const { values: { stacks, rounds } } = parseArgs({ options: { stacks: { type: 'string', default: '100000' }, rounds: { type: 'string', default: '7' } } });
  if (!process.env.DWELL) await build();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-flame-'));
  const { chromium } = await import('playwright-core');
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
  try {
    const [database, file] = [join(folder, 'db'), join(folder, 'report.html')];
    console.log(execFileSync('cargo', ['run', '-q', '-p', 'dwell-query', '--example', 'many_stacks', '--', database, stacks], { cwd: top, encoding: 'utf8' }).trim());
    const begin = performance.now();
    console.log(execFileSync(process.env.DWELL ?? dwell, ['--db', database, 'report', '--html', file], { encoding: 'utf8' }).trim());
    console.log(`written in ${((performance.now() - begin) / 1000).toFixed(1)} s, ${(statSync(file).size / 1e6).toFixed(1)} MB`);
    const times = [];
    for (let round = 0; round < Number(rounds); round++) times.push(await load(browser, file));
    console.log(`from navigation to the graph drawn: ${median(times).toFixed(0)} ms (${Math.min(...times).toFixed(0)} to ${Math.max(...times).toFixed(0)}, ${rounds} times)`);
  } finally {
    await browser.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
