// Recording: a command or the launch target, in a terminal; or a process that runs. Runs a program, so it wants a trusted workspace.
import { readFile } from 'node:fs/promises';
import { parse } from 'dotenv';
import * as vscode from 'vscode';
import type { RecordParams, RecordResult } from '@dwell/lsp-server/protocol';
import { splitCommandLine } from './commandLine';
import type { Dwell } from './dwell';
import { launchTarget, type LaunchTarget } from './launchTarget';
import { pickProcess } from './pickProcess';
import { recordInTerminal, runFirst } from './recordTask';

/** The command line that is offered next time. */
const lastCommandKey = 'dwell.lastCommand';

export function activate(dwell: Dwell): vscode.Disposable {
  return vscode.Disposable.from(
    dwell.failures.command('dwell.record', 'recording', (line) => recordCommand(dwell, line)),
    dwell.failures.command('dwell.recordTarget', 'recording', () => recordTarget(dwell)),
    dwell.failures.command('dwell.recordProcess', 'recording', (pid) => recordProcess(dwell, pid)),
  );
}

function demandTrust(): void {
  if (!vscode.workspace.isTrusted) throw new Error('it runs a program, so this workspace must be trusted first');
}

async function recordCommand(dwell: Dwell, line: unknown): Promise<void> {
  demandTrust();
  const commandLine = typeof line === 'string' ? line : await ask(dwell.memory);
  if (commandLine === undefined) return;
  if (!splitCommandLine(commandLine)) throw new Error(`this is no command: ${commandLine}`);
  const chosen = await workingFolder(dwell);
  if (chosen === undefined) return;
  await dwell.memory.update(lastCommandKey, commandLine);
  const { folder } = chosen;
  await recordInTerminal(dwell, { command: commandLine, ...(folder && { cwd: folder.uri.fsPath }) }, commandLine, folder);
}

/** Records, and says in the log what came of it. */
async function recorded(dwell: Dwell, title: string, params: RecordParams): Promise<void> {
  const result = await recordWithProgress(dwell, title, params);
  dwell.log.info(`recorded ${title} as recording ${result.epoch}`);
  if (result.output.trim()) dwell.log.info(result.output.trimEnd());
  await dwell.profile.refresh();
}

/** What the workspace would launch, and of which of its folders. */
interface Target extends LaunchTarget {
  folder: vscode.WorkspaceFolder | undefined;
}

/** What the workspace would launch: its launch configurations with a program, and CMake's target. */
async function recordTarget(dwell: Dwell): Promise<void> {
  demandTrust();
  const targets = await launchTargets();
  if (targets.length === 0) throw new Error('no launch configuration names a program; "Dwell: Record a Command…" takes any');
  const [only] = targets;
  const target = targets.length === 1 ? only : await vscode.window.showQuickPick(targets, { title: 'Dwell: Record the Launch Target', placeHolder: 'What to run and sample' });
  if (!target) return;
  if (target.preLaunchTask !== undefined) await runFirst(target.preLaunchTask);
  const { command, cwd, folder } = target;
  const ofFile = target.envFile === undefined ? {} : parse(await readFile(target.envFile, 'utf8'));
  await recordInTerminal(dwell, { command, env: { ...ofFile, ...target.env }, ...(cwd === undefined ? {} : { cwd }) }, target.label, folder);
}

async function launchTargets(): Promise<Target[]> {
  const folders = vscode.workspace.workspaceFolders ?? [];
  const targets: Target[] = folders.flatMap((folder) => {
    const configurations = vscode.workspace.getConfiguration('launch', folder.uri).get<unknown[]>('configurations', []);
    return configurations.flatMap((configuration) => {
      const target = launchTarget(configuration, folder.uri.fsPath);
      return target ? [{ ...target, folder }] : [];
    });
  });
  const hasCMake = (await vscode.commands.getCommands(true)).includes('cmake.launchTargetPath');
  const path: unknown = hasCMake ? await vscode.commands.executeCommand('cmake.launchTargetPath') : undefined;
  if (typeof path === 'string' && path !== '') {
    const [folder] = folders;
    targets.unshift({ label: path, description: 'CMake', command: [path], cwd: folder?.uri.fsPath, env: {}, envFile: undefined, preLaunchTask: undefined, folder });
  }
  return targets;
}

/** Processes that run, most CPU time first; until they end, or one has seen enough. */
async function recordProcess(dwell: Dwell, given: unknown): Promise<void> {
  demandTrust();
  if (typeof given === 'number') return recorded(dwell, `process ${given}`, { pids: [given] });
  const chosen = await pickProcess(dwell, 'Dwell: Record a Process', 'Sampled until it ends, or until Cancel: what there is by then is kept');
  if (chosen) await recorded(dwell, `${chosen.name} (${chosen.pid})`, { pids: [chosen.pid] });
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

/** The one folder whose profile is shown, that of the file one works on, or the one that is picked; `folder: undefined` without any;
 *  `undefined` if none is picked. */
async function workingFolder({ client }: Dwell): Promise<{ folder: vscode.WorkspaceFolder | undefined } | undefined> {
  const { folders } = client;
  if (folders.length < 2) return { folder: folders[0] };
  const active = vscode.window.activeTextEditor?.document.uri;
  const own = active && vscode.workspace.getWorkspaceFolder(active);
  const folder = own ?? await vscode.window.showWorkspaceFolderPick({ placeHolder: 'The folder to run the command in' });
  return folder && { folder };
}

async function recordWithProgress(
  { client, profile }: Dwell, title: string, params: RecordParams,
): Promise<RecordResult> {
  await vscode.commands.executeCommand('setContext', 'dwell.recording', true);
  try {
    const where = { location: vscode.ProgressLocation.Notification, title: `Recording ${title}`, cancellable: true };
    return await vscode.window.withProgress(where, (progress, token) =>
      client.record(params, token, (message) => { progress.report({ message }); }));
  } finally {
    // A process that was cancelled left an epoch.
    if (params.pids) await profile.refresh();
    await vscode.commands.executeCommand('setContext', 'dwell.recording', false);
  }
}
