// The Hot Procedures view: where the time goes, by procedure, image, line or application, with cumulative share, CPI and where
// the cycles go. Thousands of rows scroll freely, which a tree does not: it is a page that draws the rows in sight. A click
// leads to the source or, where there is none, to the listing.
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import * as vscode from 'vscode';
import type { HotProceduresResult, HotRow } from '@dwell/lsp-server/protocol';
import type { Dwell } from './dwell';
import { isCancellation, reason } from './failures';
import type { By, Detail, FromPage, ListRow, ToPage, Words } from './hotList/model';
import { page } from './hotList/page';
import { Newest } from './newest';

const viewId = 'dwell.hotProcedures';
const groupingKey = 'dwell.groupBy';
/** Whole from the start; others get their CPI when they come in sight. */
const headRows = 100;
const pageRows = 1000;
/** The most rows that are listed; no one scrolls through more. */
const rowsMax = 20_000;

const groupings: Record<By, string> = {
  procedure: 'Function', image: 'Binary', line: 'Source Line', app: 'Application',
};

export function activate(dwell: Dwell): vscode.Disposable {
  const list = new HotList(dwell);
  const { failures } = dwell;
  return vscode.Disposable.from(
    list,
    vscode.window.registerWebviewViewProvider(viewId, list, { webviewOptions: { retainContextWhenHidden: true } }),
    failures.command('dwell.groupBy', 'grouping', async (by) => {
      const grouping = isGrouping(by) ? by : await askGrouping(list.by);
      if (grouping) await list.setBy(grouping);
    }),
    failures.command('dwell.openHotRow', 'opening', (row) => list.open(idOf(row))),
  );
}

function idOf(row: unknown): string {
  return typeof row === 'object' && row !== null && 'id' in row && typeof row.id === 'string' ? row.id : String(row);
}

/** Keeps the rows, and sends the page only those that differ, so that nothing flickers. */
class HotList implements vscode.WebviewViewProvider, vscode.Disposable {
  private view: vscode.WebviewView | undefined;
  private rows: ListRow[] = [];
  private readonly locations = new Map<string, HotRow['location']>();
  private told = '';
  private readonly newest = new Newest();
  private readonly subscription: vscode.Disposable;

  constructor(private readonly dwell: Dwell) {
    this.subscription = dwell.profile.onDidChange(() => { void this.load(); });
  }

  get by(): By {
    const remembered = this.dwell.memory.get<unknown>(groupingKey);
    return isGrouping(remembered) ? remembered : 'procedure';
  }

  async setBy(by: By): Promise<void> {
    await this.dwell.memory.update(groupingKey, by);
    await this.load();
  }

  async resolveWebviewView(view: vscode.WebviewView): Promise<void> {
    this.view = view;
    this.told = '';
    const nonce = randomBytes(16).toString('base64');
    view.webview.options = { enableScripts: true, localResourceRoots: [] };
    view.webview.onDidReceiveMessage((message: FromPage) => this.dwell.failures.guard('the hot functions', () => this.hear(message)));
    view.onDidDispose(() => { this.view = undefined; });
    // In the page itself, so that it loads nothing.
    const script = await readFile(this.dwell.client.file('dist/hotList.js').fsPath, 'utf8');
    view.webview.html = page(script, nonce);
  }

  /** To the row's source or, where there is none here, to its listing. */
  async open(id: string): Promise<void> {
    const location = await this.locationOf(id);
    const uri = location && this.dwell.client.uri(location.uri);
    if (!uri || !await exists(uri)) {
      if (this.by === 'procedure') await vscode.commands.executeCommand('dwell.showListing', { id });
      return;
    }
    const selection = new vscode.Range(location.line, 0, location.line, 0);
    await vscode.window.showTextDocument(uri, { selection, preview: true });
  }

  dispose(): void {
    this.subscription.dispose();
  }

  private async hear(message: FromPage): Promise<void> {
    switch (message.kind) {
      case 'ready': this.told = ''; return this.load();
      case 'by': return this.setBy(message.by);
      case 'open': return this.open(message.id);
      case 'listing':
        await vscode.commands.executeCommand('dwell.showListing', { id: message.id });
        return;
      case 'wanted': return this.tellDetails(message.from, message.to);
      case 'run':
        if (actions.some(({ command }) => command === message.command)) await vscode.commands.executeCommand(message.command);
    }
  }

  /** Does not reject. */
  private async load(): Promise<void> {
    if (!this.view) return;
    await this.newest.ask(() => this.ask(this.by), async (message) => {
      if (message === undefined) return;
      this.rows = message.kind === 'rows' ? message.rows : [];
      const text = JSON.stringify(message);
      if (text === this.told) return;
      this.told = text;
      await this.view?.webview.postMessage(message);
    });
  }

