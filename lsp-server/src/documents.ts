/**
 * Open documents, each with its lines traced back to the text as it was opened or last saved.
 */
import { TextDocument, type TextDocumentContentChangeEvent } from 'vscode-languageserver-textdocument';
import { editLines, foundAgain, lineDifference, splitLines, type Origins } from './lineMap';

/** Lines of the file on disk → lines of the buffer. */
export interface Places {
  /** Those whose text is as it was; indentation is no edit. */
  same: ReadonlyMap<number, number>;
  /** Those that were edited in place. */
  edited: ReadonlyMap<number, number>;
}

export class TrackedDocument {
  private lines: string[];
  private savedText: string;
  private origins: Origins;
  /** The file on disk, split once. */
  private disk: { text: string; lines: string[] } | undefined;
  private mapped: { saved: string; version: number; places: Places } | undefined;

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

  /** Where a line of the text as it was opened or last saved stands; undefined: it is gone. */
  lineOfSaved(saved: number): number | undefined {
    const line = this.origins.indexOf(saved);
    return line < 0 ? undefined : line;
  }

  /** Which line of the text as it was opened or last saved a line was; undefined: it is new. */
  savedLine(line: number): number | undefined {
    const saved = this.origins[line];
    return saved === undefined || saved < 0 ? undefined : saved;
  }

  /** The text as it is now is what is on disk. */
  saved(): void {
    this.savedText = this.document.getText();
    this.origins = this.lines.map((_, line) => line);
    this.mapped = undefined;
  }

  /** Where the lines of the file on disk stand in the buffer; a line that is gone has no place. */
  placesOf(textOnDisk: string): Places {
    const known = this.mapped;
    if (known?.saved === textOnDisk && known.version === this.version) return known.places;
    if (this.disk?.text !== textOnDisk) this.disk = { text: textOnDisk, lines: splitLines(textOnDisk) };
    const disk = this.disk.lines;
    const origins = textOnDisk === this.savedText ? foundAgain(this.origins, disk, this.lines) : lineDifference(disk, this.lines);
    const same = new Map<number, number>();
    const edited = new Map<number, number>();
    origins.forEach((from, line) => {
      if (from < 0 || same.has(from)) return;
      if (disk[from]?.trim() === this.lines[line]?.trim()) same.set(from, line);
      else if (!edited.has(from)) edited.set(from, line);
    });
    for (const from of same.keys()) edited.delete(from);
    this.mapped = { saved: textOnDisk, version: this.version, places: { same, edited } };
    return this.mapped.places;
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
