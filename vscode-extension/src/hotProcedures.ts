// The Hot Procedures view: where the time goes, most costly first, by procedure, image, line or application.
// A click leads to the source or, where there is none, to the listing.
import * as vscode from 'vscode';
import type { HotProceduresParams, HotProceduresResult, HotRow } from '@dwell/lsp-server/protocol';
import type { Dwell } from './dwell';
import { isCancellation, reason } from './failures';
import { count, cpi, imageName, magnitude, percent } from './format';
import { gaugeStep, gaugeSvg } from './gauge';

const viewId = 'dwell.hotProcedures';
/** Rows that are shown at first, and that `Show More` adds. */
const pageRows = 100;
const groupingKey = 'dwell.groupBy';

type Grouping = NonNullable<HotProceduresParams['by']>;
const groupings: Record<Grouping, string> = {
  procedure: 'Procedure', image: 'Image', line: 'Source Line', app: 'Application',
};

/** The row below the last, which stands for those that were left out. */
interface MoreRow {
  omittedRows: number;
}
type Row = HotRow | MoreRow;

export function activate(dwell: Dwell): vscode.Disposable {
  const tree = new HotTree(dwell);
  const view = vscode.window.createTreeView<Row>(viewId, { treeDataProvider: tree });
  const { failures } = dwell;
  const label = () => { view.description = tree.grouping === 'procedure' ? '' : `by ${groupings[tree.grouping].toLowerCase()}`; };
  label();
  return vscode.Disposable.from(
    view, tree,
    failures.command('dwell.groupBy', 'grouping', async (by) => {
      const grouping = isGrouping(by) ? by : await askGrouping(tree.grouping);
      if (!grouping) return;
      await tree.setGrouping(grouping);
      label();
    }),
    failures.command('dwell.showMoreRows', 'more rows', () => tree.showMore()),
    failures.command('dwell.openHotRow', 'opening', (row) => open(dwell, row as HotRow)),
  );
}

/** Keeps the rows that are shown; VS Code is told of new ones only when they are there and differ, so nothing flickers. */
class HotTree implements vscode.TreeDataProvider<Row>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;
  private readonly subscription: vscode.Disposable;
  private rows: Row[] = [];
  private shareMax = 0;
  private limit = pageRows;
  private lastAsked = 0;

  constructor(private readonly dwell: Dwell) {
    this.subscription = dwell.profile.onDidChange(() => { void this.load(); });
  }

  get grouping(): Grouping {
    const remembered = this.dwell.memory.get<unknown>(groupingKey);
    return isGrouping(remembered) ? remembered : 'procedure';
  }

  async setGrouping(grouping: Grouping): Promise<void> {
    await this.dwell.memory.update(groupingKey, grouping);
    this.limit = pageRows;
    await this.load();
  }

  async showMore(): Promise<void> {
    this.limit += pageRows;
    await this.load();
  }

  getChildren(parent?: Row): Row[] {
    return parent ? [] : this.rows;
  }

  getTreeItem(row: Row): vscode.TreeItem {
    return 'omittedRows' in row ? moreItem(row) : hotItem(row, this.grouping, this.shareMax);
  }

  dispose(): void {
    this.subscription.dispose();
    this.changed.dispose();
  }

  /** Does not reject. Of overlapping questions the last one counts; one that fails leaves no old rows behind. */
  private async load(): Promise<void> {
    const asked = this.lastAsked += 1;
    const rows = await this.ask();
    if (asked !== this.lastAsked || rows === undefined || JSON.stringify(rows) === JSON.stringify(this.rows)) return;
    this.rows = rows;
    this.shareMax = Math.max(0, ...rows.map((row) => 'share' in row ? row.share : 0));
    this.changed.fire();
  }

  /** `undefined`: the rows as they are may stay. */
  private async ask(): Promise<Row[] | undefined> {
    const { client, profile, log } = this.dwell;
    if (profile.state === 'starting') return undefined;
    if (profile.state !== 'ready') return [];
    try {
      return rowsOf(await client.hotProcedures({ by: this.grouping, limit: this.limit }));
    } catch (error) {
      if (isCancellation(error)) return undefined;
      log.error(`hot procedures: ${reason(error)}`);
      return [];
    }
  }
}

