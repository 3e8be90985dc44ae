// Choosing epochs from a list: when, host, how long, how many samples, what ran. One by choosing it; several, to be
// merged, after the button in the title.
import * as vscode from 'vscode';
import type { EpochSummary } from '@dwell/lsp-server/protocol';
import { count, duration, epochTitle, localTime, samples, when } from './format';

/** Always the newest, also of those to come. */
export const latest = 'latest';

interface EpochItem extends vscode.QuickPickItem {
  selector: string;
}

/** Ids of those chosen, at least one; `undefined`: none. `current`: ids of those that are chosen now. */
export async function pickEpochs(
  epochs: readonly EpochSummary[], current: readonly string[], title: string, placeholder: string, first: EpochItem[] = [],
): Promise<string[] | undefined> {
  const chosen = await pick([...first, ...epochItems(epochs)], new Set(current), title, placeholder);
  return chosen && chosen.length > 0 ? chosen : undefined;
}

export const latestItems: EpochItem[] = [
  { selector: latest, label: '$(sync) Latest', description: 'always the newest recording', alwaysShow: true },
  { selector: '', label: 'Recordings', kind: vscode.QuickPickItemKind.Separator },
];

function epochItems(epochs: readonly EpochSummary[]): EpochItem[] {
  const now = new Date();
  return [...epochs].reverse().map((epoch) => ({
    selector: epoch.id,
    label: epochTitle(epoch),
    description: `${when(epoch.start, now)} · ${epoch.host} · ${duration(epoch)}`,
    detail: [localTime(epoch.start), ...(epoch.name === null ? [] : [epoch.scope]), `${count(samples(epoch))} samples`].join(' · '),
  }));
}

function pick(choices: EpochItem[], selected: ReadonlySet<string>, title: string, placeholder: string): Promise<string[] | undefined> {
  const input = vscode.window.createQuickPick<EpochItem>();
  const several: vscode.QuickInputButton = { iconPath: new vscode.ThemeIcon('checklist'), tooltip: 'Select several recordings to merge' };
  input.title = title;
  input.placeholder = placeholder;
  input.matchOnDescription = true;
  input.matchOnDetail = true;
  input.items = choices;
  input.buttons = [several];
  input.activeItems = choices.filter((item) => selected.has(item.selector)).slice(0, 1);
  return new Promise((resolve) => {
    input.onDidTriggerButton(() => {
      input.canSelectMany = true;
      input.buttons = [];
      input.placeholder = 'The recordings to merge';
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
