// Pictures of every view, for the README: node test/shots.mjs [FOLDER] [THEME…]   (FOLDER: docs/pictures at the top)
// What they show is real: workloads recorded on this machine, by the packaged extension, in each theme. Where pngquant is
// there (apt-get install pngquant) they are kept small by it.
import { execFile } from 'node:child_process';
import { mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { scratch, stageReal } from './stage.mjs';
import { start } from './vscodeWeb.mjs';
import { launch, Workbench } from './workbench.mjs';

const themes = { dark: 'Default Dark Modern', light: 'Default Light Modern', contrast: 'Default High Contrast' };
/** How a lens begins. */
const costOfProcedure = /^[\d.]+ % · [\d.]+ m?s/;
const [folder = join(import.meta.dirname, '..', '..', 'docs', 'pictures'), ...asked] = process.argv.slice(2);

const root = await scratch();
const real = await stageReal(root);
await mkdir(folder, { recursive: true });
await record('before', 'sh', '-c', './build/chase 8; ./build/hashjoin 10; ./build/mispredict; ./build/sort');
await record('after', 'sh', '-c', './build/chase 32; ./build/hashjoin 10; ./build/mispredict; ./build/sort; ./build/divide');
const browser = await launch();
try {
  for (const [theme, title] of Object.entries(themes)) {
    if (asked.length === 0 || asked.includes(theme)) await shoot(theme, title);
  }
} finally {
  await browser.close();
  await rm(root, { recursive: true, force: true, maxRetries: 5 });
}

function record(name, ...command) {
  const program = join(import.meta.dirname, '..', 'dist', 'bin', 'dwell');
  return promisify(execFile)(program, ['--db', real.machineSettings['dwell.database'], 'record', '--name', name, '--', ...command], { cwd: real.workspace });
}

async function shoot(theme, title) {
  const settings = { 'workbench.colorTheme': title, 'editor.fontSize': 13, 'breadcrumbs.enabled': false, 'workbench.layoutControl.enabled': false, 'editor.occurrencesHighlight': 'off', 'editor.hover.delay': 50 };
  const server = await start({ home: join(root, `home-${theme}`), extensions: real.extensions, settings, machineSettings: real.machineSettings });
  const workbench = await Workbench.open(browser, { base: server.base, folder: real.workspace, file: 'chase.c', viewport: { width: 1360, height: 760 }, scale: 1.5 });
  const shot = async (name) => {
    const file = join(folder, `vscode-${name}-${theme}.png`);
    await workbench.shot(file);
    await small(file);
  };
  try {
    await views(workbench, shot);
  } catch (error) {
    const picture = join(tmpdir(), 'dwell-vscode-shots.png');
    await workbench.shot(picture);
    throw new Error(`${error.message}\n(what was to be seen: ${picture})`, { cause: error });
  } finally {
    await workbench.close();
    await server.stop();
  }
}

/** 128 colours are enough for text in a few; the picture is a third of its size then. */
function small(file) {
  return promisify(execFile)('pngquant', ['--force', '--output', file, '--speed', '1', '128', file]).catch((error) => {
    console.log(`dwell: ${file} is not made smaller: ${error.code === 'ENOENT' ? 'no pngquant' : error.message}`);
  });
}

async function views(workbench, shot) {
  const { page } = workbench;
  await workbench.until('line ends', () => workbench.lineEnds());
  await workbench.command('View: Show Dwell');
  const list = await workbench.webviewTitled('Hot Functions');
  await list.locator('.row', { hasText: 'chase' }).first().click();
  await workbench.until('a lens', () => workbench.lens(costOfProcedure).count());
  await shot('lines');
  await edited(workbench, shot);
  await hover(workbench);
  await shot('hover');
  await page.keyboard.press('Escape');
  await workbench.clickLens(costOfProcedure);
  await workbench.tab('chase.dwell').waitFor();
  await workbench.until('the summary', () => page.getByText('Where the cycles go').count());
  await workbench.command('View: Toggle Primary Side Bar Visibility');
  await shot('listing');
  await workbench.command('Dwell: Show Control-Flow Graph');
  await workbench.webview().locator('.block').first().waitFor();
  await shot('graph');
  await workbench.command('View: Close Editor');
  await workbench.command('Dwell: Select Recording…');
  await workbench.row('samples').waitFor();
  await shot('epochs');
  await page.keyboard.press('Escape');
  await workbench.command('Welcome: Open Walkthrough');
  await workbench.choose('Get Started with Dwell');
  await page.getByText('From a program to the line that stalls').first().waitFor();
  await shot('walkthrough');
  await workbench.command('View: Close Editor');
  await comparison(workbench, shot);
}

async function goToHottest(workbench) {
  await workbench.page.keyboard.press('Control+1');
  const ends = await workbench.lineEnds();
  const share = ({ text }) => Number.parseFloat(/[\d.]+(?= %)/.exec(text)?.[0] ?? '0');
  const [hottest] = ends.sort((a, b) => share(b) - share(a));
  await workbench.goTo(hottest.line, 20);
}

/** The hot line, edited: its number is of the text before. */
async function edited(workbench, shot) {
  const { page } = workbench;
  await goToHottest(workbench);
  await page.keyboard.press('End');
  await page.keyboard.type(' // edited');
  await workbench.until('the word', () => workbench.lineEnds(), (ends) => ends.some(({ text }) => text.includes('edited')));
  await shot('edited');
  await workbench.command('File: Revert File');
  await workbench.until('the costs', () => workbench.lineEnds(), (ends) => ends.length > 0 && !ends.some(({ text }) => text.includes('edited')));
}

/** The hover of the line with the most to tell, opened by keyboard. */
async function hover(workbench) {
  await goToHottest(workbench);
  const shown = workbench.page.locator('.monaco-hover:not(.hidden)').filter({ hasText: 'of all time' }).first();
  await workbench.until('the hover', async () => {
    await workbench.page.keyboard.press('Control+K');
    await workbench.page.keyboard.press('Control+I');
    return shown.waitFor({ timeout: 3000 }).then(() => true, () => false);
  });
}

async function comparison(workbench, shot) {
  const { page } = workbench;
  await workbench.command('Dwell: Compare Recordings…');
  await workbench.row('before').click();
  await page.getByPlaceholder('After: what lines').waitFor();
  await workbench.row('after').click();
  await workbench.statusItem('before → after').waitFor();
  await workbench.until('changes', () => workbench.treeRows('Comparison').count(), (rows) => rows > 3);
  // To the source, whose lines tell the change now.
  await page.keyboard.press('Control+1');
  await workbench.until('changes on lines', () => workbench.lineEnds(), (ends) => ends.some(({ text }) => /^[+−]/.test(text)));
  await shot('comparison');
  await workbench.treeRows('Comparison').filter({ hasText: 'chase' }).first().click();
  await page.locator('.monaco-diff-editor').waitFor();
  await page.locator('.modified .view-line').first().waitFor();
  // Side by side they need the room.
  await workbench.command('View: Close Editors in Other Groups');
  await workbench.command('View: Toggle Primary Side Bar Visibility');
  await page.locator('.original .view-line').first().waitFor();
  await shot('instructions');
}
