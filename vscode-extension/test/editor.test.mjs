// The extension in a real VS Code: in its extension host, and in the workbench as a person meets it.
import assert from 'node:assert/strict';
import { cp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { scratch, stageReal, stageSuite, stageWithFake, stageWorkspace } from './stage.mjs';
import { start } from './vscodeWeb.mjs';
import { browserMissing, launch, runInExtensionHost, Workbench } from './workbench.mjs';

/** As in inHost.ts. */
const mark = '[dwell-test] ';
const missing = browserMissing();
const skip = missing ?? false;
if (missing) console.log(`SKIPPED vscode: ${missing}`);

let root, workspace, extension, browser;

before(async () => {
  if (missing) return;
  root = await scratch();
  workspace = await stageWorkspace(root);
  extension = await stageWithFake(root);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  if (root) await rm(root, { recursive: true, force: true });
});

/** Runs a suite in the extension host; each of its tests becomes one here. */
async function inHost(t, suite, { folder, development, extensions, machineSettings = {} }) {
  const module = await stageSuite(root, suite);
  const server = await start({ home: join(root, `home-${suite}`), extensions, machineSettings, args: ['--enable-smoke-test-driver'] });
  try {
    const results = [];
    const hear = (line) => { if (line.includes(mark)) results.push(JSON.parse(line.slice(line.indexOf(mark) + mark.length))); };
    const code = await runInExtensionHost(browser, { base: server.base, folder, extension: development, module, hear });
    for (const { name, error } of results) await t.test(name, () => { if (error) throw new Error(error); });
    assert.equal(code, 0);
    assert.ok(results.length > 0, 'no test reported');
  } finally {
    await server.stop();
  }
}

test('in the extension host, over the fake server', { skip, timeout: 180_000 }, (t) =>
  inHost(t, 'fakeSuite', { folder: workspace, development: extension, extensions: join(root, 'extensions-none') }));

test('in the extension host, packaged, from recording to source lines', { skip, timeout: 300_000 }, async (t) => {
  const real = await stageReal(root);
  await inHost(t, 'realSuite', { ...real, folder: real.workspace });
});


/** Opens the workbench over the fake server, as `name`'s own user, and gives it to `drive`. */
async function inWorkbench(name, { settings = {}, env = {}, file = 'chase.c' }, drive) {
  const extensions = join(root, `extensions-${name}`);
  // What an installation leaves behind; VS Code takes up what it finds at its first start.
  await cp(extension, join(extensions, 'dwell.dwell-0.1.0'), { recursive: true });
  const server = await start({ home: join(root, `home-${name}`), extensions, settings, env });
  const workbench = await Workbench.open(browser, { base: server.base, folder: workspace, file });
  try {
    await drive(workbench);
    assert.deepEqual(workbench.leaks, []);
  } catch (error) {
    const picture = join(tmpdir(), `dwell-vscode-${name}.png`);
    await workbench.shot(picture);
    throw new Error(`${error.message}\n(what was to be seen: ${picture})`, { cause: error });
  } finally {
    await workbench.close();
    await server.stop();
  }
}

/** Steps that build on each other: after one that fails, the others fail at once. */
function stepsOf(t, workbench) {
  let broken = false;
  return (name, step) => t.test(name, async () => {
    assert.ok(!broken, 'an earlier step failed');
    broken = true;
    try {
      await step();
    } catch (error) {
      const picture = join(tmpdir(), 'dwell-vscode-step.png');
      await workbench.shot(picture);
      throw new Error(`${error.message}\n(what was to be seen: ${picture})`, { cause: error });
    }
    broken = false;
  });
}

const namesOf = (workbench, view) => workbench.treeRows(view).evaluateAll((rows) => rows.map((row) => row.getAttribute('aria-label').trim()));
const rowsOf = (workbench) => namesOf(workbench, 'Hot Procedures');
const changeRows = [
  'Procedures: 3', 'chase, +30.0% · slower ×1.60 · CPI 19→31', 'link_cycle, +15.0% · ran more often ×2.00', 'fresh, +5.0% · new',
];
const procedureRows = ['chase, 86.0% · CPI 31.0 · chase', 'link_cycle, 11.5% · CPI 4.2 · chase', 'clear_page_erms, <0.1% · kernel', '412 more…'];

test('in the workbench, over the fake server', { skip, timeout: 180_000 }, async (t) => {
  await inWorkbench('workbench', {}, async (workbench) => {
    const { page } = workbench;
    const step = stepsOf(t, workbench);
    const source = await readFile(join(workspace, 'chase.c'), 'utf8');
    const hotLine = 1 + source.split('\n').findIndex((line) => line.includes('HOT'));
    await step('a hot line ends with its hint', async () => {
      const [hint] = await workbench.until('a hint', () => workbench.inlayHints());
      assert.deepEqual(hint, { line: hotLine, text: '86.0% · CPI 31/0.50 · D-cache miss' });
    });
    await step('a lens opens the listing beside the source', async () => {
      await workbench.clickLens('CPI 31 (best 0.50)');
      await workbench.tab('chase.dwell').waitFor();
      await page.getByText('D-cache miss)').waitFor();
    });
    await step('the view lists the hot procedures', async () => {
      await workbench.command('View: Show Dwell');
      await workbench.until('rows', () => rowsOf(workbench), (rows) => rows.join() === procedureRows.join(), 20_000);
    });
    await step('a row leads to its source', async () => {
      await workbench.treeRows('Hot Procedures').first().click();
      await workbench.statusItem(`Ln ${hotLine - 1}, Col 1`).waitFor();
    });
    await step('a row whose source is gone leads to its listing, and what fails is said in a line', async () => {
      await workbench.treeRows('Hot Procedures').nth(1).click();
      await page.locator('.notification-list-item', { hasText: 'no procedure /work/chase:link_cycle in the profile' }).waitFor();
    });
    await step('rows by image, and by procedure again', async () => {
      await workbench.command('Dwell: Group Hot Procedures By…');
      await page.getByPlaceholder('What a row of the view stands for').waitFor();
      await workbench.choose('Image');
      await workbench.until('images', () => rowsOf(workbench), ([first]) => first === 'first image, 90.0%');
      await workbench.command('Dwell: Group Hot Procedures By…');
      await page.getByPlaceholder('What a row of the view stands for').waitFor();
      await workbench.choose('Procedure');
      await workbench.until('procedures', () => rowsOf(workbench), (rows) => rows.join() === procedureRows.join());
    });
    await step('one epoch is chosen, then two are merged', async () => {
      await workbench.command('Dwell: Select Epoch…');
      await workbench.row('before').click();
      await workbench.statusItem('Dwell: before').waitFor();
      await workbench.command('Dwell: Select Epoch…');
      await page.getByRole('button', { name: 'Select several epochs to merge' }).click();
      // The list is drawn anew with boxes; a click before that is lost.
      await page.getByPlaceholder('The epochs to merge').waitFor();
      await workbench.row('./chase 32').click();
      await page.locator('.quick-input-count', { hasText: '2' }).waitFor();
      await page.keyboard.press('Enter');
      await workbench.statusItem('Dwell: 2 epochs merged').waitFor();
    });
    await step('a recording is cancelled without a word', async () => {
      await workbench.command('Dwell: Record a Command…');
      await workbench.input.fill('wait for ever');
      await page.keyboard.press('Enter');
      const progress = page.locator('.notification-list-item', { hasText: 'Recording wait for ever' });
      await progress.getByRole('button', { name: 'Cancel' }).click();
      await progress.waitFor({ state: 'detached' });
      assert.equal(await page.locator('.notification-list-item', { hasText: 'recording' }).count(), 0);
      await workbench.statusItem('Dwell: 2 epochs merged').waitFor();
    });
    await step('two epochs are compared: what got slower is told from what ran more often, and noise is grey', async () => {
      await workbench.command('Dwell: Compare Epochs…');
      await workbench.row('before').click();
      await page.getByPlaceholder('After: what lines').waitFor();
      await workbench.row('./chase 32').click();
      await workbench.statusItem('Dwell: before → ./chase 32').waitFor();
      const rows = () => namesOf(workbench, 'Comparison');
      assert.deepEqual((await workbench.until('changes', rows, (names) => names.length >= 6)).slice(0, 4), changeRows);
      await workbench.treeRows('Comparison').filter({ hasText: 'No Change Beyond Noise' }).click();
      const noise = workbench.treeRows('Comparison').filter({ hasText: 'main' });
      // It opens below what is in sight.
      await workbench.until('what may be chance', async () => {
        await page.keyboard.press('End');
        return await noise.count() > 0;
      });
      const colour = (row) => row.locator('.label-name').first().evaluate((label) => globalThis.getComputedStyle(label).color);
      const slower = workbench.treeRows('Comparison').filter({ hasText: '+30.0% · slower' }).first();
      // The row with the focus has colours of its own.
      await page.keyboard.press('Home');
      await workbench.until('grey', async () => await colour(noise) !== await colour(slower), (differ) => differ, 10_000);
    });
    await step('a click on a procedure shows its instructions side by side, with their costs', async () => {
      await workbench.treeRows('Comparison').filter({ hasText: 'slower' }).first().click();
      await page.locator('.monaco-diff-editor').waitFor();
      await page.locator('.modified').getByText('imul').waitFor();
      assert.equal(await page.locator('.original').getByText('imul').count(), 0);
      await workbench.command('Dwell: End Comparison');
      await workbench.pane('Comparison').waitFor({ state: 'detached' });
    });
    await step('the graph is a picture of its own, which loads nothing, is zoomed by keyboard and leads to the listing', async () => {
      await workbench.chooseFromMenu(workbench.treeRows('Hot Procedures').first(), 'Show Control-Flow Graph');
      const picture = workbench.webview();
      const block = picture.locator('.block');
      await block.waitFor();
      assert.match(await picture.locator('meta[http-equiv]').getAttribute('content'), /^default-src 'none'; style-src 'nonce-/);
      assert.equal(await picture.locator('svg').getAttribute('width'), '300');
      await picture.getByRole('button', { name: 'Zoom in' }).click();
      assert.equal(await picture.locator('svg').getAttribute('width'), '375');
      await block.focus();
      await page.keyboard.press('Enter');
      await workbench.until('the listing', () => workbench.tab('chase.dwell').getAttribute('aria-selected'), (selected) => selected === 'true');
    });
    await step('an epoch gets a name, and is removed once one has said so', async () => {
      await workbench.command('Dwell: Rename Epoch…');
      await workbench.row('./chase 32').click();
      await page.getByText('A name for the epoch').waitFor();
      await workbench.input.fill('after');
      await page.keyboard.press('Enter');
      await workbench.statusItem('Dwell: after').waitFor();
      await workbench.command('Dwell: Remove Epochs…');
      await workbench.row('after').click();
      const dialog = page.locator('.monaco-dialog-box', { hasText: 'Remove the epoch "after"' });
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      await dialog.waitFor({ state: 'detached' });
      await workbench.command('Dwell: Remove Epochs…');
      await workbench.row('after').click();
      await dialog.getByRole('button', { name: 'Remove' }).click();
      await workbench.statusItem('Dwell: before').waitFor();
    });
    await step('a process is picked from a list', async () => {
      await workbench.command('Dwell: Record a Process…');
      await workbench.row('/usr/bin/busy --loop').click();
      await workbench.statusItem('Dwell: pid 4711').waitFor();
    });
  });
});

test('without a profile', { skip, timeout: 180_000 }, async (t) => {
  await t.test('the view says how to get one', () => inWorkbench('empty', { env: { DWELL_FAKE_EMPTY: '1' } }, async (workbench) => {
    await workbench.statusItem('Dwell: no profile').waitFor();
    await workbench.command('View: Show Dwell');
    await workbench.pane('Hot Procedures').getByRole('button', { name: 'Record a Command', exact: true }).waitFor();
  }));
  const untrusted = { 'security.workspace.trust.enabled': true, 'security.workspace.trust.banner': 'never' };
  await t.test('an untrusted workspace records nothing', () => inWorkbench('untrusted', { env: { DWELL_FAKE_EMPTY: '1' }, settings: untrusted }, async (workbench) => {
    await workbench.statusItem('Dwell: no profile').waitFor();
    await workbench.command('View: Show Dwell');
    await workbench.pane('Hot Procedures').getByRole('button', { name: 'Manage Workspace Trust', exact: true }).waitFor();
    await workbench.page.keyboard.press('F1');
    await workbench.input.fill('>Dwell: ');
    await workbench.row('Dwell: Start a New Epoch…').waitFor();
    assert.equal(await workbench.row('Dwell: Record a Command…').count(), 0);
  }));
});
