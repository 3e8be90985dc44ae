// What the tests that run inside VS Code's extension host share: a runner whose results the outside reads from the log.
import * as vscode from 'vscode';
import type { Api } from '../src/lines';

/** Begins each line of the log that is ours; the rest is JSON: `{name}` or `{name, error}`. */
export const mark = '[dwell-test] ';

/** Runs all tests in order, whatever fails before; each one's outcome is logged. */
export async function runTests(tests: Record<string, () => Promise<void>>): Promise<void> {
  for (const [name, test] of Object.entries(tests)) {
    const error = await outcome(test);
    console.log(mark + JSON.stringify(error === undefined ? { name } : { name, error }));
  }
}

/** A test that waits for ever says so, and the others run. */
const testMax_ms = 150_000;

function tooLong(): Promise<never> {
  return new Promise((_, reject) => setTimeout(() => { reject(new Error('it does not end')); }, testMax_ms).unref());
}

async function outcome(test: () => Promise<void>): Promise<string | undefined> {
  try {
    await Promise.race([test(), tooLong()]);
    await vscode.commands.executeCommand('workbench.action.closeAllEditors');
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.stack ?? error.message : String(error);
  }
}

/** Asks until the answer is good; says what it waited for. */
export async function until<Answer>(
  what: string, ask: () => Answer | PromiseLike<Answer>, good: (answer: Answer) => boolean, ms = 20_000,
): Promise<Answer> {
  const end = Date.now() + ms;
  for (;;) {
    const answer = await ask();
    if (good(answer)) return answer;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}; last: ${JSON.stringify(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export function workspaceFile(name: string, root = 0): vscode.Uri {
  const folder = vscode.workspace.workspaceFolders?.[root];
  if (!folder) throw new Error('no workspace folder');
  return vscode.Uri.joinPath(folder.uri, name);
}

/** Index of the first line with `text`. */
export function lineWith(document: vscode.TextDocument, text: string): number {
  const line = document.getText().split('\n').findIndex((each) => each.includes(text));
  if (line < 0) throw new Error(`no line with ${text} in ${document.uri.path}`);
  return line;
}

/** What the extension has drawn at the ends of a document's lines; nothing unless an editor shows it. */
export function lineEnds(document: vscode.TextDocument): { line: number; text: string }[] {
  const api = vscode.extensions.getExtension<Api>('dwell.dwell')?.exports;
  return api?.lineEnds(document.uri) ?? [];
}

/** How many hints the server offers for a document. */
export async function hintCount(document: vscode.TextDocument): Promise<number> {
  const whole = new vscode.Range(0, 0, document.lineCount, 0);
  return (await vscode.commands.executeCommand<vscode.InlayHint[]>('vscode.executeInlayHintProvider', document.uri, whole)).length;
}

/** Lenses with their commands; more than VS Code's default of resolving none. */
export function codeLenses(document: vscode.TextDocument): Thenable<vscode.CodeLens[]> {
  return vscode.commands.executeCommand<vscode.CodeLens[]>('vscode.executeCodeLensProvider', document.uri, 100);
}

/** The listing that the active editor shows, once its text is good. */
export function activeListing(good: (text: string) => boolean): Promise<vscode.TextDocument> {
  const active = () => vscode.window.activeTextEditor?.document;
  return until('a listing', () => listingText(active()), good).then(() => {
    const document = active();
    if (!document) throw new Error('the listing was closed');
    return document;
  });
}

function listingText(document: vscode.TextDocument | undefined): string {
  return document?.uri.scheme === 'dwell' ? document.getText() : '';
}
