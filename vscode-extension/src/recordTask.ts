// Recording in a terminal, as a task of type `dwell`: the command can be talked to, its output stays, and problem matchers see it.
// Whoever started such a task, what it recorded is shown when it ends.
import { readFile, rm } from 'node:fs/promises';
import * as vscode from 'vscode';
import type { Dwell } from './dwell';
import { splitCommandLine } from './commandLine';

const type = 'dwell';

/** Files in which recordings that were asked for will say what they are. */
const reports = new Set<string>();

/** What is recorded: what our commands ask for, and what stands in tasks.json. */
export interface Recorded {
  /** Words, or a line for a shell. */
  command: string[] | string;
  cwd?: string;
  env?: Record<string, string>;
  /** The recording's name. */
  recording?: string;
}

type RecordDefinition = Recorded & vscode.TaskDefinition;

export function activate(dwell: Dwell): vscode.Disposable {
  let running = 0;
  const tell = (more: number): void => {
    running += more;
    void vscode.commands.executeCommand('setContext', 'dwell.recording', running > 0);
  };
  const isOurs = ({ task }: vscode.TaskExecution): boolean => task.definition.type === type;
  return vscode.Disposable.from(
    vscode.tasks.registerTaskProvider(type, {
      provideTasks: () => [],
      resolveTask: async (task) => {
        const { definition } = task;
        if (!isRecordDefinition(definition)) return undefined;
        const resolved = await taskOf(dwell, definition, task.name, task.scope as vscode.WorkspaceFolder | undefined);
        resolved.problemMatchers = task.problemMatchers;
        return resolved;
      },
    }),
    vscode.tasks.onDidStartTask(({ execution }) => { if (isOurs(execution)) tell(1); }),
    vscode.tasks.onDidEndTask(({ execution }) => {
      if (!isOurs(execution)) return;
      tell(-1);
      void dwell.failures.guard('showing what was recorded', () => showRecorded(dwell, execution.task.name));
    }),
  );
}

/** Starts a recording in a terminal. */
export async function recordInTerminal(dwell: Dwell, recorded: Recorded, name: string, folder?: vscode.WorkspaceFolder): Promise<void> {
  await vscode.tasks.executeTask(await taskOf(dwell, { ...recorded, type }, name, folder));
}

async function taskOf(dwell: Dwell, definition: RecordDefinition, name: string, folder: vscode.WorkspaceFolder | undefined): Promise<vscode.Task> {
  const { command, cwd, env, recording } = definition;
  const words = typeof command === 'string' ? splitCommandLine(command) : command;
  if (!words) throw new Error(`this is no command: ${String(command)}`);
  const { program, args, report } = await dwell.client.recordCommandLine({ command: words, ...(recording === undefined ? {} : { name: recording }) });
  reports.add(report);
  const execution = new vscode.ProcessExecution(program, args, { ...(cwd === undefined ? {} : { cwd }), ...(env === undefined ? {} : { env }) });
  const task = new vscode.Task(definition, folder ?? vscode.TaskScope.Workspace, name, 'Dwell', execution);
  task.presentationOptions = { reveal: vscode.TaskRevealKind.Always, showReuseMessage: false };
  return task;
}

/** Shows what a task recorded that just ended, if anything. Which of the reports is its own VS Code does not always say. */
async function showRecorded({ client, profile, log }: Dwell, name: string): Promise<void> {
  for (const report of reports) {
    const told = await readFile(report, 'utf8').catch(() => '');
    if (told === '' || !reports.delete(report)) continue;
    await rm(report, { force: true });
    const { epoch } = JSON.parse(told) as { epoch: string };
    log.info(`recorded ${name} as recording ${epoch}`);
    await client.showRecorded(epoch);
    await profile.refresh();
  }
}

/** Runs a task that must come first, such as a build, to its end. One that stays in the background is not waited for. */
export async function runFirst(name: string): Promise<void> {
  const tasks = await vscode.tasks.fetchTasks();
  const isDefaultBuild = ({ group }: vscode.Task): boolean => group?.id === vscode.TaskGroup.Build.id && group.isDefault === true;
  const isNamed = (task: vscode.Task): boolean => task.name === name || `${task.source}: ${task.name}` === name;
  const task = tasks.find(name === '${defaultBuildTask}' ? isDefaultBuild : isNamed);
  if (!task) throw new Error(`there is no task "${name}", which the launch configuration wants first`);
  if (task.isBackground) {
    await vscode.tasks.executeTask(task);
    return;
  }
  const status = await statusOf(task);
  if (status !== 0) throw new Error(`the task "${name}" ended with ${status === undefined ? 'no status' : `status ${status}`}`);
}

async function statusOf(task: vscode.Task): Promise<number | undefined> {
  const statuses = new Map<vscode.TaskExecution, number | undefined>();
  const ended = new Set<vscode.TaskExecution>();
  const heard = new vscode.EventEmitter<void>();
  const subscriptions = vscode.Disposable.from(
    heard,
    vscode.tasks.onDidEndTaskProcess(({ execution, exitCode }) => { statuses.set(execution, exitCode); }),
    vscode.tasks.onDidEndTask(({ execution }) => { ended.add(execution); heard.fire(); }),
  );
  try {
    const execution = await vscode.tasks.executeTask(task);
    // It may have ended before its execution is known here.
    while (!ended.has(execution)) await new Promise<void>((resolve) => { const once = heard.event(() => { once.dispose(); resolve(); }); });
    return statuses.get(execution);
  } finally {
    subscriptions.dispose();
  }
}

function isRecordDefinition(definition: vscode.TaskDefinition): definition is RecordDefinition {
  const command: unknown = definition.command;
  return typeof command === 'string' || (Array.isArray(command) && command.every((word) => typeof word === 'string'));
}
