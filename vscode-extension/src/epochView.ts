// The Epochs view: each with when, where, how long, how many samples and what ran; several may be chosen. From here they
// are shown, merged, pinned, compared, named and removed, and others are imported.
import * as vscode from 'vscode';
import type { EpochSummary } from '@dwell/lsp-server/protocol';
import type { Dwell } from './dwell';
import { pickEpochs } from './epochPicker';
import { count, duration, epochTitle, localTime, samples, when } from './format';

const viewId = 'dwell.epochs';

export function activate(dwell: Dwell): vscode.Disposable {
  const tree = new EpochTree(dwell);
  const view = vscode.window.createTreeView<EpochSummary>(viewId, { treeDataProvider: tree, canSelectMany: true });
  const { client, profile, failures } = dwell;
  return vscode.Disposable.from(
    view, tree,
    failures.command('dwell.showEpochs', 'showing recordings', async (clicked, chosen) => {
      const epochs = rows(clicked, chosen);
      if (epochs.length > 0) await client.selectEpochs(epochs.map(({ id }) => id));
    }),
    failures.command('dwell.compareWithPinned', 'the comparison', async (clicked) => {
      const [after] = rows(clicked, undefined);
      const before = profile.baseline?.map(({ id }) => id) ?? [];
      if (after && before.length > 0) await client.compare({ before, after: [after.id] });
    }),
    failures.command('dwell.renameEpoch', 'renaming', (clicked) => rename(dwell, rows(clicked, undefined)[0])),
    failures.command('dwell.removeEpochs', 'removing', (clicked, chosen) => remove(dwell, rows(clicked, chosen))),
    failures.command('dwell.importPerf', 'the import', (path) => importPerf(dwell, path)),
  );
}

/** What VS Code gives a command of a tree: the row, and all chosen ones where it is among them. */
function rows(clicked: unknown, chosen: unknown): EpochSummary[] {
  const all: unknown[] = Array.isArray(chosen) && chosen.length > 0 ? chosen : [clicked];
  return all.filter((row) => typeof row === 'object' && row !== null && 'id' in row) as EpochSummary[];
}

class EpochTree implements vscode.TreeDataProvider<EpochSummary>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;
  private readonly subscription: vscode.Disposable;
  private shown = '';

  constructor(private readonly dwell: Dwell) {
    this.subscription = dwell.profile.onDidChange(() => { this.refresh(); });
  }

  getChildren(parent?: EpochSummary): EpochSummary[] {
    return parent ? [] : [...this.dwell.profile.epochs].reverse();
  }

  getTreeItem(epoch: EpochSummary): vscode.TreeItem {
    const { selected, baseline } = this.dwell.profile;
    const isShown = selected.some(({ id }) => id === epoch.id);
    const isPinned = baseline?.some(({ id }) => id === epoch.id) ?? false;
    const item = new vscode.TreeItem(epochTitle(epoch));
    item.id = epoch.id;
    const role = [...(isShown ? ['shown'] : []), ...(isPinned ? ['before'] : [])];
    item.description = [...role, when(epoch.start, new Date()), duration(epoch), `${count(samples(epoch))} samples`, epoch.host].join(' · ');
    item.iconPath = new vscode.ThemeIcon(isPinned ? 'pinned' : isShown ? 'eye' : epoch.end === null ? 'record' : 'history');
    item.tooltip = tooltip(epoch);
    item.contextValue = `epoch${isPinned ? ' pinned' : ''}${epoch.end === null ? ' collecting' : ''}`;
    item.accessibilityInformation = { label: `${epochTitle(epoch)}, ${item.description}` };
    item.command = { command: 'dwell.showEpochs', title: 'Show', arguments: [epoch] };
    return item;
  }

  dispose(): void {
    this.subscription.dispose();
    this.changed.dispose();
  }

  /** Draws only what changed, so that the selection stays. */
  private refresh(): void {
    const { epochs, selected, baseline } = this.dwell.profile;
    const shown = JSON.stringify([epochs, selected, baseline]);
    if (shown === this.shown) return;
    this.shown = shown;
    this.changed.fire();
  }
}

function tooltip(epoch: EpochSummary): vscode.MarkdownString {
  const text = new vscode.MarkdownString('**').appendText(epochTitle(epoch)).appendMarkdown('**  \n');
  const facts = [epoch.scope, `${localTime(epoch.start)}, ${duration(epoch)}`, `${epoch.host}, ${epoch.cpu}, by ${epoch.backend}`, `id ${epoch.id}`, ...epoch.notes];
  for (const fact of facts) text.appendText(fact).appendMarkdown('  \n');
  return text;
}

async function rename({ client, profile }: Dwell, given: EpochSummary | undefined): Promise<void> {
  const epoch = given ?? await one(profile.epochs, 'Dwell: Rename Recording', 'The recording to name');
  if (!epoch) return;
  const name = await vscode.window.showInputBox({
    title: 'Dwell: Rename Recording',
    prompt: `A name for the recording of ${localTime(epoch.start)}. Named recordings are not removed by the daemon.`,
    value: epoch.name ?? '',
    validateInput: (text) => text.trim() === '' ? 'It needs a name.' : undefined,
  });
  if (name === undefined || name.trim() === '') return;
  await client.renameEpoch(epoch.id, name.trim());
  await profile.refresh();
}

async function remove({ client, profile }: Dwell, given: EpochSummary[]): Promise<void> {
  const chosen = given.length > 0 ? given : await several(profile.epochs);
  if (chosen.length === 0) return;
  const [first] = chosen;
  const what = chosen.length === 1 && first ? `the recording "${epochTitle(first)}" of ${localTime(first.start)}` : `${chosen.length} recordings`;
  const answer = await vscode.window.showWarningMessage(`Remove ${what}?`, { modal: true, detail: 'Its samples are deleted for good.' }, 'Remove');
  if (answer !== 'Remove') return;
  await client.removeEpochs(chosen.map(({ id }) => id));
  await profile.refresh();
}

async function one(epochs: readonly EpochSummary[], title: string, placeholder: string): Promise<EpochSummary | undefined> {
  const [id] = await pickEpochs(epochs, [], title, placeholder) ?? [];
  return epochs.find((epoch) => epoch.id === id);
}

async function several(epochs: readonly EpochSummary[]): Promise<EpochSummary[]> {
  const ids = await pickEpochs(epochs, [], 'Dwell: Remove Recordings', 'What is removed for good; you are asked first') ?? [];
  return epochs.filter(({ id }) => ids.includes(id));
}

async function importPerf({ client, profile, log }: Dwell, given: unknown): Promise<void> {
  const path = typeof given === 'string' ? given : given instanceof vscode.Uri ? given.fsPath : await askFile();
  if (path === undefined) return;
  const where = { location: vscode.ProgressLocation.Notification, title: `Importing ${path}`, cancellable: true };
  const result = await vscode.window.withProgress(where, (progress, token) =>
    client.importPerf({ path }, token, (message) => { progress.report({ message }); }));
  log.info(`imported ${path} as recording ${result.epoch}`);
  await profile.refresh();
}

async function askFile(): Promise<string | undefined> {
  const files = await vscode.window.showOpenDialog({ title: 'Dwell: Import perf.data', openLabel: 'Import', filters: { 'perf.data': ['data'], 'All files': ['*'] } });
  return files?.[0]?.fsPath;
}
