// The Comparison view: what changed from the pinned epochs to those that are shown, by procedure and by line. Says
// whether something got slower or ran more often; what may be chance stands apart and grey.
import * as vscode from 'vscode';
import type { DiffChange, DiffLine, DiffProcedure, DiffResult, EpochSummary, Verdict } from '@dwell/lsp-server/protocol';
import type { Dwell } from './dwell';
import { pickEpochs } from './epochPicker';
import { isCancellation, reason } from './failures';
import { count, epochTitle, magnitude } from './format';
import { Newest } from './newest';

const viewId = 'dwell.comparison';
/** Rows of each kind. */
const rowsMax = 500;
/** Marks rows whose change may be chance, for the decoration that greys them. */
const noiseScheme = 'dwell-noise';

type Group = 'procedures' | 'lines' | 'noise';
const groupNames: Record<Group, string> = { procedures: 'Functions', lines: 'Lines', noise: 'No Change Beyond Noise' };

type Row = { group: Group } | { procedure: DiffProcedure } | { line: DiffLine };

export function activate(dwell: Dwell): vscode.Disposable {
  const tree = new ComparisonTree(dwell);
  const view = vscode.window.createTreeView<Row>(viewId, { treeDataProvider: tree });
  const { failures, client, profile } = dwell;
  return vscode.Disposable.from(
    view, tree,
    vscode.window.registerFileDecorationProvider({
      provideFileDecoration: (uri) => uri.scheme === noiseScheme ? new vscode.FileDecoration(undefined, undefined, new vscode.ThemeColor('disabledForeground')) : undefined,
    }),
    tree.onDidChangeTreeData(() => { view.description = tree.title; view.message = tree.message ?? ''; }),
    failures.command('dwell.compareEpochs', 'the comparison', (before, after) => compareEpochs(dwell, idOf(before), idOf(after))),
    failures.command('dwell.pinBefore', 'pinning', async (epoch) => {
      const before = idOf(epoch) ?? await pickEpochs(profile.epochs, [], 'Dwell: Select for Compare', 'What is shown is compared with it');
      if (before) await client.compare({ before: [before].flat() });
    }),
    failures.command('dwell.endComparison', 'the comparison', () => client.compare(null)),
    failures.command('dwell.openChange', 'the change', (row) => openChange(dwell, row as Row)),
  );
}

