// Which lines end with what they cost: the switch.
import * as vscode from 'vscode';
import type { HintLevel } from '@dwell/lsp-server/protocol';
import type { Dwell } from './dwell';

const levels: Record<HintLevel, { label: string; detail: string }> = {
  off: { label: 'Off', detail: 'No line has a hint.' },
  hot: { label: 'Hot lines', detail: 'Lines with at least dwell.hotPercent of the time.' },
  all: { label: 'All lines', detail: 'Every line with samples.' },
};

export function activate({ failures }: Dwell): vscode.Disposable {
  return failures.command('dwell.setHints', 'line hints', async (level) => {
    const chosen = isLevel(level) ? level : await ask();
    if (chosen === undefined) return;
    await vscode.workspace.getConfiguration('dwell', place()).update('hints', chosen, target());
  });
}

/** A keybinding may name the level as the command's argument. */
function isLevel(value: unknown): value is HintLevel {
  return typeof value === 'string' && value in levels;
}

async function ask(): Promise<HintLevel | undefined> {
  const current = vscode.workspace.getConfiguration('dwell', place()).get('hints', 'hot');
  const items = (Object.keys(levels) as HintLevel[]).map((level) => ({
    ...levels[level], level, description: level === current ? 'current' : '',
  }));
  const pick = await vscode.window.showQuickPick(items, { title: 'Dwell: Line Hints', placeHolder: 'Which lines end with their cost?' });
  return pick?.level;
}

/** What one works on: folders may have settings of their own. */
function place(): vscode.Uri | undefined {
  return vscode.window.activeTextEditor?.document.uri ?? vscode.workspace.workspaceFolders?.[0]?.uri;
}

/** Where the setting already stands, so that the change is seen; else the user's settings. */
function target(): vscode.ConfigurationTarget {
  const stands = vscode.workspace.getConfiguration('dwell', place()).inspect('hints');
  if (stands?.workspaceFolderValue !== undefined) return vscode.ConfigurationTarget.WorkspaceFolder;
  return stands?.workspaceValue === undefined ? vscode.ConfigurationTarget.Global : vscode.ConfigurationTarget.Workspace;
}
