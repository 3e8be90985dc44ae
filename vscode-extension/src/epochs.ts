// Choosing the epochs that are shown, and starting a new one.
import * as vscode from 'vscode';
import type { Dwell } from './dwell';
import { latestItems, pickEpochs } from './epochPicker';

export function activate(dwell: Dwell): vscode.Disposable {
  const { client, profile, failures } = dwell;
  return vscode.Disposable.from(
    failures.command('dwell.selectEpoch', 'selecting an epoch', () => selectEpoch(dwell)),
    failures.command('dwell.newEpoch', 'starting an epoch', async () => {
      const name = await vscode.window.showInputBox({ title: 'Dwell: Start a New Epoch', prompt: 'A name for it, or nothing. What the daemon collects from now on goes there.' });
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
    void vscode.window.showInformationMessage('Dwell: there are no epochs yet. "Dwell: Record a Command" makes one.');
    return;
  }
  const shown = profile.selected.map((epoch) => epoch.id);
  const chosen = await pickEpochs(profile.epochs, shown, 'Dwell: Select Epoch', 'The epoch that lines, lenses and views show', latestItems);
  if (chosen) await client.selectEpochs(chosen);
}
