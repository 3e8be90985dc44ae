// What stands after a line: its share as a bar in the colour of its heat, then the server's words, whole. Decorations of our own and not
// inlay hints, which VS Code cuts at 43 characters together with those of other extensions on the same line.
import * as vscode from 'vscode';
import { lineEnds, type LineEnd, type Marks, type Shown } from './lineText';

/** Beyond the end of any line. The editor takes it for the line's end as it is when it draws, which what is typed meanwhile may have
 *  moved. */
const endOfLine = 2 ** 30 - 1;

const tones: Record<LineEnd['tone'], string> = {
  cost: 'dwell.lineEnd', slower: 'dwell.change.slower', faster: 'dwell.change.faster', stale: 'dwell.stale',
};

export class LineEnds implements vscode.Disposable {
  // Two kinds, since a decoration has one colour. They are set one after the other, which is the order that they stand in; text that
  // is typed at the line's end comes before both.
  private readonly bar = vscode.window.createTextEditorDecorationType({ rangeBehavior: vscode.DecorationRangeBehavior.OpenOpen });
  private readonly words = vscode.window.createTextEditorDecorationType({ rangeBehavior: vscode.DecorationRangeBehavior.OpenOpen });
  private readonly last = new Map<string, LineEnd[]>();

  draw(editor: vscode.TextEditor, marks: Marks, shown: Shown): void {
    const { document } = editor;
    const ends = lineEnds(marks, shown);
    const after = ({ line }: LineEnd, contentText: string, colour: string, margin: string): vscode.DecorationOptions =>
      ({ range: new vscode.Range(line, 0, line, endOfLine), renderOptions: { after: { contentText, color: new vscode.ThemeColor(colour), margin } } });
    editor.setDecorations(this.bar, ends.filter(({ bar }) => bar !== '').map((end) => after(end, end.bar, `dwell.heat.${end.heat}`, '0 0 0 2ch')));
    editor.setDecorations(this.words, ends.map((end) => after(end, end.text, tones[end.tone], end.bar === '' ? '0 0 0 2ch' : '0 0 0 1ch')));
    this.last.set(document.uri.toString(), ends);
  }

  /** As drawn last. */
  drawn(document: vscode.Uri): { line: number; text: string }[] {
    return (this.last.get(document.toString()) ?? []).map(({ line, bar, text }) => ({ line, text: bar === '' ? text : `${bar} ${text}` }));
  }

  forgetBut(documents: ReadonlySet<vscode.TextDocument>): void {
    const kept = new Set([...documents].map(({ uri }) => uri.toString()));
    for (const key of [...this.last.keys()].filter((each) => !kept.has(each))) this.last.delete(key);
  }

  dispose(): void {
    this.bar.dispose();
    this.words.dispose();
  }
}
