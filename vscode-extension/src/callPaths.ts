// Functions whose calls are counted in a running program: begins and ends it, and shows the numbers as they come. The lens above such a function is
// the server's. The Call Paths view has its callers as a tree that unfolds outwards, with exact numbers of calls; the lines that call it end
// with their part of its calls.
import * as vscode from 'vscode';
import type { CallCount, CallPathsResult, CountCallsParams, CountedFrame, CountedFunction } from '@dwell/lsp-server/protocol';
import { languages } from './client';
import type { Dwell } from './dwell';
import { reason } from './failures';
import { count, percent } from './format';
import { Newest } from './newest';
import { pickProcess } from './pickProcess';

const viewId = 'dwell.callPaths';
/** Beyond the end of any line. */
const endOfLine = 2 ** 30 - 1;

/** Callers that follow one another from a function outwards. */
interface Way {
  frame: CountedFrame;
  calls: number;
  /** Part of the function's calls. */
  share: number;
  /** Time on the clock in ns of the calls that returned, and their number; null: not known. */
  wall: { sum: number; returns: number } | null;
  callers: Map<string, Way>;
}
type Row = { counted: CountedFunction; of: CallCount } | { way: Way; of: CallCount; path: string };

export function activate(dwell: Dwell): vscode.Disposable {
  const tree = new CallPathsTree(dwell);
  const view = vscode.window.createTreeView<Row>(viewId, { treeDataProvider: tree, showCollapseAll: true });
  const { failures } = dwell;
  const instrument = async (what: unknown): Promise<void> => {
    const params = await asked(dwell, what);
    if (params === undefined) return;
    await vscode.window.withProgress({ location: vscode.ProgressLocation.Notification, title: 'Dwell: counting calls…' }, () => dwell.client.countCalls(params));
    await tree.reload();
    await show();
  };
  const show = async (): Promise<void> => {
    await vscode.commands.executeCommand(`${viewId}.focus`);
    const [top] = tree.getChildren();
    // A view that is shown for the first time may not have drawn its rows yet: it has the focus all the same.
    if (top) await view.reveal(top, { focus: true }).then(undefined, () => undefined);
  };
  return vscode.Disposable.from(
    view, tree,
    tree.onDidChangeTreeData(() => { view.message = tree.message; }),
    failures.command('dwell.instrumentFunction', 'counting calls', instrument),
    failures.command('dwell.showCallPaths', 'the call paths', show),
    failures.command('dwell.stopCounting', 'counting calls', (what) => tree.stop(what)),
    failures.command('dwell.openCallSite', 'the call', (row) => open(dwell, row as Row)),
  );
}

/** What a command is about: a row of the view, or else the function at the cursor; `undefined`: no process was picked. */
async function asked(dwell: Dwell, what: unknown): Promise<CountCallsParams | undefined> {
  if (!vscode.workspace.isTrusted) throw new Error('it changes a program that runs, so this workspace must be trusted first');
  if (typeof what === 'object' && what !== null && 'way' in what) {
    const { way: { frame }, of } = what as Extract<Row, { way: Way }>;
    if (frame.function === null || frame.inlined) throw new Error('the call was inlined, or its function has no name: count one further out');
    return { pids: of.pids, function: frame.image === null ? frame.function : `${frame.image}:${frame.function}` };
  }
  const editor = vscode.window.activeTextEditor;
  if (editor?.document.uri.scheme !== 'file' || !languages.includes(editor.document.languageId)) throw new Error('put the cursor on a function of a source file');
  const { line, character } = editor.selection.active;
  const given = typeof what === 'number' ? { pid: what } : await pickProcess(dwell, 'Dwell: Instrument This Function Now', 'The program whose calls of it are counted until you stop');
  return given && { pids: [given.pid], textDocument: { uri: editor.document.uri.toString() }, position: { line, character } };
}