class ComparisonTree implements vscode.TreeDataProvider<Row>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;
  private readonly subscription: vscode.Disposable;
  private answer: DiffResult | undefined;
  /** With what may be chance; asked for when its group is opened. */
  private all: DiffResult | undefined;
  private failure: string | undefined;
  private readonly newest = new Newest();

  constructor(private readonly dwell: Dwell) {
    this.subscription = dwell.profile.onDidChange(() => { void this.load(); });
  }

  /** Beside the view's name: `before → after`. */
  get title(): string {
    const { baseline, selected } = this.dwell.profile;
    return baseline && this.answer ? `${names(baseline)} → ${names(selected)}` : '';
  }

  /** Above the rows: the whole, and what one must know. */
  get message(): string | undefined {
    if (this.failure !== undefined) return this.failure;
    if (!this.answer) return undefined;
    const { total, notes } = this.answer;
    const doubt = total.significant ? falseCalls(total) : 'may be chance';
    const whole = total.ratio === null ? '' : `In all ×${total.ratio.toFixed(3)} (${doubt}).`;
    const single = notes.some((note) => note.startsWith('one run')) ? 'One run a side: only the noise of sampling is filtered.' : '';
    return [whole, single, ...notes.filter((note) => note.startsWith('unlike'))].filter((part) => part !== '').join(' ');
  }

  async getChildren(parent?: Row): Promise<Row[]> {
    // VS Code forgets a change that it hears of while it asks for the first rows: they are whole.
    if (!parent && !this.answer) await this.load();
    if (!this.answer) return [];
    if (!parent) return (Object.keys(groupNames) as Group[]).map((group) => ({ group }));
    if (!('group' in parent)) return [];
    if (parent.group === 'procedures') return this.answer.procedures.map((procedure) => ({ procedure }));
    if (parent.group === 'lines') return this.answer.lines.map((line) => ({ line }));
    const { baseline, selected } = this.dwell.profile;
    if (!this.all && baseline) this.all = await this.dwell.client.diff({ before: ids(baseline), after: ids(selected), all: true, limit: rowsMax });
    return (this.all?.procedures ?? []).filter(({ significant }) => !significant).map((procedure) => ({ procedure }));
  }

  getTreeItem(row: Row): vscode.TreeItem {
    if ('group' in row) return this.groupItem(row.group);
    return 'procedure' in row ? procedureItem(row.procedure) : lineItem(row.line);
  }

  dispose(): void {
    this.subscription.dispose();
    this.changed.dispose();
  }

  private groupItem(group: Group): vscode.TreeItem {
    const answer = this.answer;
    const state = group === 'noise' ? vscode.TreeItemCollapsibleState.Collapsed : vscode.TreeItemCollapsibleState.Expanded;
    const item = new vscode.TreeItem(groupNames[group], state);
    item.id = group;
    if (!answer) return item;
    const { insignificantProcedures: procedures, insignificantLines: lines } = answer;
    const size = { procedures: count(answer.procedures.length), lines: count(answer.lines.length), noise: `${count(procedures)} functions, ${count(lines)} lines` };
    item.description = size[group];
    item.tooltip = `${groupNames[group]}: ${size[group]}`;
    if (group === 'noise') item.resourceUri = noise('group');
    return item;
  }

  /** Does not reject. */
  private load(): Promise<void> {
    return this.newest.ask(() => this.ask(), ([answer, failure]) => {
      if (JSON.stringify([answer, failure]) === JSON.stringify([this.answer, this.failure])) return;
      [this.answer, this.failure, this.all] = [answer, failure, undefined];
      this.changed.fire();
    });
  }

  private async ask(): Promise<[DiffResult | undefined, string | undefined]> {
    const { client, profile, log } = this.dwell;
    const { baseline, selected } = profile;
    if (profile.state !== 'ready' || !baseline) return [undefined, undefined];
    try {
      return [await client.diff({ before: ids(baseline), after: ids(selected), limit: rowsMax }), undefined];
    } catch (error) {
      if (isCancellation(error)) return [this.answer, this.failure];
      log.error(`the comparison: ${reason(error)}`);
      return [undefined, reason(error)];
    }
  }
}

/** Shape and word carry the same information as the colour. */
const icons: Record<Verdict, [string, string | undefined]> = {
  new: ['diff-added', 'charts.yellow'],
  gone: ['diff-removed', 'charts.blue'],
  slower: ['arrow-up', 'charts.red'],
  faster: ['arrow-down', 'charts.green'],
  'more-often': ['fold-up', 'charts.yellow'],
  'less-often': ['fold-down', 'charts.blue'],
  more: ['chevron-up', 'charts.red'],
  less: ['chevron-down', 'charts.green'],
  noise: ['dash', 'disabledForeground'],
};

function procedureItem(row: DiffProcedure): vscode.TreeItem {
  const item = new vscode.TreeItem(row.name);
  item.id = `function ${row.id}`;
  item.contextValue = 'procedure';
  present(item, row, row.id);
  item.command = { command: 'dwell.openChange', title: 'Compare Instructions', arguments: [{ procedure: row }] };
  return item;
}

function lineItem(row: DiffLine): vscode.TreeItem {
  const at = (line: number | null) => line === null ? '' : String(line + 1);
  const moved = row.lineBefore !== row.lineAfter && row.lineBefore !== null && row.lineAfter !== null;
  const side = row.lineAfter === null ? ' (before)' : '';
  const place = moved ? `${at(row.lineBefore)} → ${at(row.lineAfter)}` : at(row.lineAfter ?? row.lineBefore);
  const item = new vscode.TreeItem(`${row.file.slice(row.file.lastIndexOf('/') + 1)}:${place}${side}`);
  item.id = `line ${row.file} ${at(row.lineBefore)} ${at(row.lineAfter)}`;
  present(item, row, row.file);
  if (row.uri !== null) item.command = { command: 'dwell.openChange', title: 'Open', arguments: [{ line: row }] };
  return item;
}

