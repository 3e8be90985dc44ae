// Heat beside the code: a coloured edge at each hot line's start and a mark in the overview ruler, so that hot spots show while
// scrolling. A line that was edited since it was measured has a grey broken edge. Nothing moves the text.
import * as vscode from 'vscode';
import { heatOf, heats, type Heat, type Marks, type Shown } from './lineText';

export class HeatEdges implements vscode.Disposable {
  private readonly marks = new Map(heats.map((heat) => [heat, decoration(heat)]));
  private readonly stale = edge('dwell.stale', 'dashed');

  draw(editor: vscode.TextEditor, { lines, stale }: Marks, { hotShare, all }: Shown): void {
    for (const [heat, mark] of this.marks) {
      const hot = lines.filter(({ share }) => heatOf(share, hotShare) === heat);
      editor.setDecorations(mark, hot.map(({ line }) => atStart(line)));
    }
    const edited = stale.filter(({ share }) => share >= (all ? 0 : hotShare));
    editor.setDecorations(this.stale, edited.map(({ line }) => atStart(line)));
  }

  dispose(): void {
    for (const mark of [...this.marks.values(), this.stale]) mark.dispose();
  }
}

function atStart(line: number): vscode.Range {
  return new vscode.Range(line, 0, line, 0);
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
