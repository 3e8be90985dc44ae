// The packaged extension in the real extension host, over the real server, program and processor: a workload is recorded
// from the editor, and the line that is known to be hot must come out.
import * as assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import * as vscode from 'vscode';
import { activeListing, codeLenses, lineEnds, lineWith, runTests, until, workspaceFile } from './inHost';

const source = () => vscode.workspace.openTextDocument(workspaceFile('chase.c'));
/** Recording and symbolizing on a busy machine take their time. */
const patience = 60_000;

export function run(): Promise<void> {
  return runTests({
    'shows nothing, and nothing wrong, without a profile': async () => {
      const document = await source();
      await vscode.window.showTextDocument(document);
      await until('activation', () => vscode.extensions.getExtension('dwell.dwell')?.isActive, (active) => active === true, patience);
      assert.deepEqual(lineEnds(document), []);
    },

    'records a command and marks its hot line': async () => {
      const document = await source();
      await vscode.window.showTextDocument(document);
      await vscode.commands.executeCommand('dwell.record', './build/chase 8');
      const hints = await until('hints', () => lineEnds(document), (answer) => answer.length > 0, patience);
      const hottest = hints.reduce((best, hint) => shareOf(hint.text) > shareOf(best.text) ? hint : best);
      assert.equal(hottest.line, lineWith(document, 'HOT'), JSON.stringify(hints));
      assert.match(hottest.text, /^[█▏▎▍▌▋▊▉]+ \d+ % · [\d.]+ m?s/);
    },

    'opens the hot procedure\'s listing from its lens, and finds the way back': async () => {
      const document = await source();
      const [lens] = await until('the lens of chase', () => lensesOf(document, 'chase'), (answer) => answer.length > 0, patience);
      assert.ok(lens?.command);
      await vscode.commands.executeCommand(lens.command.command, ...(lens.command.arguments as unknown[]));
      const listing = await activeListing((text) => text.includes('best case'));
      const at = lineWith(listing, 'chase.c:') + 1;
      const found = await vscode.commands.executeCommand<vscode.Location[]>('vscode.executeDefinitionProvider', listing.uri, new vscode.Position(at, 0));
      assert.equal(found[0]?.uri.path, document.uri.path);
    },

    'shows the epoch chosen, and the merged ones': async () => {
      const document = await source();
      await vscode.window.showTextDocument(document);
      await vscode.commands.executeCommand('dwell.record', './build/divide 1');
      await until('an epoch without chase', () => lineEnds(document), (answer) => answer.length === 0, patience);
      await vscode.commands.executeCommand('dwell.server.selectEpochs', ['latest', 'latest~1']);
      await until('the merged epochs', () => lineEnds(document), (answer) => answer.length > 0, patience);
    },

    'records a process that was picked, until it ends': async () => {
      const document = await source();
      await vscode.window.showTextDocument(document);
      await vscode.commands.executeCommand('dwell.record', './build/divide 1');
      await until('an epoch without chase', () => lineEnds(document), (answer) => answer.length === 0, patience);
      const { pid } = spawn(workspaceFile('build/chase').fsPath, ['8'], { stdio: 'ignore' });
      await vscode.commands.executeCommand('dwell.recordProcess', pid);
      await until('its hot line', () => lineEnds(document), (answer) => answer.length > 0, patience);
    },

    'leads from a register to who wrote it, and from a branch to where it goes': async () => {
      await vscode.commands.executeCommand('dwell.showListing', 'chase');
      const listing = await activeListing((text) => text.includes('best case'));
      const branch = lineMatching(listing, /^[0-9a-f]+ +j[a-z]+ 0x([0-9a-f]+)/);
      const [, target] = /j[a-z]+ 0x([0-9a-f]+)/.exec(listing.lineAt(branch).text) ?? [];
      const goal = await definition(listing, branch, listing.lineAt(branch).text.indexOf('0x') + 3);
      assert.ok(target && listing.lineAt(goal[0]?.range.start.line ?? 0).text.startsWith(target), JSON.stringify(goal));
      const load = lineMatching(listing, /mov r[a-z0-9]+, qword ptr \[r[a-z0-9]+\]/);
      const [, register] = /\[(r[a-z0-9]+)\]/.exec(listing.lineAt(load).text) ?? [];
      const writers = await definition(listing, load, listing.lineAt(load).text.indexOf('[') + 2);
      assert.ok(writers.length > 0);
      for (const { range } of writers) assert.match(listing.lineAt(range.start.line).text, new RegExp(`^[0-9a-f]+ +[a-z]+ ${register ?? '?'},`));
    },

    'says that an edited line was measured before the edit, until the edit is undone': async () => {
      const document = await source();
      const editor = await vscode.window.showTextDocument(document);
      const line = lineWith(document, 'HOT');
      const ofLine = () => lineEnds(document).filter((hint) => hint.line === line).map(({ text }) => text).join();
      await until('its cost', ofLine, (text) => text.includes(' % · '), patience);
      await editor.edit((edit) => { edit.insert(new vscode.Position(line, 2), '/* edited */ '); });
      await until('the word', ofLine, (text) => /^edited · was \d/.test(text), patience);
      await vscode.commands.executeCommand('undo');
      await until('its cost again', ofLine, (text) => text.includes(' % · '), patience);
      await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor');
    },

    'finds the sources of a program built elsewhere, in a folder with a database of its own': async () => {
      const app = await vscode.workspace.openTextDocument(workspaceFile('chase.c', 1));
      await vscode.window.showTextDocument(app);
      await vscode.commands.executeCommand('dwell.record', './chase 8');
      const hints = await until('hints', () => lineEnds(app), (answer) => answer.length > 0, patience);
      const hottest = hints.reduce((best, hint) => shareOf(hint.text) > shareOf(best.text) ? hint : best);
      assert.equal(hottest.line, lineWith(app, 'HOT'), JSON.stringify(hints));
      const hot = lineWith(app, 'HOT');
      await vscode.window.showTextDocument(app, { selection: new vscode.Range(hot, 0, hot, 0) });
      await vscode.commands.executeCommand('dwell.showListing');
      const listing = await activeListing((text) => text.includes('best case'));
      const [at] = await definition(listing, lineWith(listing, 'chase.c:') + 1, 2);
      assert.equal(at?.uri.path, app.uri.path);
      // The other folder's database has none of it.
      const other = await source();
      await vscode.window.showTextDocument(other);
      await vscode.commands.executeCommand('dwell.record', './build/divide 1');
      await until('the other epoch, in the other folder alone', () => lineEnds(other), (answer) => answer.length === 0, patience);
      await vscode.window.showTextDocument(app);
      await until('its own', () => lineEnds(app), (answer) => answer.length > 0, patience);
    },

    'says that a program was rebuilt and not sampled since': async () => {
      const app = await vscode.workspace.openTextDocument(workspaceFile('chase.c', 1));
      await vscode.window.showTextDocument(app);
      const folder = workspaceFile('.', 1).fsPath;
      execFileSync('gcc', ['-O1', '-g', `-ffile-prefix-map=${folder}=/build/app`, '-o', 'chase', 'chase.c'], { cwd: folder });
      const titles = async () => (await codeLenses(app)).map((lens) => lens.command?.title ?? '');
      await until('the word', titles, (all) => all.some((title) => title === 'Dwell: chase was rebuilt and not sampled since: numbers are of the earlier build'), patience);
      await vscode.commands.executeCommand('dwell.record', './chase 8');
      await until('a profile of the new build', titles, (all) => all.length > 0 && !all.some((title) => title.includes('rebuilt')), patience);
    },

    'counts the calls of the function at the cursor, until it is stopped': async () => {
      const folder = workspaceFile('.', 1).fsPath;
      await vscode.workspace.fs.writeFile(workspaceFile('calls.c', 1), Buffer.from(callsSource));
      execFileSync('gcc', ['-O1', '-g', '-o', 'calls', 'calls.c'], { cwd: folder });
      const program = spawn(workspaceFile('calls', 1).fsPath, { stdio: 'ignore' });
      try {
        const document = await vscode.workspace.openTextDocument(workspaceFile('calls.c', 1));
        const editor = await vscode.window.showTextDocument(document);
        const line = lineWith(document, 'usleep(100)');
        editor.selection = new vscode.Selection(line, 4, line, 4);
        await vscode.commands.executeCommand('dwell.instrumentFunction', program.pid);
        const titles = async () => (await codeLenses(document)).filter(({ range }) => range.start.line === line - 1).map((lens) => lens.command?.title ?? '');
        const counting = await until('the numbers', titles, (all) => all.length > 1, patience);
        assert.match(counting[0] ?? '', /^[\d.]+ k? ?calls\/s · mean [\d.]+ [µm]s/);
        assert.equal(counting[1], 'Stop counting');
        await vscode.commands.executeCommand('dwell.stopCounting');
        await until('the end', titles, (all) => /^[\d,]+ calls in/.test(all[0] ?? ''), patience);
        await vscode.commands.executeCommand('dwell.stopCounting');
        await until('nothing', titles, (all) => all.length === 0, patience);
        assert.equal(program.exitCode, null);
      } finally {
        program.kill('SIGKILL');
      }
    },

    'stands a command that does not exist': async () => {
      await vscode.commands.executeCommand('dwell.record', './build/no-such-program');
    },
  });
}

const callsSource = `#include <unistd.h>
__attribute__((noinline)) int work(int n) {
  usleep(100);
  return n + 1;
}
int main(void) {
  for (int n = 0;; n++)
    n = work(n);
}
`;

function lineMatching(document: vscode.TextDocument, wanted: RegExp): number {
  const line = document.getText().split('\n').findIndex((text) => wanted.test(text));
  if (line < 0) throw new Error(`no line like ${wanted.source} in\n${document.getText()}`);
  return line;
}

function definition(document: vscode.TextDocument, line: number, character: number): Thenable<vscode.Location[]> {
  return vscode.commands.executeCommand<vscode.Location[]>('vscode.executeDefinitionProvider', document.uri, new vscode.Position(line, character));
}

function shareOf(hint: string): number {
  return Number.parseFloat(/[\d.]+(?= %)/.exec(hint)?.[0] ?? '0');
}

/** Lenses above the line where a function is defined. */
async function lensesOf(document: vscode.TextDocument, name: string): Promise<vscode.CodeLens[]> {
  const line = lineWith(document, ` *${name}(`);
  const lenses = await codeLenses(document);
  return lenses.filter((lens) => Math.abs(lens.range.start.line - line) <= 1);
}
