// All call stacks as a flame graph in an editor tab, in the theme's colours. The tree comes first; what the analysis knows of
// the functions, which takes longer, follows. A click leads to the function's source or, where there is none, to its listing.
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import * as vscode from 'vscode';
import type { Dwell } from './dwell';
import { isCancellation, reason } from './failures';
import { summaryOf, type FromPage, type ToPage } from './flame/model';
import { page } from './flame/page';

const viewType = 'dwell.flame';

export function activate(dwell: Dwell): vscode.Disposable {
  const view = new FlameView(dwell);
  return vscode.Disposable.from(view, dwell.failures.command('dwell.showFlameGraph', 'the flame graph', () => view.show()));
}

class FlameView implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  /** What is shown is not of the profile as it is. */
  private stale = false;
  private asked = new vscode.CancellationTokenSource();
  private readonly subscription: vscode.Disposable;

  constructor(private readonly dwell: Dwell) {
    this.subscription = dwell.profile.onDidChange(() => { void this.load(); });
  }

  async show(): Promise<void> {
    if (this.panel) {
      this.panel.reveal();
      return;
    }
    const script = await readFile(this.dwell.client.file('dist/flame.js').fsPath, 'utf8');
    const options = { enableScripts: true, localResourceRoots: [], retainContextWhenHidden: true };
    const panel = vscode.window.createWebviewPanel(viewType, 'Flame Graph', vscode.ViewColumn.Active, options);
    this.panel = panel;
    panel.onDidDispose(() => {
      this.asked.cancel();
      this.panel = undefined;
    });
    panel.onDidChangeViewState(() => { if (panel.visible && this.stale) void this.load(); });
    panel.webview.onDidReceiveMessage((message: FromPage) => this.dwell.failures.guard('the flame graph', () => this.hear(message)));
    panel.webview.html = page(script, randomBytes(16).toString('base64'));
  }

  dispose(): void {
    this.subscription.dispose();
    this.asked.cancel();
    this.panel?.dispose();
  }

  private async hear(message: FromPage): Promise<void> {
    if (message.kind === 'ready') await this.load();
    else await this.open(message);
  }

  /** Does not reject: what fails is said in the page. */
  private async load(): Promise<void> {
    this.stale = this.panel?.visible === false;
    if (!this.panel || this.stale) return;
    this.asked.cancel();
    this.asked.dispose();
    this.asked = new vscode.CancellationTokenSource();
    const { token } = this.asked;
    const post = async (message: ToPage) => { if (!token.isCancellationRequested) await this.panel?.webview.postMessage(message); };
    try {
      const title = this.dwell.profile.selected.map(({ id, name }) => name ?? id).join(' + ');
      const { functions, parents, codes, own, unit, seconds, ...rest } = await this.dwell.client.flame({ bare: true }, token);
      await post({ kind: 'graph', data: { title, functions, parents, codes, own, unit, seconds }, summary: summaryOf(rest), notes: rest.notes });
      const known = await this.dwell.client.flame({}, token);
      await post({ kind: 'functions', functions: known.functions, notes: known.notes });
    } catch (error) {
      if (isCancellation(error)) return;
      this.dwell.log.error(`the flame graph: ${reason(error)}`);
      await post({ kind: 'words', text: reason(error) });
    }
  }

  private async open({ location, id }: Extract<FromPage, { kind: 'open' }>): Promise<void> {
    const uri = location && this.dwell.client.uri(location.uri);
    if (uri && await exists(uri)) {
      const selection = new vscode.Range(location.line, 0, location.line, 0);
      // Beside the graph, where there is an editor already if there is one.
      const other = vscode.window.visibleTextEditors.find(({ viewColumn }) => viewColumn !== undefined && viewColumn !== this.panel?.viewColumn);
      await vscode.window.showTextDocument(uri, { selection, preview: true, viewColumn: other?.viewColumn ?? vscode.ViewColumn.Beside });
    } else if (id !== null) await vscode.commands.executeCommand('dwell.showListing', { id });
    else void vscode.window.setStatusBarMessage('Dwell: this function has no source here', 5000);
  }
}

async function exists(uri: vscode.Uri): Promise<boolean> {
  try {
    await vscode.workspace.fs.stat(uri);
    return true;
  } catch {
    return false;
  }
}