class CallPathsTree implements vscode.TreeDataProvider<Row>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.changed.event;
  private readonly marks = vscode.window.createTextEditorDecorationType({ rangeBehavior: vscode.DecorationRangeBehavior.OpenOpen });
  private readonly subscription: vscode.Disposable;
  private readonly newest = new Newest();
  private answer: CallPathsResult = { counts: [], sites: [] };

  constructor(private readonly dwell: Dwell) {
    this.subscription = vscode.Disposable.from(
      dwell.client.onCallsDidChange(() => { void this.reload(); }),
      vscode.window.onDidChangeVisibleTextEditors(() => { this.mark(); }),
    );
  }

  /** Above the rows: what went wrong. */
  get message(): string {
    return this.answer.counts.flatMap(({ problem }) => problem ?? []).join('\n');
  }

  getChildren(parent?: Row): Row[] {
    if (!parent) return this.answer.counts.flatMap((of) => of.functions.map((counted) => ({ counted, of })));
    const [callers, path] = 'counted' in parent ? [waysOf(parent.counted), `${parent.of.id} ${parent.counted.image}:${parent.counted.function}`] : [parent.way.callers, parent.path];
    const rows = [...callers.entries()].map(([key, way]) => ({ way, of: parent.of, path: `${path} ${key}` }));
    return rows.sort((a, b) => b.way.calls - a.way.calls);
  }

  /** Only a row at the top is revealed. */
  getParent(): undefined {
    return undefined;
  }

  getTreeItem(row: Row): vscode.TreeItem {
    return 'counted' in row ? functionItem(row.counted, row.of) : wayItem(row.way, row.path);
  }

  /** A row, or the id of a count; without one all that is counted. */
  async stop(what: unknown): Promise<void> {
    const row = typeof what === 'object' && what !== null && 'of' in what ? (what as Row).of.id : what;
    const ids = typeof row === 'number' ? [row] : this.answer.counts.map(({ id }) => id);
    for (const id of ids) await this.dwell.client.stopCounting(id);
  }

  dispose(): void {
    this.subscription.dispose();
    this.marks.dispose();
    this.changed.dispose();
  }

  /** Does not reject. */
  reload(): Promise<void> {
    const ask = async (): Promise<CallPathsResult> => {
      try {
        return await this.dwell.client.callPaths();
      } catch (error) {
        this.dwell.log.warn(`the call paths: ${reason(error)}`);
        return this.answer;
      }
    };
    return this.newest.ask(ask, async (answer) => {
      this.answer = answer;
      await vscode.commands.executeCommand('setContext', 'dwell.callPaths', answer.counts.length > 0);
      this.mark();
      this.changed.fire();
    });
  }

  /** Draws the parts of calls at the ends of the lines that make them. */
  private mark(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const { uri, lineCount } = editor.document;
      const own = this.answer.sites.filter((site) => this.dwell.client.uri(site.place.uri).toString() === uri.toString() && site.place.line < lineCount);
      editor.setDecorations(this.marks, own.map(({ place: { line }, label }) => ({
        range: new vscode.Range(line, 0, line, endOfLine),
        renderOptions: { after: { contentText: label, color: new vscode.ThemeColor('dwell.lineEnd'), margin: '0 0 0 2ch' } },
      })));
    }
  }
}

/** The callers of a function, those of a call site together. */
function waysOf({ paths }: CountedFunction): Map<string, Way> {
  const callers = new Map<string, Way>();
  for (const { frames, calls, share, wall, returns } of paths) {
    let at = callers;
    for (const frame of frames.length > 0 ? frames : [others]) {
      const key = JSON.stringify(frame);
      const way = at.get(key) ?? { frame, calls: 0, share: 0, wall: null, callers: new Map<string, Way>() };
      way.calls += calls;
      way.share += share;
      if (wall && returns !== null) way.wall = { sum: (way.wall?.sum ?? 0) + wall.sum, returns: (way.wall?.returns ?? 0) + returns };
      at.set(key, way);
      at = way.callers;
    }
  }
  return callers;
}

const others: CountedFrame = { function: '[other paths]', image: null, inlined: false, place: null };

function functionItem({ function: name, image, calls, label }: CountedFunction, { id, state, pids }: CallCount): vscode.TreeItem {
  const item = new vscode.TreeItem(name, vscode.TreeItemCollapsibleState.Expanded);
  item.id = `${id} ${image}:${name}`;
  item.contextValue = state;
  item.description = `${label} · ${image}`;
  item.iconPath = new vscode.ThemeIcon(state === 'counting' ? 'pulse' : 'symbol-method');
  item.tooltip = `${name}: ${count(calls)} calls, counted exactly, of ${pids.length === 1 ? 'process' : 'processes'} ${pids.join(', ')}`;
  item.accessibilityInformation = { label: `${name}, ${label}` };
  return item;
}

function wayItem({ frame, calls, share, wall, callers }: Way, path: string): vscode.TreeItem {
  const { Collapsed, None } = vscode.TreeItemCollapsibleState;
  const name = frame.function ?? '[unknown]';
  const item = new vscode.TreeItem(`${name}${frame.inlined ? ' (inlined)' : ''}`, callers.size > 0 ? Collapsed : None);
  const place = frame.place ? `${fileName(frame.place.uri)}:${frame.place.line + 1}` : '';
  const mean = wall && wall.returns > 0 ? `mean ${time(wall.sum / wall.returns)}` : '';
  item.id = path;
  item.contextValue = 'caller';
  item.description = [percent(share), `${count(calls)} calls`, mean, place, frame.image ?? ''].filter((part) => part !== '').join(' · ');
  item.iconPath = new vscode.ThemeIcon('call-incoming');
  item.accessibilityInformation = { label: [name, item.description].join(', ') };
  if (frame.place) item.command = { command: 'dwell.openCallSite', title: 'Go to the Call', arguments: [{ way: { frame } }] };
  return item;
}

/** `450 ns`, `3.2 µs`, `41 ms`, `1.2 s`. */
function time(ns: number): string {
  const units: [number, string][] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']];
  const [size, unit] = units.find(([least]) => ns >= least) ?? [1, 'ns'];
  return `${Number((ns / size).toPrecision(2))} ${unit}`;
}

async function open({ client }: Dwell, row: Row): Promise<void> {
  const place = 'way' in row ? row.way.frame.place : row.counted.place;
  if (!place) return;
  await vscode.window.showTextDocument(client.uri(place.uri), { selection: new vscode.Range(place.line, 0, place.line, 0), preview: true });
}

function fileName(uri: string): string {
  const { path } = vscode.Uri.parse(uri);
  return path.slice(path.lastIndexOf('/') + 1);
}
