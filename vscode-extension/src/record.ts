// Recording a command as a new epoch. Runs a program, so it wants a trusted workspace.
import * as vscode from 'vscode';
import type { RecordResult } from '@dwell/lsp-server/protocol';
import { splitCommandLine } from './commandLine';
import type { Dwell } from './dwell';

/** The command line that is offered next time. */
const lastCommandKey = 'dwell.lastCommand';

export function activate(dwell: Dwell): vscode.Disposable {
  return dwell.failures.command('dwell.record', 'recording', async (line) => {
    if (!vscode.workspace.isTrusted) throw new Error('it runs a program, so this workspace must be trusted first');
    const commandLine = typeof line === 'string' ? line : await ask(dwell.memory);
    if (commandLine === undefined) return;
    const command = splitCommandLine(commandLine);
    if (!command) throw new Error(`this is no command: ${commandLine}`);
    const folder = await workingFolder();
    if (folder === undefined) return;
    await dwell.memory.update(lastCommandKey, commandLine);
    const result = await recordWithProgress(dwell, commandLine, command, folder.path);
    dwell.log.info(`recorded ${commandLine} as epoch ${result.epoch}`);
    if (result.output.trim()) dwell.log.info(result.output.trimEnd());
    await dwell.profile.refresh();
  });
}

async function ask(memory: vscode.Memento): Promise<string | undefined> {
  const line = await vscode.window.showInputBox({
    title: 'Dwell: Record a Command',
    prompt: 'The command to run and sample, in the workspace folder.',
    placeHolder: './build/program --with arguments',
    value: memory.get(lastCommandKey, ''),
    ignoreFocusOut: true,
    validateInput: (text) => text.trim() && !splitCommandLine(text) ? 'A quote is not closed.' : undefined,
  });
  return line?.trim() ? line : undefined;
}

/** The one workspace folder, or the one that is picked; `path: undefined` without any; `undefined` if none is picked. */
async function workingFolder(): Promise<{ path: string | undefined } | undefined> {
  const folders = vscode.workspace.workspaceFolders ?? [];
  if (folders.length < 2) return { path: folders[0]?.uri.fsPath };
  const folder = await vscode.window.showWorkspaceFolderPick({ placeHolder: 'The folder to run the command in' });
  return folder && { path: folder.uri.fsPath };
}

async function recordWithProgress(
  { client }: Dwell, title: string, command: string[], cwd: string | undefined,
): Promise<RecordResult> {
  await vscode.commands.executeCommand('setContext', 'dwell.recording', true);
  try {
    const where = { location: vscode.ProgressLocation.Notification, title: `Recording ${title}`, cancellable: true };
    return await vscode.window.withProgress(where, (progress, token) =>
      client.record({ command, ...(cwd ? { cwd } : {}) }, token, (message) => { progress.report({ message }); }));
  } finally {
    await vscode.commands.executeCommand('setContext', 'dwell.recording', false);
  }
}
