// The Callers view: who calls a function or what it calls, by the call stacks of its samples, as a tree that unfolds a level at a time. All
// shares are parts of the samples of the function at its root. A row leads to the line of its call; so does the lens above a function,
// which asks where there are several. VS Code's own call hierarchy shows the calls of one provider alone, which is the language's.
import * as vscode from 'vscode';
import type { CallersLens, CallersParams, CallersResult, CallerRow, CallStep } from '@dwell/lsp-server/protocol';
import { languages } from './client';
import type { Dwell } from './dwell';
import { isCancellation, reason } from './failures';
import { count, percent } from './format';
import { Newest } from './newest';

const viewId = 'dwell.callers';

/** The function at the root, or a row with the way to it. */
type Row = { root: CallersResult } | { row: CallerRow; way: CallStep[] };
interface Place {
  uri: string;
  line: number;
}

export function activate(dwell: Dwell): vscode.Disposable {
  const tree = new CallersTree(dwell);
  const view = vscode.window.createTreeView<Row>(viewId, { treeDataProvider: tree, showCollapseAll: true });
  const { failures } = dwell;
  const show = async (callees: boolean, what: unknown): Promise<void> => {
    const top = await tree.show(asked(what), callees);
    await vscode.commands.executeCommand('setContext', 'dwell.callers', true);
    await vscode.commands.executeCommand(`${viewId}.focus`);
    // The keyboard goes on in the rows. A view that is shown for the first time may not have drawn them yet: it has the focus all the same.
    await view.reveal(top, { focus: true }).then(undefined, () => undefined);
  };
  return vscode.Disposable.from(
    view, tree,
    tree.onDidChangeTreeData(() => { view.title = tree.title; view.description = tree.name; view.message = tree.message ?? ''; }),
    failures.command('dwell.showCallers', 'the callers', (what) => show(false, what)),
    failures.command('dwell.showCallees', 'the callees', (what) => show(true, what)),
    failures.command('dwell.turnCallers', 'the callers', () => tree.turn()),
    failures.command('dwell.openCall', 'the call', (row) => openCall(dwell, row as Row)),
    failures.command('dwell.goToCaller', 'the caller', (lens) => goToCaller(dwell, lens as CallersLens)),
  );
}

/** What a command is about: a function's id, a row of the view, or else the function at the cursor. */
function asked(what: unknown): CallersParams {
  if (typeof what === 'string') return { function: what };
  if (typeof what === 'object' && what !== null && 'row' in what) {
    const { row } = what as Extract<Row, { row: CallerRow }>;
    return { function: `${row.image}:${row.function}` };
  }
  const editor = vscode.window.activeTextEditor;
  if (editor?.document.uri.scheme !== 'file' || !languages.includes(editor.document.languageId)) throw new Error('put the cursor on a function of a source file');
  const { line, character } = editor.selection.active;
  return { textDocument: { uri: editor.document.uri.toString() }, position: { line, character } };
}

class CallersTree implements vscode.TreeDataProvider<Row>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;
  private readonly subscription: vscode.Disposable;
  private root: CallersResult | undefined;
  private callees = false;
  private failure: string | undefined;
  private readonly newest = new Newest();

  constructor(private readonly dwell: Dwell) {
    this.subscription = dwell.profile.onDidChange(() => { void this.reload(); });
  }

  get title(): string {
    return this.callees ? 'Callees' : 'Callers';
  }

  /** Beside the view's name. */
  get name(): string {
    return this.root?.function ?? '';
  }

  /** Above the rows: what the shares are parts of, and what is not known. */
  get message(): string | undefined {
    if (this.failure !== undefined) return this.failure;
    if (!this.root) return undefined;
    const { samples, total, incomplete } = this.root;
    const lost = incomplete.reduce((sum, each) => sum + each.samples, 0);
    const unknown = lost > 0 ? ` The outer frames of ${count(lost)} are not known.` : '';
    return `Shares of its ${count(samples)} samples, of ${count(total)} with a call stack.${unknown}`;
  }

  /** Shows another function; returns the row at the top. */
  async show(params: CallersParams, callees: boolean): Promise<Row> {
    const root = await this.dwell.client.callers({ ...params, callees });
    [this.root, this.callees, this.failure] = [root, callees, undefined];
    this.changed.fire();
    return { root };
  }

  async turn(): Promise<void> {
    if (this.root) await this.show({ function: this.root.id }, !this.callees);
  }

  async getChildren(parent?: Row): Promise<Row[]> {
    if (!this.root) return [];
    if (!parent) return [{ root: this.root }];
    if ('root' in parent) return rowsOf(parent.root, []);
    return rowsOf(await this.dwell.client.callers({ function: this.root.id, callees: this.callees, through: parent.way }), parent.way);
  }

  /** Only the row at the top is revealed. */
  getParent(): undefined {
    return undefined;
  }

  getTreeItem(row: Row): vscode.TreeItem {
    return 'root' in row ? rootItem(row.root, this.callees) : rowItem(row, this.root?.function ?? '', this.callees);
  }

  dispose(): void {
    this.subscription.dispose();
    this.changed.dispose();
  }

  /** The same function in what is shown now. Does not reject. */
  private reload(): Promise<void> {
    const { root, callees } = this;
    if (!root) return Promise.resolve();
    const ask = async (): Promise<[CallersResult, string | undefined]> => {
      try {
        return [await this.dwell.client.callers({ function: root.id, callees }), undefined];
      } catch (error) {
        if (!isCancellation(error)) this.dwell.log.warn(`the callers of ${root.id}: ${reason(error)}`);
        return isCancellation(error) ? [root, this.failure] : [{ ...root, rows: [] }, reason(error)];
      }
    };
    return this.newest.ask(ask, ([answer, failure]) => {
      // Another function may have been asked for meanwhile.
      if (this.root !== root || this.callees !== callees || JSON.stringify([answer, failure]) === JSON.stringify([root, this.failure])) return;
      [this.root, this.failure] = [answer, failure];
      this.changed.fire();
    });
  }
}

