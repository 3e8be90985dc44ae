// Choosing the epochs that are shown, and starting a new one.
import * as vscode from 'vscode';
import type { Dwell } from './dwell';
import { latestItems, pickEpochs } from './epochPicker';

export function activate(dwell: Dwell): vscode.Disposable {
  const { client, profile, failures } = dwell;
  return vscode.Disposable.from(
    failures.command('dwell.selectEpoch', 'selecting a recording', () => selectEpoch(dwell)),
    failures.command('dwell.newEpoch', 'starting a recording', async () => {
      const name = await vscode.window.showInputBox({ title: 'Dwell: Start a New Recording', prompt: 'A name for it, or nothing. What the daemon collects from now on goes there.' });
      if (name === undefined) return;
      await client.newEpoch(name.trim() ? { name: name.trim() } : {});
      await profile.refresh();
    }),
    failures.command('dwell.refresh', 'refreshing', async () => {
      await client.start();
      await profile.refresh();
    }),
  );
}

async function selectEpoch({ client, profile }: Dwell): Promise<void> {
  await profile.refresh();
  if (profile.epochs.length === 0) {
    void vscode.window.showInformationMessage('Dwell: there are no recordings yet. "Dwell: Record a Command" makes one.');
    return;
  }
  const shown = profile.selected.map((epoch) => epoch.id);
  const chosen = await pickEpochs(profile.epochs, shown, 'Dwell: Select Recording', 'The recording that lines, lenses and views show', latestItems);
  if (chosen) await client.selectEpochs(chosen);
}
