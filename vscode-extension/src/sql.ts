// A query in SQL over all recordings, typed in an editor tab with its rows below. What a query can do is the core's matter: it reads
// the tables of docs/sql.md and nothing else. The last query is remembered.
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import * as vscode from 'vscode';
import type { Dwell } from './dwell';
import { isCancellation, reason } from './failures';
import { starter, type FromPage, type ToPage } from './sql/model';
import { page } from './sql/page';

const viewType = 'dwell.sql';
const lastQueryKey = 'dwell.lastQuery';

export function activate(dwell: Dwell): vscode.Disposable {
  const view = new SqlView(dwell);
  return vscode.Disposable.from(view, dwell.failures.command('dwell.querySql', 'the query', (query) => view.show(typeof query === 'string' ? query : undefined)));
}

class SqlView implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private asked = new vscode.CancellationTokenSource();

  constructor(private readonly dwell: Dwell) {}

  /** Shows the tab. A query, which a keybinding may give, is run at once. */
  async show(query: string | undefined): Promise<void> {
    if (query !== undefined) await this.dwell.memory.update(lastQueryKey, query);
    if (!this.panel) await this.open(query !== undefined);
    else if (query !== undefined) await this.post({ kind: 'query', query });
    this.panel?.reveal();
  }

  dispose(): void {
    this.asked.cancel();
    this.panel?.dispose();
  }

  private async open(runs: boolean): Promise<void> {
    const script = await readFile(this.dwell.client.file('dist/sql.js').fsPath, 'utf8');
    const options = { enableScripts: true, localResourceRoots: [], retainContextWhenHidden: true, enableFindWidget: true };
    const panel = vscode.window.createWebviewPanel(viewType, 'SQL', vscode.ViewColumn.Active, options);
    this.panel = panel;
    panel.onDidDispose(() => {
      this.asked.cancel();
      this.panel = undefined;
    });
    panel.webview.onDidReceiveMessage((message: FromPage) => this.dwell.failures.guard('the query', () => this.hear(message)));
    panel.webview.html = page(script, randomBytes(16).toString('base64'), this.dwell.memory.get(lastQueryKey, starter), runs);
  }

  private async hear(message: FromPage): Promise<void> {
    this.asked.cancel();
    if (message.kind === 'run') await this.run(message.query);
    else await this.post({ kind: 'failed', text: 'Cancelled.' });
  }

  /** Does not reject: what fails is said in the page. */
  private async run(query: string): Promise<void> {
    const asked = new vscode.CancellationTokenSource();
    this.asked = asked;
    const post = async (message: ToPage) => { if (!asked.token.isCancellationRequested) await this.post(message); };
    try {
      await this.dwell.memory.update(lastQueryKey, query);
      await post({ kind: 'rows', ...await this.dwell.client.sql({ query }, asked.token) });
    } catch (error) {
      if (isCancellation(error)) return;
      this.dwell.log.error(`the query: ${reason(error)}`);
      await post({ kind: 'failed', text: reason(error) });
    } finally {
      asked.dispose();
    }
  }

  private async post(message: ToPage): Promise<void> {
    await this.panel?.webview.postMessage(message);
  }
}
