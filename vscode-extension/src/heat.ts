// Heat beside the code: a coloured edge at each hot line's start, its share as a bar at its end and a mark in the overview
// ruler, so that hot spots show while scrolling. Nothing moves the text. A line that was edited since it was measured has a
// grey broken edge and no bar. The numbers are in the hints; where hints are off there is no heat either.
import * as vscode from 'vscode';
import type { FileCostsResult, HintLevel, LineCost } from '@dwell/lsp-server/protocol';
import { languages } from './client';
import type { Dwell } from './dwell';
import { isCancellation, reason } from './failures';
import { heatOf, heats, lineEnd, type Heat } from './heatLevel';

/** After so long without a keystroke the marks are asked for anew; until then VS Code moves them with the text. */
const quiet_ms = 150;

export function activate(dwell: Dwell): vscode.Disposable {
  const heat = new HeatMap(dwell);
  return vscode.Disposable.from(
    heat,
    dwell.profile.onDidChange(() => { heat.showAll(); }),
    vscode.window.onDidChangeVisibleTextEditors(() => { heat.showAll(); }),
    vscode.workspace.onDidSaveTextDocument((document) => { heat.show(document); }),
    vscode.workspace.onDidChangeTextDocument(({ document }) => { heat.edited(document); }),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration('dwell')) heat.showAll();
    }),
  );
}

class HeatMap implements vscode.Disposable {
  private readonly marks = new Map(heats.map((heat) => [heat, decoration(heat)]));
  private readonly bar = vscode.window.createTextEditorDecorationType({ rangeBehavior: vscode.DecorationRangeBehavior.OpenOpen });
  private readonly stale = edge('dwell.stale', 'dashed');
  private readonly lastAsked = new Map<string, number>();
  private readonly timers = new Map<string, NodeJS.Timeout>();

  constructor(private readonly dwell: Dwell) {}

  showAll(): void {
    for (const { document } of vscode.window.visibleTextEditors) this.show(document);
  }

  show(document: vscode.TextDocument): void {
    if (document.uri.scheme === 'file' && languages.includes(document.languageId)) void this.update(document);
  }

  edited(document: vscode.TextDocument): void {
    const key = document.uri.toString();
    clearTimeout(this.timers.get(key));
    this.timers.set(key, setTimeout(() => {
      this.timers.delete(key);
      this.show(document);
    }, quiet_ms));
  }

  dispose(): void {
    for (const timer of this.timers.values()) clearTimeout(timer);
    for (const mark of [...this.marks.values(), this.bar, this.stale]) mark.dispose();
  }

  /** Does not reject. Of overlapping questions about a document the last one counts. */
  private async update(document: vscode.TextDocument): Promise<void> {
    const key = document.uri.toString();
    const asked = (this.lastAsked.get(key) ?? 0) + 1;
    this.lastAsked.set(key, asked);
    const version = document.version;
    const costs = await this.ask(document);
    if (costs === undefined || asked !== this.lastAsked.get(key) || version !== document.version) return;
    for (const editor of vscode.window.visibleTextEditors.filter((each) => each.document === document)) this.draw(editor, costs);
  }

  /** `undefined`: what is drawn may stay. */
  private async ask(document: vscode.TextDocument): Promise<Marks | undefined> {
    const { client, profile, log } = this.dwell;
    if (profile.state === 'starting') return undefined;
    const hints = vscode.workspace.getConfiguration('dwell', document.uri).get<HintLevel>('hints', 'hot');
    if (profile.state !== 'ready' || hints === 'off') return nothing;
    try {
      return await client.fileCosts(document.uri);
    } catch (error) {
      if (!isCancellation(error)) log.warn(`heat of ${document.uri.path}: ${reason(error)}`);
      return undefined;
    }
  }

  private draw(editor: vscode.TextEditor, { lines, stale }: Marks): void {
    const { document } = editor;
    const settings = vscode.workspace.getConfiguration('dwell', document.uri);
    const hotShare = settings.get('hotShare', 0.01);
    const inFile = lines.filter(({ line }) => line < document.lineCount);
    for (const [heat, mark] of this.marks) {
      const hot = inFile.filter((line) => heatOf(line.share, hotShare) === heat);
      editor.setDecorations(mark, hot.map(({ line }) => atStart(line)));
    }
    const leastShare = settings.get<HintLevel>('hints', 'hot') === 'all' ? 0 : hotShare;
    // While runs are compared the line's end tells the change.
    const barred = this.dwell.profile.baseline ? [] : inFile.filter(({ share }) => share >= leastShare);
    editor.setDecorations(this.bar, barred.map((cost) => ({ range: document.lineAt(cost.line).range, renderOptions: { after: barOf(cost, hotShare) } })));
    const edited = stale.filter(({ line, share }) => line < document.lineCount && share >= leastShare);
    editor.setDecorations(this.stale, edited.map(({ line }) => atStart(line)));
  }
}

type Marks = Pick<FileCostsResult, 'lines' | 'stale'>;
const nothing: Marks = { lines: [], stale: [] };

function atStart(line: number): vscode.Range {
  return new vscode.Range(line, 0, line, 0);
}

function barOf(cost: LineCost, hotShare: number): vscode.ThemableDecorationAttachmentRenderOptions {
  const colour = new vscode.ThemeColor(`dwell.heat.${heatOf(cost.share, hotShare) ?? 'warm'}`);
  return { contentText: lineEnd(cost), color: colour, margin: '0 1ch' };
}

function decoration(heat: Heat): vscode.TextEditorDecorationType {
  return edge(`dwell.heat.${heat}`, 'solid');
}

function edge(name: string, style: string): vscode.TextEditorDecorationType {
  const colour = new vscode.ThemeColor(name);
  return vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    borderColor: colour,
    borderStyle: style,
    borderWidth: '0 0 0 3px',
    overviewRulerColor: colour,
    overviewRulerLane: vscode.OverviewRulerLane.Left,
    rangeBehavior: vscode.DecorationRangeBehavior.ClosedClosed,
  });
}
