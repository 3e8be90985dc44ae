// Choosing the epochs that are shown, and starting a new one.
import * as vscode from 'vscode';
import type { EpochSummary } from '@dwell/lsp-server/protocol';
import type { Dwell } from './dwell';
import { count, epochTitle, localTime, samples, when } from './format';

/** Always the newest, also of those to come. */
const latest = 'latest';

interface EpochItem extends vscode.QuickPickItem {
  selector: string;
}

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
  const chosen = await pick(items(profile.epochs), new Set(profile.selected.map((epoch) => epoch.id)));
  if (chosen && chosen.length > 0) await client.selectEpochs(chosen);
}

function items(epochs: readonly EpochSummary[]): EpochItem[] {
  const now = new Date();
  const newestFirst = [...epochs].reverse();
  return [
    { selector: latest, label: '$(sync) Latest', description: 'always the newest epoch', alwaysShow: true },
    { selector: '', label: 'Epochs', kind: vscode.QuickPickItemKind.Separator },
    ...newestFirst.map((epoch) => ({
      selector: epoch.id,
      label: epochTitle(epoch),
      description: `${when(epoch.start, now)} · ${epoch.host}${epoch.end === null ? ' · collecting' : ''}`,
      detail: [localTime(epoch.start), ...(epoch.name === null ? [] : [epoch.scope]), `${count(samples(epoch))} samples`].join(' · '),
    })),
  ];
}

/** One epoch by choosing it; several, to be merged, after the button in the title. */
function pick(choices: EpochItem[], selected: ReadonlySet<string>): Promise<string[] | undefined> {
  const input = vscode.window.createQuickPick<EpochItem>();
  const several: vscode.QuickInputButton = { iconPath: new vscode.ThemeIcon('checklist'), tooltip: 'Select several epochs to merge' };
  input.title = 'Dwell: Select Epoch';
  input.placeholder = 'The epoch that lines, lenses and views show';
  input.matchOnDescription = true;
  input.matchOnDetail = true;
  input.items = choices;
  input.buttons = [several];
  input.activeItems = choices.filter((item) => selected.has(item.selector)).slice(0, 1);
  return new Promise((resolve) => {
    input.onDidTriggerButton(() => {
      input.canSelectMany = true;
      input.buttons = [];
      input.placeholder = 'The epochs to merge';
      input.items = choices.filter((item) => item.selector !== latest && item.kind === undefined);
      input.selectedItems = input.items.filter((item) => selected.has(item.selector));
    });
    input.onDidAccept(() => {
      resolve(input.selectedItems.map((item) => item.selector));
      input.hide();
    });
    input.onDidHide(() => {
      resolve(undefined);
      input.dispose();
    });
    input.show();
  });
}