function rowsOf({ rows }: CallersResult, way: CallStep[]): Row[] {
  return rows.map((row) => ({ row, way: [...way, { function: row.function, image: row.image, inlined: row.inlined }] }));
}

function rootItem(root: CallersResult, callees: boolean): vscode.TreeItem {
  const item = new vscode.TreeItem(root.function, vscode.TreeItemCollapsibleState.Expanded);
  const share = `${percent(root.samples / Math.max(root.total, 1))} of the samples`;
  item.id = `${String(callees)} ${root.id}`;
  item.description = `${share} · ${root.image}`;
  item.iconPath = new vscode.ThemeIcon('symbol-method');
  item.tooltip = `${root.function}: in ${count(root.samples)} of ${count(root.total)} samples with a call stack, ${count(root.own)} of them in itself`;
  item.accessibilityInformation = { label: `${callees ? 'callees' : 'callers'} of ${root.function}, ${share} with a call stack` };
  if (root.place) item.command = { command: 'dwell.openCall', title: 'Open', arguments: [{ root }] };
  return item;
}

function rowItem({ row, way }: Extract<Row, { row: CallerRow }>, root: string, callees: boolean): vscode.TreeItem {
  const { Collapsed, None } = vscode.TreeItemCollapsibleState;
  const item = new vscode.TreeItem(row.label, row.leads ? Collapsed : None);
  const [site] = row.sites;
  const more = row.sites.length > 1 ? ` +${row.sites.length - 1}` : '';
  const place = site ? `${fileName(site.uri)}:${site.line + 1}${more}` : '';
  item.id = `${String(callees)} ${root} ${JSON.stringify(way)}`;
  item.contextValue = row.leads ? 'call' : 'end';
  item.description = [percent(row.share), place, row.image].filter((part) => part !== '').join(' · ');
  item.iconPath = new vscode.ThemeIcon(callees ? 'call-outgoing' : 'call-incoming');
  item.tooltip = [row.details, ...row.sites.map(({ uri, line, samples }) => `${fileName(uri)}:${line + 1}: ${count(samples)} samples`)].join('\n');
  item.accessibilityInformation = { label: [row.label, row.details, place === '' ? 'no source' : `at ${place}`].join(', ') };
  if (row.sites.length > 0 || row.place) item.command = { command: 'dwell.openCall', title: 'Go to the Call', arguments: [{ row, way }] };
  return item;
}

/** To the line of the call; of several to that with the most samples. */
async function openCall(dwell: Dwell, what: Row): Promise<void> {
  const place = 'root' in what ? what.root.place : what.row.sites[0] ?? what.row.place;
  if (place) await open(dwell, place);
}

async function goToCaller(dwell: Dwell, { id, function: name, calls }: CallersLens): Promise<void> {
  const known = calls.flatMap(({ label, details, uri, line }) => uri === null || line === null
    ? []
    : [{ label, description: details, detail: `${fileName(uri)}:${line + 1}`, place: { uri, line } }]);
  const [only] = known;
  if (only && calls.length === 1) {
    await open(dwell, only.place);
    return;
  }
  const all = { label: '$(list-tree) Show in the Callers view', description: '', detail: `${count(calls.length)} callers`, place: undefined };
  const pick = await vscode.window.showQuickPick([...known, all], { title: `Dwell: Callers of ${name}`, placeHolder: 'The call to go to', matchOnDescription: true, matchOnDetail: true });
  if (pick?.place) await open(dwell, pick.place);
  else if (pick) await vscode.commands.executeCommand('dwell.showCallers', id);
}

async function open(dwell: Dwell, { uri, line }: Place): Promise<void> {
  await vscode.window.showTextDocument(dwell.client.uri(uri), { selection: new vscode.Range(line, 0, line, 0), preview: true });
}

function fileName(uri: string): string {
  const { path } = vscode.Uri.parse(uri);
  return path.slice(path.lastIndexOf('/') + 1);
}
