// The extension in the real extension host, over the fake server: what each feature does with known answers.
import * as assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as vscode from 'vscode';
import { activeListing, codeLenses, hintCount, lineEnds, lineWith, runTests, until, workspaceFile } from './inHost';

const source = () => vscode.workspace.openTextDocument(workspaceFile('chase.c'));
const extension = () => vscode.extensions.getExtension('dwell.dwell');

export function run(): Promise<void> {
  return runTests({
    'sleeps until a source file is opened': async () => {
      assert.equal(extension()?.isActive, false);
      await source();
      await until('activation', () => extension()?.isActive, (active) => active === true);
    },

    'registers every command of its manifest': async () => {
      const manifest = extension()?.packageJSON as { contributes: { commands: { command: string }[] } };
      const known = new Set(await vscode.commands.getCommands(true));
      assert.deepEqual(manifest.contributes.commands.map(({ command }) => command).filter((id) => !known.has(id)), []);
    },

    'draws what lines cost after them, whole and as many as the setting allows, and no hints': async () => {
      const document = await source();
      await vscode.window.showTextDocument(document);
      const line = lineWith(document, 'HOT');
      const ends = await until('line ends', () => lineEnds(document), (answer) => answer.length > 0);
      assert.deepEqual(ends, [{ line, text: '███▌ 86 % · 2.6 s · waits for memory (D-cache or DTLB miss) ← :24 · 31 cycles/instr (ideal 0.50)' }]);
      assert.equal(await hintCount(document), 0);
      await vscode.commands.executeCommand('dwell.setHints', 'off');
      await until('none', () => lineEnds(document), (answer) => answer.length === 0);
      await vscode.commands.executeCommand('dwell.setHints', 'hot');
      await until('line ends again', () => lineEnds(document), (answer) => answer.length === 1);
    },

    'asks anew once typing rests, and leaves what is not in sight': async () => {
      const document = await source();
      const editor = await vscode.window.showTextDocument(document);
      const line = lineWith(document, 'HOT');
      await until('line ends', () => lineEnds(document), (answer) => answer.length === 1);
      await editor.edit((edit) => { edit.insert(new vscode.Position(0, 0), '// one more line\n'); });
      await until('the line it moved to', () => lineEnds(document), ([end]) => end?.line === line + 1);
      await vscode.commands.executeCommand('undo');
      await until('the line it was on', () => lineEnds(document), ([end]) => end?.line === line);
      await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor');
      await until('nothing', () => lineEnds(document), (answer) => answer.length === 0);
    },

    'explains the numbers in a page of Markdown': async () => {
      await vscode.commands.executeCommand('dwell.showLegend');
      const tabs = () => vscode.window.tabGroups.all.flatMap(({ tabs }) => tabs.map(({ label }) => label));
      await until('the page', tabs, (labels) => labels.some((label) => label.includes('What do these numbers mean')));
    },

    'opens a tab for queries, and runs the one that a keybinding gives': async () => {
      await vscode.commands.executeCommand('dwell.querySql', 'SELECT 1');
      await vscode.commands.executeCommand('dwell.querySql', 'SELECT 2');
      const tabs = () => vscode.window.tabGroups.all.flatMap(({ tabs }) => tabs.map(({ label }) => label)).filter((label) => label === 'SQL');
      await until('one tab', tabs, (labels) => labels.length === 1);
    },

    'lists severe stalls as information with their culprit, once that is wanted': async () => {
      const document = await source();
      const line = lineWith(document, 'HOT');
      assert.deepEqual(vscode.languages.getDiagnostics(document.uri), []);
      const settings = vscode.workspace.getConfiguration('dwell');
      await settings.update('diagnostics', true, vscode.ConfigurationTarget.Global);
      const [found] = await until('a diagnostic', () => vscode.languages.getDiagnostics(document.uri), (all) => all.length === 1);
      assert.equal(found?.severity, vscode.DiagnosticSeverity.Information);
      assert.equal(found.range.start.line, line);
      assert.deepEqual(found.relatedInformation?.map(({ location, message }) => [location.range.start.line, message]), [[line - 1, 'culprit: D-cache miss']]);
      await settings.update('diagnostics', undefined, vscode.ConfigurationTarget.Global);
      await until('none', () => vscode.languages.getDiagnostics(document.uri), (all) => all.length === 0);
    },

    'opens the listing from a lens, and leads to the source and the culprit': async () => {
      const document = await source();
      const [lens] = await until('a lens', () => codeLenses(document), (answer) => answer.length > 0);
      assert.equal(lens?.command?.title, '86 % · 2.6 s · 31 cycles/instr (ideal 0.50)');
      await vscode.commands.executeCommand(lens.command.command, ...(lens.command.arguments as unknown[]));
      const listing = await activeListing((text) => text.startsWith('chase  /work/chase'));
      assert.equal(listing.languageId, 'dwell-listing');
      assert.deepEqual(await definition(listing, 4), { path: document.uri.path, line: lineWith(document, 'HOT') });
      assert.deepEqual(await definition(listing, 5), { path: listing.uri.path, line: 4 });
      assert.equal(await definition(listing, 0), undefined);
    },

    'opens the listing of the cursor\'s line at its instructions, and goes back': async () => {
      const document = await source();
      const line = lineWith(document, 'HOT');
      await vscode.window.showTextDocument(document, { selection: new vscode.Range(line, 0, line, 0) });
      await vscode.commands.executeCommand('dwell.showListing');
      await activeListing((text) => text.includes('1150'));
      await until('the line\'s place', () => vscode.window.activeTextEditor?.selection.active.line, (at) => at === 3);
      await vscode.commands.executeCommand('dwell.goToSource');
      await until('the source', () => vscode.window.activeTextEditor?.document.uri.path, (path) => path === document.uri.path);
      assert.equal(vscode.window.activeTextEditor?.selection.active.line, line);
    },

    'folds the blocks of a listing, outlines them, and follows a branch': async () => {
      await vscode.commands.executeCommand('dwell.showListing', '/work/chase:chase', 0x1153);
      const listing = await activeListing((text) => text.includes('1150'));
      await until('the instruction', () => vscode.window.activeTextEditor?.selection.active.line, (at) => at === 6);
      const folds = await vscode.commands.executeCommand<vscode.FoldingRange[]>('vscode.executeFoldingRangeProvider', listing.uri);
      assert.deepEqual(folds.map(({ start, end }) => [start, end]), [[2, 7]]);
      const symbols = await vscode.commands.executeCommand<vscode.DocumentSymbol[]>('vscode.executeDocumentSymbolProvider', listing.uri);
      assert.deepEqual(symbols.map(({ name, detail }) => [name, detail]), [['Block 1150', 'best case 1.5/3 = 0.50 CPI, actual 93/3 = 31.0 CPI']]);
      assert.deepEqual(await definition(listing, 7), { path: listing.uri.path, line: 4 });
      // On the register `rsi`: the first of those who may have written it.
      assert.deepEqual(await definition(listing, 6, 15), { path: listing.uri.path, line: 4 });
    },

    'compares two epochs: rows, and instructions that stand in one line on both sides': async () => {
      await vscode.commands.executeCommand('dwell.compareEpochs', 'e1', 'e2');
      const document = await source();
      await vscode.window.showTextDocument(document);
      const line = lineWith(document, 'HOT');
      const change = [{ line, text: '+30.0% · slower ×1.60 · CPI 19→31' }];
      await until('the change', () => lineEnds(document), (answer) => JSON.stringify(answer) === JSON.stringify(change));
      await vscode.commands.executeCommand('dwell.compareListings', '/work/chase:chase');
      const [before, after] = await until('both sides', () => sides(), (texts) => texts.length === 2 && texts.every((text) => text.includes('mov')));
      assert.equal(before, '1  mov rdi, qword ptr [rdi]\n2  nop\n4  jne 0x1150\n');
      assert.equal(after, '1  mov rdi, qword ptr [rdi]\n3  imul rdi, rdi, 3\n4  jne 0x1150\n');
      await vscode.commands.executeCommand('dwell.endComparison');
    },

    'records a process, and imports a perf.data, as the epoch that is shown': async () => {
      await vscode.commands.executeCommand('dwell.showListing', '/work/chase:chase');
      await activeListing((text) => text.includes('recording e2'));
      await vscode.commands.executeCommand('dwell.recordProcess', 4711);
      await activeListing((text) => text.includes('recording e3'));
      await vscode.commands.executeCommand('dwell.importPerf', '/work/perf.data');
      await activeListing((text) => text.includes('recording e4'));
    },

    'records a command as the epoch that is shown, open listings too': async () => {
      await vscode.commands.executeCommand('dwell.showListing', '/work/chase:chase');
      const listing = await activeListing((text) => text.includes('recording e4'));
      await vscode.commands.executeCommand('dwell.record', './chase 3');
      await until('the new epoch in the listing', () => listing.getText(), (text) => text.includes('recording e5'));
    },

    'records a task of tasks.json, and the launch target after its task and in its environment': async () => {
      const folder = workspaceFile('.').fsPath;
      await mkdir(join(folder, '.vscode'), { recursive: true });
      const tasks = [{ label: 'profile', type: 'dwell', command: './chase 4', problemMatcher: [] }, { label: 'make it', type: 'shell', command: 'touch made' }];
      await writeFile(join(folder, '.vscode', 'tasks.json'), JSON.stringify({ version: '2.0.0', tasks }));
      const target = { name: 'chase', type: 'any', request: 'launch', program: '${workspaceFolder}/target', env: { A: '1' }, envFile: '${workspaceFolder}/.env', preLaunchTask: 'make it' };
      await writeFile(join(folder, '.vscode', 'launch.json'), JSON.stringify({ version: '0.2.0', configurations: [target] }));
      await writeFile(join(folder, '.env'), '# a comment\nA=0\nB="two words"\n');
      await vscode.commands.executeCommand('dwell.showListing', '/work/chase:chase');
      const listing = await activeListing((text) => text.includes('recording e5'));
      // VS Code asks for the command line of a task of tasks.json as often as it likes, and each has its own number.
      const shown = () => Number(/recording e(\d+)/.exec(listing.getText())?.[1]);
      const [task] = await until('the task', async () => (await vscode.tasks.fetchTasks()).filter(({ name }) => name === 'profile'), (found) => found.length === 1);
      assert.ok(task);
      await vscode.tasks.executeTask(task);
      const ofTask = await until('its recording', shown, (epoch) => epoch > 5);
      const environments: unknown[] = [];
      const started = vscode.tasks.onDidStartTask(({ execution: { task: { execution } } }) => {
        if (execution instanceof vscode.ProcessExecution) environments.push(execution.options?.env);
      });
      await until('the launch configuration', () => vscode.workspace.getConfiguration('launch').get<unknown[]>('configurations', []), (all) => all.length === 1);
      await vscode.commands.executeCommand('dwell.recordTarget');
      await until('its start', () => environments, (all) => all.length > 0);
      started.dispose();
      assert.deepEqual(environments, [{ A: '1', B: 'two words' }]);
      assert.equal(await readFile(join(folder, 'made'), 'utf8'), '');
      await until('its recording', shown, (epoch) => epoch > ofTask);
    },

    'exports a report of what is shown, and starts the server anew when asked to': async () => {
      const path = join(await mkdtemp(join(tmpdir(), 'dwell-report-')), 'r.html');
      await vscode.commands.executeCommand('dwell.exportReport', path);
      assert.match(await readFile(path, 'utf8'), /^e\d+$/);
      const document = await source();
      await vscode.window.showTextDocument(document);
      await vscode.commands.executeCommand('dwell.restartServer');
      await until('line ends', () => lineEnds(document), (answer) => answer.length === 1);
    },

    'starts a server again that died, with what was shown before': async () => {
      const document = await source();
      const editor = await vscode.window.showTextDocument(document);
      const line = lineWith(document, 'HOT');
      await until('line ends', () => lineEnds(document), (answer) => answer.length === 1);
      // It cannot answer; the message that says so waits for nobody.
      await vscode.commands.executeCommand('dwell.record', 'die');
      // What was drawn stays meanwhile; only a new server knows where the line has gone.
      await editor.edit((edit) => { edit.insert(new vscode.Position(0, 0), '// one more line\n'); });
      await until('an answer of the new server', () => lineEnds(document), ([end]) => end?.line === line + 1);
      await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor');
      await vscode.commands.executeCommand('dwell.refresh');
    },

    'leaves no promise open when a command fails': async () => {
      await vscode.commands.executeCommand('dwell.recordProcess', 4713);
      await vscode.commands.executeCommand('dwell.record', 'fail');
      await vscode.commands.executeCommand('dwell.record', 'an "open quote');
    },
  });
}

async function definition(document: vscode.TextDocument, line: number, character = 2): Promise<{ path: string; line: number } | undefined> {
  const found = await vscode.commands.executeCommand<vscode.Location[]>('vscode.executeDefinitionProvider', document.uri, new vscode.Position(line, character));
  const [first] = found;
  return first && { path: first.uri.path, line: first.range.start.line };
}

/** The texts of the two sides that are compared, before first. */
function sides(): string[] {
  const shown = vscode.window.visibleTextEditors.map(({ document }) => document).filter(({ uri }) => uri.scheme === 'dwell-run');
  return shown.sort((a, b) => Number(a.uri.fragment === 'after') - Number(b.uri.fragment === 'after')).map((document) => document.getText());
}