  /** `undefined`: what is shown may stay. */
  private async ask(by: By): Promise<ToPage | undefined> {
    const { client, profile, log } = this.dwell;
    if (profile.state !== 'ready') return { kind: 'words', words: wordsOf(profile.state) };
    try {
      const head = await client.hotProcedures({ by, limit: headRows, split: by === 'procedure' });
      if (head.rows.length === 0) return { kind: 'words', words: wordsOf('samples') };
      const rest = await this.rest(by, head.omittedRows);
      this.locations.clear();
      this.learn(head);
      return { kind: 'rows', by, rows: [...head.rows.map((row) => ({ ...listRow(row), detail: detail(row) })), ...rest.map(listRow)] };
    } catch (error) {
      if (isCancellation(error)) return undefined;
      log.error(`hot procedures: ${reason(error)}`);
      return { kind: 'words', words: wordsOf('failed') };
    }
  }

  /** Fetches the rows after the first page, without the values that take long to compute; in pages, so that the server can answer other requests in between. */
  private async rest(by: By, rows: number): Promise<HotRow[]> {
    const found: HotRow[] = [];
    while (found.length < Math.min(rows, rowsMax)) {
      const page = await this.dwell.client.hotProcedures({ by, offset: headRows + found.length, limit: pageRows, bare: true });
      found.push(...page.rows);
      if (page.rows.length < pageRows) break;
    }
    return found;
  }

  private async tellDetails(from: number, to: number): Promise<void> {
    const by = this.by;
    const answer = await this.dwell.client.hotProcedures({ by, offset: from, limit: Math.min(to - from, headRows), split: true });
    this.learn(answer);
    const details: Record<string, Detail> = Object.fromEntries(answer.rows.map((row) => [row.id, detail(row)]));
    await this.view?.webview.postMessage({ kind: 'details', by, details } satisfies ToPage);
  }

  private learn({ rows }: HotProceduresResult): void {
    for (const { id, location } of rows) this.locations.set(id, location);
  }

  private async locationOf(id: string): Promise<HotRow['location']> {
    const offset = this.rows.findIndex((row) => row.id === id);
    if (!this.locations.has(id) && offset >= 0) this.learn(await this.dwell.client.hotProcedures({ by: this.by, offset, limit: 1 }));
    return this.locations.get(id) ?? null;
  }
}

function listRow({ id, label, image, share, cumulativeShare }: HotRow): ListRow {
  return { id, label, image, share, cumulativeShare };
}

function detail({ cpi, cpiMin, split }: HotRow): Detail {
  return { cpi, cpiMin, split };
}

/** All that the page may offer. */
const actions = [
  { title: 'Record a Command', command: 'dwell.record' },
  { title: 'Import perf.data', command: 'dwell.importPerf' },
  { title: 'Manage Workspace Trust', command: 'workbench.trust.manage' },
  { title: 'Select Recording', command: 'dwell.selectEpoch' },
  { title: 'Try Again', command: 'dwell.refresh' },
  { title: 'Show Log', command: 'dwell.showLog' },
];

function wordsOf(state: 'starting' | 'empty' | 'failed' | 'samples'): Words {
  const offer = (...titles: string[]) => actions.filter(({ title }) => titles.includes(title));
  if (state === 'starting') return { text: 'Loading the profile…', actions: [] };
  if (state === 'samples') return { text: 'The selected recording holds no samples.', actions: offer('Select Recording') };
  if (state === 'failed') return { text: 'The profile cannot be read; the log says why.', actions: offer('Try Again', 'Show Log') };
  if (!vscode.workspace.isTrusted) {
    return { text: 'No profile yet. Recording runs a program, so it needs a trusted workspace.', actions: offer('Manage Workspace Trust') };
  }
  const text = 'No profile yet. Record a command, and the lines it spent its time on are marked in the editor. A profile kept elsewhere is opened by the setting dwell.database.';
  return { text, actions: offer('Record a Command', 'Import perf.data') };
}

async function exists(uri: vscode.Uri): Promise<boolean> {
  try {
    await vscode.workspace.fs.stat(uri);
    return true;
  } catch {
    return false;
  }
}

function isGrouping(value: unknown): value is By {
  return typeof value === 'string' && value in groupings;
}

async function askGrouping(current: By): Promise<By | undefined> {
  const items = (Object.keys(groupings) as By[]).map((grouping) => ({
    label: groupings[grouping], grouping, description: grouping === current ? 'current' : '',
  }));
  const pick = await vscode.window.showQuickPick(items, { title: 'Dwell: Group By', placeHolder: 'What a row of the view stands for' });
  return pick?.grouping;
}
