// Picks a process that runs, most CPU time first.
import * as vscode from 'vscode';
import type { Dwell } from './dwell';

/** `undefined`: none was picked. */
export async function pickProcess({ client }: Dwell, title: string, placeHolder: string): Promise<{ pid: number; name: string } | undefined> {
  const { processes } = await client.processes();
  const items = processes.map(({ name, pid, user, cpuSeconds, command }) => ({
    label: name, description: `${pid} · ${user} · ${cpuSeconds.toFixed(1)} s of CPU time`, detail: command, pid, name,
  }));
  return vscode.window.showQuickPick(items, { title, placeHolder, matchOnDescription: true, matchOnDetail: true });
}