function rowsOf(answer: HotProceduresResult): Row[] {
  return answer.omittedRows > 0 ? [...answer.rows, { omittedRows: answer.omittedRows }] : answer.rows;
}

function moreItem(row: MoreRow): vscode.TreeItem {
  const item = new vscode.TreeItem(`${count(row.omittedRows)} more…`);
  item.id = 'more';
  item.command = { command: 'dwell.showMoreRows', title: 'Show More' };
  return item;
}

function hotItem(row: HotRow, by: Grouping, shareMax: number): vscode.TreeItem {
  const item = new vscode.TreeItem(row.label);
  item.id = `${by} ${row.id}`;
  item.iconPath = gauge(gaugeStep(row.share, shareMax));
  item.description = description(row, by);
  item.tooltip = tooltip(row);
  item.contextValue = by === 'procedure' ? 'listing' : 'plain';
  item.accessibilityInformation = { label: `${row.label}, ${item.description}` };
  if (row.location || by === 'procedure') {
    item.command = { command: 'dwell.openHotRow', title: 'Open', arguments: [row] };
  }
  return item;
}

function description(row: HotRow, by: Grouping): string {
  const cost = row.cpi === null ? [] : [`CPI ${cpi(row.cpi)}`];
  const image = by === 'procedure' && row.image !== null ? [imageName(row.image)] : [];
  return [percent(row.share), ...cost, ...image].join(' · ');
}

function tooltip(row: HotRow): vscode.MarkdownString {
  const text = new vscode.MarkdownString('**').appendText(row.label).appendMarkdown('**\n\n');
  const facts: [string, string][] = [
    ['Share', `${percent(row.share)}, with those above ${percent(row.cumulativeShare)}`],
    ...(row.cycles === null ? [] : [['Cycles', magnitude(row.cycles)] satisfies [string, string]]),
    ...(row.cpi === null ? [] : [['Cycles per instruction', cpi(row.cpi)] satisfies [string, string]]),
    ...Object.entries(row.samples).map(([event, n]): [string, string] => [`Samples of ${event}`, count(n)]),
    ...(row.image === null ? [] : [['Image', row.image] satisfies [string, string]]),
  ];
  for (const [name, value] of facts) text.appendText(`${name}: ${value}`).appendMarkdown('  \n');
  return text;
}

const gauges = new Map<number, { dark: vscode.Uri; light: vscode.Uri }>();

function gauge(step: number): { dark: vscode.Uri; light: vscode.Uri } {
  const known = gauges.get(step);
  if (known) return known;
  const picture = (theme: 'dark' | 'light') =>
    vscode.Uri.parse(`data:image/svg+xml;base64,${Buffer.from(gaugeSvg(step, theme)).toString('base64')}`);
  const made = { dark: picture('dark'), light: picture('light') };
  gauges.set(step, made);
  return made;
}

async function open({ client }: Dwell, row: HotRow): Promise<void> {
  if (row.location) {
    const uri = client.uri(row.location.uri);
    if (await exists(uri)) {
      const selection = new vscode.Range(row.location.line, 0, row.location.line, 0);
      await vscode.window.showTextDocument(uri, { selection, preview: true });
      return;
    }
  }
  await vscode.commands.executeCommand('dwell.showListing', row);
}

async function exists(uri: vscode.Uri): Promise<boolean> {
  try {
    await vscode.workspace.fs.stat(uri);
    return true;
  } catch {
    return false;
  }
}

function isGrouping(value: unknown): value is Grouping {
  return typeof value === 'string' && value in groupings;
}

async function askGrouping(current: Grouping): Promise<Grouping | undefined> {
  const items = (Object.keys(groupings) as Grouping[]).map((grouping) => ({
    label: groupings[grouping], grouping, description: grouping === current ? 'current' : '',
  }));
  const pick = await vscode.window.showQuickPick(items, { title: 'Dwell: Group By', placeHolder: 'What a row of the view stands for' });
  return pick?.grouping;
}
