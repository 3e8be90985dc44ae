// Heat beside the code: a coloured edge at each hot line's start and a mark in the overview ruler, so that hot spots show
// while scrolling. Nothing moves the text. The numbers are in the hints; where hints are off there is no heat either.
import * as vscode from 'vscode';
import type { HintLevel, LineCost } from '@dwell/lsp-server/protocol';
import { languages } from './client';
import type { Dwell } from './dwell';
import { isCancellation, reason } from './failures';
import { heatOf, heats, type Heat } from './heatLevel';

export function activate(dwell: Dwell): vscode.Disposable {
  const heat = new HeatMap(dwell);
  return vscode.Disposable.from(
    heat,
    dwell.profile.onDidChange(() => { heat.showAll(); }),
    vscode.window.onDidChangeVisibleTextEditors(() => { heat.showAll(); }),
    vscode.workspace.onDidSaveTextDocument((document) => { heat.show(document); }),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration('dwell')) heat.showAll();
    }),
  );
}

class HeatMap implements vscode.Disposable {
  private readonly marks = new Map(heats.map((heat) => [heat, decoration(heat)]));
  private readonly lastAsked = new Map<string, number>();

  constructor(private readonly dwell: Dwell) {}

  showAll(): void {
    for (const { document } of vscode.window.visibleTextEditors) this.show(document);
  }

  show(document: vscode.TextDocument): void {
    if (document.uri.scheme === 'file' && languages.includes(document.languageId)) void this.update(document);
  }

  dispose(): void {
    for (const mark of this.marks.values()) mark.dispose();
  }

  /** Does not reject. Of overlapping questions about a document the last one counts. */
  private async update(document: vscode.TextDocument): Promise<void> {
    const key = document.uri.toString();
    const asked = (this.lastAsked.get(key) ?? 0) + 1;
    this.lastAsked.set(key, asked);
    const version = document.version;
    const lines = await this.ask(document);
    if (lines === undefined || asked !== this.lastAsked.get(key) || version !== document.version) return;
    for (const editor of vscode.window.visibleTextEditors.filter((each) => each.document === document)) this.draw(editor, lines);
  }

  /** `undefined`: what is drawn may stay. */
  private async ask(document: vscode.TextDocument): Promise<LineCost[] | undefined> {
    const { client, profile, log } = this.dwell;
    if (profile.state === 'starting') return undefined;
    const hints = vscode.workspace.getConfiguration('dwell').get<HintLevel>('hints', 'hot');
    if (profile.state !== 'ready' || hints === 'off') return [];
    try {
      return (await client.fileCosts(document.uri)).lines;
    } catch (error) {
      if (!isCancellation(error)) log.warn(`heat of ${document.uri.path}: ${reason(error)}`);
      return undefined;
    }
  }

  private draw(editor: vscode.TextEditor, lines: readonly LineCost[]): void {
    const leastShare = vscode.workspace.getConfiguration('dwell').get('hotShare', 0.01);
    const inFile = lines.filter((line) => line.line < editor.document.lineCount);
    for (const [heat, mark] of this.marks) {
      const hot = inFile.filter((line) => heatOf(line.share, leastShare) === heat);
      editor.setDecorations(mark, hot.map((line) => new vscode.Range(line.line, 0, line.line, 0)));
    }
  }
}

function decoration(heat: Heat): vscode.TextEditorDecorationType {
  const colour = new vscode.ThemeColor(`dwell.heat.${heat}`);
  return vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    borderColor: colour,
    borderStyle: 'solid',
    borderWidth: '0 0 0 3px',
    overviewRulerColor: colour,
    overviewRulerLane: vscode.OverviewRulerLane.Left,
    rangeBehavior: vscode.DecorationRangeBehavior.ClosedClosed,
  });
}