function present(item: vscode.TreeItem, row: DiffChange, what: string): void {
  const [icon, colour] = icons[row.verdict];
  item.iconPath = new vscode.ThemeIcon(icon, colour === undefined ? undefined : new vscode.ThemeColor(colour));
  item.description = row.label;
  item.tooltip = tooltip(row, what);
  item.accessibilityInformation = { label: `${typeof item.label === 'string' ? item.label : what}, ${row.label}` };
  if (!row.significant) item.resourceUri = noise(what);
}

function noise(what: string): vscode.Uri {
  return vscode.Uri.from({ scheme: noiseScheme, path: `/${encodeURIComponent(what)}` });
}

function tooltip(row: DiffChange, what: string): vscode.MarkdownString {
  const text = new vscode.MarkdownString('**').appendText(what).appendMarkdown('**\n\n');
  const rows: [string, string, string][] = [['samples', count(row.samplesBefore), count(row.samplesAfter)]];
  // A value that is unknown on both sides has no row.
  const pair = (name: string, before: number | null, after: number | null, show: (value: number) => string) => {
    if (before !== null || after !== null) rows.push([name, before === null ? '–' : show(before), after === null ? '–' : show(after)]);
  };
  pair('executions', row.executionsBefore, row.executionsAfter, magnitude);
  pair('CPI', row.cpiBefore, row.cpiAfter, (value) => value.toFixed(2));
  text.appendMarkdown(`| | before | after |\n| :-- | --: | --: |\n${rows.map((cells) => `| ${cells.join(' | ')} |`).join('\n')}\n\n`);
  if (row.changeCycles !== null) text.appendText(`${row.changeCycles < 0 ? '−' : '+'}${magnitude(Math.abs(row.changeCycles))} cycles, `);
  return text.appendText(row.significant ? falseCalls(row) : 'may be chance').appendText(`: p = ${row.p.toPrecision(2)}`);
}

/** How many of the changes that are called like this one are chance: that is what a false discovery rate says, and nothing of this one alone. */
function falseCalls({ falseDiscoveryRate: rate }: DiffChange): string {
  return `of changes called like this one, ${rate < 0.001 ? 'under 0.1%' : `${(rate * 100).toFixed(1)}%`} are chance`;
}

function ids(epochs: readonly EpochSummary[]): string[] {
  return epochs.map(({ id }) => id);
}

function names(epochs: readonly EpochSummary[]): string {
  const [only] = epochs;
  return epochs.length === 1 && only ? epochTitle(only) : `${epochs.length} recordings`;
}

/** Of an epoch's row, or as a text. */
function idOf(what: unknown): string | undefined {
  if (typeof what === 'string') return what;
  return typeof what === 'object' && what !== null && 'id' in what && typeof what.id === 'string' ? what.id : undefined;
}

async function compareEpochs({ client, profile }: Dwell, givenBefore?: string, givenAfter?: string): Promise<void> {
  if (profile.epochs.length < 2 && givenBefore === undefined) {
    void vscode.window.showInformationMessage('Dwell: two recordings are needed to compare. "Dwell: Record a Command" makes one.');
    return;
  }
  const pinned = profile.baseline?.map(({ id }) => id) ?? [];
  const before = givenBefore === undefined ? await pickEpochs(profile.epochs, pinned, 'Dwell: Compare Recordings (1/2)', 'Before: what the other is compared with') : [givenBefore];
  if (!before) return;
  const shown = profile.selected.map(({ id }) => id);
  const after = givenAfter === undefined
    ? await pickEpochs(profile.epochs.filter(({ id }) => !before.includes(id)), shown, 'Dwell: Compare Recordings (2/2)', 'After: what lines, lenses and views show')
    : [givenAfter];
  if (!after) return;
  await client.compare({ before, after });
  await profile.refresh();
  await vscode.commands.executeCommand(`${viewId}.focus`);
}

/** A procedure's instructions side by side; a line in its file. */
async function openChange(dwell: Dwell, row: Row): Promise<void> {
  if ('line' in row && row.line.uri !== null) {
    const line = row.line.lineAfter ?? row.line.lineBefore ?? 0;
    await vscode.window.showTextDocument(dwell.client.uri(row.line.uri), { selection: new vscode.Range(line, 0, line, 0), preview: true });
  } else if ('procedure' in row) {
    await vscode.commands.executeCommand('dwell.compareListings', row.procedure.id);
  }
}
