// A procedure before and after, side by side: instructions that the core aligned stand in one line of VS Code's diff
// editor, also across a rebuild that moved them. Costs stand behind the instructions, where they are no difference.
import * as vscode from 'vscode';
import type { DiffInstruction, DiffResult } from '@dwell/lsp-server/protocol';
import { alignedText, costLabel } from './aligned';
import type { Dwell } from './dwell';

const scheme = 'dwell-run';

interface Wanted {
  procedure: string;
  before: string[];
  after: string[];
}

export function activate(dwell: Dwell): vscode.Disposable {
  const runs = new Runs(dwell);
  return vscode.Disposable.from(
    runs,
    vscode.workspace.registerTextDocumentContentProvider(scheme, runs),
    vscode.window.onDidChangeVisibleTextEditors(() => { runs.decorate(); }),
    dwell.failures.command('dwell.compareListings', 'comparing instructions', async (procedure) => {
      const { baseline, selected } = dwell.profile;
      const named = typeof procedure === 'string' ? procedure : undefined;
      if (!baseline || named === undefined) throw new Error('compare two recordings first, and choose a function');
      await runs.show({ procedure: named, before: baseline.map(({ id }) => id), after: selected.map(({ id }) => id) });
    }),
  );
}

class Runs implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly answers = new Map<string, DiffResult>();
  private readonly cost = vscode.window.createTextEditorDecorationType({
    after: { color: new vscode.ThemeColor('editorInlayHint.foreground'), margin: '0 0 0 2em' },
  });
  private readonly slower = edge('dwell.change.slower');
  private readonly faster = edge('dwell.change.faster');

  constructor(private readonly dwell: Dwell) {}

  async show(wanted: Wanted): Promise<void> {
    const key = JSON.stringify(wanted);
    const answer = await this.dwell.client.diff(wanted);
    if (answer.instructions.length === 0) throw new Error(`no instructions of ${wanted.procedure} are known on either side`);
    this.answers.clear();
    this.answers.set(key, answer);
    const name = wanted.procedure.slice(wanted.procedure.indexOf(':') + 1).replaceAll('/', '∕');
    const side = (which: string) => vscode.Uri.from({ scheme, path: `/${name} (${which}).dwell`, query: key, fragment: which });
    await vscode.commands.executeCommand('vscode.diff', side('before'), side('after'), `${name}: before ↔ after`, { preview: true });
    this.decorate();
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    const rows = this.rowsOf(uri);
    return rows.length === 0 ? 'Compare the recordings again to see these instructions.\n' : `${alignedText(rows, sideOf(uri)).join('\n')}\n`;
  }

  /** Costs behind the instructions; an edge where the change is more than chance. */
  decorate(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const { uri } = editor.document;
      if (uri.scheme !== scheme) continue;
      const side = sideOf(uri);
      const own = this.rowsOf(uri).filter((row) => row[side] !== null);
      const range = (line: number) => new vscode.Range(line, 0, line, editor.document.lineAt(Math.min(line, editor.document.lineCount - 1)).text.length);
      editor.setDecorations(this.cost, own.map((row, line) => ({ range: range(line), renderOptions: { after: { contentText: costLabel(row, side) } }, hoverMessage: row.label })));
      const changed = (grew: boolean) => own.flatMap((row, line) => row.significant && row.change > 0 === grew ? [range(line)] : []);
      editor.setDecorations(this.slower, changed(true));
      editor.setDecorations(this.faster, changed(false));
    }
  }

  dispose(): void {
    this.cost.dispose();
    this.slower.dispose();
    this.faster.dispose();
  }

  private rowsOf(uri: vscode.Uri): readonly DiffInstruction[] {
    return this.answers.get(uri.query)?.instructions ?? [];
  }
}

function sideOf(uri: vscode.Uri): 'before' | 'after' {
  return uri.fragment === 'before' ? 'before' : 'after';
}

function edge(colour: string): vscode.TextEditorDecorationType {
  const themed = new vscode.ThemeColor(colour);
  return vscode.window.createTextEditorDecorationType({
    isWholeLine: true, borderColor: themed, borderStyle: 'solid', borderWidth: '0 0 0 3px',
    overviewRulerColor: themed, overviewRulerLane: vscode.OverviewRulerLane.Left,
  });
}
