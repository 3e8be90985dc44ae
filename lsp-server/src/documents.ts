/**
 * Open documents, each with its lines traced back to the text as it was opened or last saved.
 */
import { TextDocument, type TextDocumentContentChangeEvent } from 'vscode-languageserver-textdocument';
import { editLines, lineDifference, splitLines, type Origins } from './lineMap';

export class TrackedDocument {
  private lines: string[];
  private savedText: string;
  private origins: Origins;
  /** The file on disk, split once. */
  private disk: { text: string; lines: string[] } | undefined;
  private mapped: { saved: string; version: number; toBuffer: Map<number, number> } | undefined;

  constructor(private readonly document: TextDocument) {
    this.savedText = document.getText();
    this.lines = splitLines(this.savedText);
    this.origins = this.lines.map((_, line) => line);
  }

  get uri(): string {
    return this.document.uri;
  }

  get version(): number {
    return this.document.version;
  }

  get lineCount(): number {
    return this.lines.length;
  }

  lineText(line: number): string {
    return this.lines[line] ?? '';
  }

  /** The text as it is now is what is on disk. */
  saved(): void {
    this.savedText = this.document.getText();
    this.origins = this.lines.map((_, line) => line);
    this.mapped = undefined;
  }

  /**
   * Where the lines of the file on disk stand in the buffer; a line that was edited, or is gone, has no place.
   * Indentation is no edit.
   */
  placesOf(textOnDisk: string): ReadonlyMap<number, number> {
    const known = this.mapped;
    if (known?.saved === textOnDisk && known.version === this.version) return known.toBuffer;
    if (this.disk?.text !== textOnDisk) this.disk = { text: textOnDisk, lines: splitLines(textOnDisk) };
    const disk = this.disk.lines;
    const origins = textOnDisk === this.savedText ? this.origins : lineDifference(disk, this.lines);
    const toBuffer = new Map<number, number>();
    origins.forEach((from, line) => {
      if (from >= 0 && !toBuffer.has(from) && disk[from]?.trim() === this.lines[line]?.trim()) toBuffer.set(from, line);
    });
    this.mapped = { saved: textOnDisk, version: this.version, toBuffer };
    return toBuffer;
  }

  apply(change: TextDocumentContentChangeEvent, version: number): void {
    const before = this.lines;
    if ('range' in change) {
      const { start, end } = change.range;
      const first = clamp(Math.min(start.line, end.line), before.length);
      const last = clamp(Math.max(start.line, end.line), before.length);
      TextDocument.update(this.document, [change], version);
      const grown = this.document.lineCount - before.length;
      const after = this.textOfLines(first, last + grown);
      this.origins = editLines(this.origins, first, last, before.slice(first, last + 1), after);
      this.lines = [...before.slice(0, first), ...after, ...before.slice(last + 1)];
    } else {
      TextDocument.update(this.document, [change], version);
    }
    // The whole text was replaced, or the edit came between a carriage return and its line feed.
    if (!('range' in change) || this.lines.length !== this.document.lineCount) this.replaceAll();
  }

  private replaceAll(): void {
    this.lines = splitLines(this.document.getText());
    this.origins = lineDifference(splitLines(this.savedText), this.lines);
  }

  private textOfLines(first: number, last: number): string[] {
    const range = { start: { line: first, character: 0 }, end: { line: last + 1, character: 0 } };
    const lines = splitLines(this.document.getText(range));
    return lines.slice(0, last - first + 1);
  }
}

/** How `TextDocuments` makes and changes them. */
export const tracking = {
  create: (uri: string, languageId: string, version: number, content: string): TrackedDocument =>
    new TrackedDocument(TextDocument.create(uri, languageId, version, content)),
  update: (tracked: TrackedDocument, changes: TextDocumentContentChangeEvent[], version: number): TrackedDocument => {
    for (const change of changes) tracked.apply(change, version);
    return tracked;
  },
};

function clamp(line: number, lineCount: number): number {
  return Math.max(0, Math.min(line, lineCount - 1));
}
