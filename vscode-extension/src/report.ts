// The recording that is shown as a page of its own, to send to others.
import { basename } from 'node:path';
import * as vscode from 'vscode';
import type { Dwell } from './dwell';

export function activate(dwell: Dwell): vscode.Disposable {
  return vscode.Disposable.from(
    dwell.failures.command('dwell.exportReport', 'the report', (path) => exportReport(dwell, path)),
    dwell.failures.command('dwell.restartServer', 'restarting the server', () => dwell.client.restart()),
  );
}

async function exportReport({ client }: Dwell, given: unknown): Promise<void> {
  const folder = client.folders[0]?.uri;
  const offered = folder && vscode.Uri.joinPath(folder, 'dwell-report.html');
  const target = typeof given === 'string' ? vscode.Uri.file(given) : await vscode.window.showSaveDialog({ ...(offered ? { defaultUri: offered } : {}), filters: { HTML: ['html'] }, title: 'Dwell: Export HTML Report' });
  if (!target) return;
  await vscode.window.withProgress({ location: vscode.ProgressLocation.Notification, title: `Writing ${basename(target.fsPath)}`, cancellable: true }, (progress, token) =>
    client.report(target.fsPath, token, (message) => { progress.report({ message }); }));
  // Not awaited: it stays until the user answers it.
  void vscode.window.showInformationMessage(`Dwell: wrote ${target.fsPath}`, 'Open in Browser').then((answer) => answer && vscode.env.openExternal(target));
}
