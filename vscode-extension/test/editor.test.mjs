// The extension in a real VS Code: in its extension host, and in the workbench as a person meets it.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { scratch, stageSuite, stageWithFake, stageWorkspace } from './stage.mjs';
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
after(() => browser?.close());

/** Runs a suite in the extension host; each of its tests becomes one here. */
async function inHost(t, name, { settings = {}, env = {} } = {}) {
  const module = await stageSuite(root, name);
  const server = await start({ home: join(root, `home-${name}`), extensions: join(root, `extensions-${name}`), settings, env, args: ['--enable-smoke-test-driver'] });
  try {
    const results = [];
    const hear = (line) => { if (line.includes(mark)) results.push(JSON.parse(line.slice(line.indexOf(mark) + mark.length))); };
    const code = await runInExtensionHost(browser, { base: server.base, folder: workspace, extension, module, hear });
    for (const { name: title, error } of results) await t.test(title, () => { if (error) throw new Error(error); });
    assert.equal(code, 0);
    assert.ok(results.length > 0, 'no test reported');
  } finally {
    await server.stop();
  }
}

test('in the extension host, over the fake server', { skip, timeout: 120_000 }, (t) => inHost(t, 'fakeSuite'));

void Workbench;
