// Pictures of every view, for the README: node test/shots.mjs [FOLDER]   (FOLDER: docs/pictures at the top)
// What they show is real: workloads recorded on this machine, by the packaged extension.
import { execFile } from 'node:child_process';
import { mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { scratch, stageReal } from './stage.mjs';
import { start } from './vscodeWeb.mjs';
import { launch, Workbench } from './workbench.mjs';

const themes = { dark: 'Default Dark Modern', light: 'Default Light Modern', contrast: 'Default High Contrast' };
const folder = process.argv[2] ?? join(import.meta.dirname, '..', '..', 'docs', 'pictures');

const root = await scratch();
const real = await stageReal(root);
await mkdir(folder, { recursive: true });
await record('divide', './build/divide');
await record('all', 'sh', '-c', './build/chase; ./build/hashjoin 20; ./build/mispredict; ./build/sort');
const browser = await launch();
try {
  for (const [theme, title] of Object.entries(themes)) await shoot(theme, title);
} finally {
  await browser.close();
  await rm(root, { recursive: true, force: true });
}

function record(name, ...command) {
  const program = join(import.meta.dirname, '..', 'dist', 'bin', 'dwell');
  return promisify(execFile)(program, ['--db', real.machineSettings['dwell.database'], 'record', '--name', name, '--', ...command], { cwd: real.workspace });
}

async function shoot(theme, title) {
  const settings = { 'workbench.colorTheme': title, 'editor.fontSize': 13, 'breadcrumbs.enabled': false, 'workbench.layoutControl.enabled': false, 'editor.occurrencesHighlight': 'off' };
  const server = await start({ home: join(root, `home-${theme}`), extensions: real.extensions, settings, machineSettings: real.machineSettings });
  const workbench = await Workbench.open(browser, { base: server.base, folder: real.workspace, file: 'chase.c', viewport: { width: 1360, height: 760 }, scale: 1.5 });
  const shot = (name) => workbench.shot(join(folder, `${name}-${theme}.png`));
  try {
    await workbench.until('hints', () => workbench.inlayHints());
    await workbench.command('View: Show Dwell');
    await workbench.until('rows', () => workbench.treeRows('Hot Procedures').count());
    await workbench.treeRows('Hot Procedures').filter({ hasText: 'chase' }).first().click();
    await workbench.until('a lens', () => workbench.lens('CPI').count());
    await shot('lines');
    await workbench.clickLens('CPI');
    await workbench.tab('chase.dwell').waitFor();
    await workbench.until('instructions', () => workbench.page.getByText('best case').count());
    await workbench.command('View: Toggle Primary Side Bar Visibility');
    await shot('listing');
    await workbench.command('Dwell: Select Epoch…');
    await workbench.row('samples').waitFor();
    await shot('epochs');
    await workbench.page.keyboard.press('Escape');
  } catch (error) {
    const picture = join(tmpdir(), 'dwell-vscode-shots.png');
    await workbench.shot(picture);
    throw new Error(`${error.message}\n(what was to be seen: ${picture})`, { cause: error });
  } finally {
    await workbench.close();
    await server.stop();
  }
}
