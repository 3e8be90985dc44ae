// The packaged extension in the real extension host, over the real server, program and processor: a workload is recorded
// from the editor, and the line that is known to be hot must come out.
import * as assert from 'node:assert/strict';
import * as vscode from 'vscode';
import { activeListing, codeLenses, inlayHints, lineWith, runTests, until, workspaceFile } from './inHost';

const source = () => vscode.workspace.openTextDocument(workspaceFile('chase.c'));
/** Recording and symbolizing on a busy machine take their time. */
const patience = 60_000;

export function run(): Promise<void> {
  return runTests({
    'shows nothing, and nothing wrong, without a profile': async () => {
      const document = await source();
      await until('activation', () => vscode.extensions.getExtension('dwell.dwell')?.isActive, (active) => active === true, patience);
      assert.deepEqual(await inlayHints(document), []);
    },

    'records a command and marks its hot line': async () => {
      const document = await source();
      await vscode.commands.executeCommand('dwell.record', './build/chase');
      const hints = await until('hints', () => inlayHints(document), (answer) => answer.length > 0, patience);
      const hottest = hints.reduce((best, hint) => shareOf(hint.text) > shareOf(best.text) ? hint : best);
      assert.equal(hottest.line, lineWith(document, 'HOT'), JSON.stringify(hints));
      assert.match(hottest.text, /^\d+\.\d%.* CPI /);
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
      await vscode.commands.executeCommand('dwell.record', './build/divide 1');
      await until('an epoch without chase', () => inlayHints(document), (answer) => answer.length === 0, patience);
      await vscode.commands.executeCommand('dwell.server.selectEpochs', ['latest', 'latest~1']);
      await until('the merged epochs', () => inlayHints(document), (answer) => answer.length > 0, patience);
    },

    'stands a command that does not exist': async () => {
      await vscode.commands.executeCommand('dwell.record', './build/no-such-program');
    },
  });
}

function shareOf(hint: string): number {
  return Number.parseFloat(hint);
}

/** Lenses above the line where a function is defined. */
async function lensesOf(document: vscode.TextDocument, name: string): Promise<vscode.CodeLens[]> {
  const line = lineWith(document, ` *${name}(`);
  const lenses = await codeLenses(document);
  return lenses.filter((lens) => Math.abs(lens.range.start.line - line) <= 1);
}
