// What lines cost, on the lines of every editor in sight: asks the server and has the marks drawn. VS Code moves the marks with the
// text while one types; once that rests the server is asked anew, so that a keystroke waits for nothing. Where `dwell.hints` is off
// there are no marks.
import * as vscode from 'vscode';
import type { HintLevel } from '@dwell/lsp-server/protocol';
import { languages } from './client';
import type { Dwell } from './dwell';
import { isCancellation, reason } from './failures';
import { HeatEdges } from './heat';
import { LineEnds } from './lineEnds';
import type { Marks, Shown } from './lineText';

/** The costs are requested again once nothing was typed for this long. */
const quiet_ms = 150;

/** What other extensions, and tests, may ask this one. */
export interface Api {
  /** What stands at the ends of a document's lines (from 0), as drawn last; of a document that no editor shows nothing. */
  lineEnds(document: vscode.Uri): { line: number; text: string }[];
}

export class LineMarks implements vscode.Disposable, Api {
  private readonly edges = new HeatEdges();
  private readonly ends = new LineEnds();
  private readonly lastAsked = new Map<string, number>();
  private readonly timers = new Map<string, NodeJS.Timeout>();
  private readonly subscription: vscode.Disposable;

  constructor(private readonly dwell: Dwell) {
    this.subscription = vscode.Disposable.from(
      dwell.profile.onDidChange(() => { this.showAll(); }),
      vscode.window.onDidChangeVisibleTextEditors(() => { this.showAll(); }),
      vscode.workspace.onDidSaveTextDocument((document) => { this.show(document); }),
      vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
        if (contentChanges.length > 0) this.edited(document);
      }),
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration('dwell')) this.showAll();
      }),
    );
  }

  lineEnds(document: vscode.Uri): { line: number; text: string }[] {
    return this.ends.drawn(document);
  }

  dispose(): void {
    for (const timer of this.timers.values()) clearTimeout(timer);
    for (const disposable of [this.subscription, this.edges, this.ends]) disposable.dispose();
  }

  private showAll(): void {
    const documents = new Set(vscode.window.visibleTextEditors.map(({ document }) => document));
    this.ends.forgetBut(documents);
    for (const document of documents) this.show(document);
  }

  private show(document: vscode.TextDocument): void {
    if (document.uri.scheme === 'file' && languages.includes(document.languageId)) void this.update(document);
  }

  private edited(document: vscode.TextDocument): void {
    const key = document.uri.toString();
    clearTimeout(this.timers.get(key));
    this.timers.set(key, setTimeout(() => {
      this.timers.delete(key);
      this.show(document);
    }, quiet_ms));
  }

  /** Does not reject. Of overlapping questions about a document the last one counts. */
  private async update(document: vscode.TextDocument): Promise<void> {
    const key = document.uri.toString();
    const asked = (this.lastAsked.get(key) ?? 0) + 1;
    this.lastAsked.set(key, asked);
    const version = document.version;
    const marks = await this.ask(document);
    if (marks === undefined || asked !== this.lastAsked.get(key) || version !== document.version) return;
    const inFile = withinLines(marks, document.lineCount);
    for (const editor of vscode.window.visibleTextEditors.filter((each) => each.document === document)) {
      this.edges.draw(editor, inFile, shownOf(document));
      this.ends.draw(editor, inFile, shownOf(document));
    }
  }

  /** `undefined`: what is drawn may stay. */
  private async ask(document: vscode.TextDocument): Promise<Marks | undefined> {
    const { client, profile, log } = this.dwell;
    if (profile.state === 'starting') return undefined;
    if (profile.state !== 'ready' || hintsOf(document) === 'off') return nothing;
    try {
      const [costs, changes] = await Promise.all([client.fileCosts(document.uri), profile.baseline ? client.fileChanges(document.uri) : null]);
      return { ...costs, changes: changes?.lines ?? null };
    } catch (error) {
      if (!isCancellation(error)) log.warn(`what the lines of ${document.uri.path} cost: ${reason(error)}`);
      return undefined;
    }
  }
}

const nothing: Marks = { lines: [], stale: [], changes: null };

/** Less what is past the end: a document may have become shorter meanwhile. */
function withinLines({ lines, stale, changes }: Marks, lineCount: number): Marks {
  const within = ({ line }: { line: number }) => line < lineCount;
  return { lines: lines.filter(within), stale: stale.filter(within), changes: changes?.filter(within) ?? null };
}

function shownOf(document: vscode.TextDocument): Shown {
  return { hotShare: vscode.workspace.getConfiguration('dwell', document.uri).get('hotPercent', 1) / 100, all: hintsOf(document) === 'all' };
}

function hintsOf(document: vscode.TextDocument): HintLevel {
  return vscode.workspace.getConfiguration('dwell', document.uri).get<HintLevel>('hints', 'hot');
}
