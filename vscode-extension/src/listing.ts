// A procedure's listing as a read-only document: `dwell:` documents whose text the server gives. Definitions lead from a
// line to its source, from a bubble to its culprits, from a register to who wrote it and from a branch or call to where it goes; from a source line "Show
// Listing" leads back. Basic blocks and the summary fold.
import * as vscode from 'vscode';
import type { ListingLine, ListingResult } from '@dwell/lsp-server/protocol';
import type { Client } from './client';
import type { Dwell } from './dwell';
import { hex } from './format';

const scheme = 'dwell';
/** Longer names would push the other tabs away. */
const titleLengthMax = 60;

export function activate(dwell: Dwell): vscode.Disposable {
  const listings = new Listings(dwell);
  return vscode.Disposable.from(
    listings,
    vscode.workspace.registerTextDocumentContentProvider(scheme, listings),
    vscode.languages.registerDefinitionProvider({ scheme }, listings),
    vscode.languages.registerFoldingRangeProvider({ scheme }, listings),
    vscode.languages.registerDocumentSymbolProvider({ scheme }, listings),
    dwell.failures.command('dwell.showListing', 'the listing', (what, address) => showListing(dwell, listings, what, typeof address === 'number' ? address : undefined)),
    dwell.failures.command('dwell.goToSource', 'the source', () => goToSource(listings)),
  );
}

/** The listings that are open, and what their lines stand for. */
class Listings implements vscode.TextDocumentContentProvider, vscode.DefinitionProvider, vscode.FoldingRangeProvider, vscode.DocumentSymbolProvider, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private readonly open = new Map<string, ListingResult>();
  private readonly subscription: vscode.Disposable;

  constructor(private readonly dwell: Dwell) {
    this.subscription = vscode.Disposable.from(
      vscode.workspace.onDidCloseTextDocument((document) => this.open.delete(document.uri.toString())),
      dwell.profile.onDidChange(() => { this.refresh(); }),
    );
  }

  async provideTextDocumentContent(uri: vscode.Uri, token: vscode.CancellationToken): Promise<string> {
    const key = uri.toString();
    try {
      const listing = await this.dwell.client.listing(procedureOf(uri), token);
      this.open.set(key, listing);
      return listing.text;
    } catch (error) {
      // What is shown now has no such procedure: an open listing stays as it was.
      const known = this.open.get(key);
      if (known) return known.text;
      throw error;
    }
  }

  provideDefinition(document: vscode.TextDocument, position: vscode.Position): vscode.Location[] {
    const line = this.line(document, position.line);
    if (!line) return [];
    const culprits = line.culpritLines.map((at) => new vscode.Location(document.uri, new vscode.Position(at, 0)));
    const source = this.source(line);
    const target = this.target(document, position, line);
    if (target) return [target];
    const writers = this.writers(document, position, line);
    if (writers.length > 0) return writers;
    if (culprits.length > 0) return culprits;
    return source ? [source] : [];
  }

  provideFoldingRanges(document: vscode.TextDocument): vscode.FoldingRange[] {
    const folds = this.open.get(document.uri.toString())?.folds ?? [];
    return folds.map(({ start, end }) => new vscode.FoldingRange(start, end, vscode.FoldingRangeKind.Region));
  }

  /** Blocks and summary, for the outline and the breadcrumbs. The head of a block has its best-case and actual CPI. */
  provideDocumentSymbols(document: vscode.TextDocument): vscode.DocumentSymbol[] {
    const listing = this.open.get(document.uri.toString());
    return (listing?.folds ?? []).flatMap(({ start, end, kind }) => {
      if (end >= document.lineCount) return [];
      const range = new vscode.Range(start, 0, end, document.lineAt(end).text.length);
      const address = listing?.lines.slice(start, end + 1).find((line) => line.address !== null)?.address;
      const name = kind === 'summary' ? 'Summary' : `Block ${typeof address === 'number' ? hex(address) : ''}`;
      const symbol = kind === 'summary' ? vscode.SymbolKind.Object : vscode.SymbolKind.Array;
      const detail = document.lineAt(start).text.replace(/^\*+ /, '');
      return [new vscode.DocumentSymbol(name, detail, symbol, range, document.lineAt(start).range)];
    });
  }

  /** The line of an instruction. */
  lineOfAddress(document: vscode.TextDocument, address: number): number | undefined {
    const at = this.open.get(document.uri.toString())?.lines.findIndex((line) => line.address === address) ?? -1;
    return at < 0 ? undefined : at;
  }

  /** Where the branch or call under the cursor goes: here, or in the listing of the procedure there. */
  private target(document: vscode.TextDocument, position: vscode.Position, { target }: ListingLine): vscode.Location | undefined {
    if (target === null) return undefined;
    const word = document.getText(document.getWordRangeAtPosition(position, /[0-9a-zA-Z_]+/));
    const isOperand = word.replace(/^0x/, '') === hex(target);
    const here = this.lineOfAddress(document, target);
    if (here !== undefined) return new vscode.Location(document.uri, new vscode.Position(here, 0));
    const image = (this.open.get(document.uri.toString())?.listing as { image?: { build_id?: string } } | undefined)?.image?.build_id;
    if (!isOperand || image === undefined) return undefined;
    return new vscode.Location(uriOf(`${image}:0x${hex(target)}`), new vscode.Position(0, 0));
  }

  /** Who may have written the register under the cursor last. */
  private writers(document: vscode.TextDocument, position: vscode.Position, { operands }: ListingLine): vscode.Location[] {
    const range = document.getWordRangeAtPosition(position, /[0-9a-zA-Z_]+/);
    const operand = range && operands.find(({ text }) => text === document.getText(range));
    return (operand?.lines ?? []).map((at) => new vscode.Location(document.uri, new vscode.Position(at, 0)));
  }

  line(document: vscode.TextDocument, at: number): ListingLine | undefined {
    return this.open.get(document.uri.toString())?.lines[at];
  }

  source(line: ListingLine): vscode.Location | undefined {
    if (!line.source) return undefined;
    return new vscode.Location(this.dwell.client.uri(line.source.uri), new vscode.Position(line.source.line, 0));
  }

  /** The first line of a listing that stands for a line of source. */
  lineOfSource(document: vscode.TextDocument, source: vscode.Location): number | undefined {
    const lines = this.open.get(document.uri.toString())?.lines ?? [];
    const at = lines.findIndex((line) => {
      const here = this.source(line);
      return here?.range.start.line === source.range.start.line && here.uri.toString() === source.uri.toString();
    });
    return at < 0 ? undefined : at;
  }

  dispose(): void {
    this.subscription.dispose();
    this.changed.dispose();
  }

  /** Asks again for those that are open, once there is something to show. */
  private refresh(): void {
    if (this.dwell.profile.state !== 'ready') return;
    for (const uri of this.open.keys()) this.changed.fire(vscode.Uri.parse(uri, true));
  }
}

/** The procedure is in the query; the path is what the tab shows. */
function uriOf(procedure: string): vscode.Uri {
  const name = procedure.slice(procedure.indexOf(':') + 1).replaceAll('/', '∕');
  const title = name.length > titleLengthMax ? `${name.slice(0, titleLengthMax - 1)}…` : name;
  return vscode.Uri.from({ scheme, path: `/${title}.dwell`, query: procedure });
}

function procedureOf(uri: vscode.Uri): string {
  return uri.query;
}

/** `address`: of an instruction to show. `what`: a procedure's id, as a lens gives it, or a row of the view; anything else means the cursor's place. */
async function showListing(dwell: Dwell, listings: Listings, what: unknown, address: number | undefined): Promise<void> {
  const row = rowId(what);
  const named = row ?? (typeof what === 'string' ? what : undefined);
  const editor = vscode.window.activeTextEditor;
  const cursor = editor?.document.uri.scheme === 'file' ? cursorOf(editor) : undefined;
  const procedure = named ?? await procedureAtCursor(dwell.client, cursor) ?? await askProcedure(dwell.client);
  if (procedure === undefined) return;
  const document = await vscode.workspace.openTextDocument(uriOf(procedure));
  const besideSource = cursor !== undefined && row === undefined;
  const shown = await vscode.window.showTextDocument(document, { viewColumn: column(besideSource), preview: true });
  const ofCursor = named === undefined && cursor ? listings.lineOfSource(document, cursor) : undefined;
  const at = address === undefined ? ofCursor : listings.lineOfAddress(document, address);
  if (at === undefined) return;
  shown.selection = new vscode.Selection(at, 0, at, 0);
  shown.revealRange(shown.selection, vscode.TextEditorRevealType.InCenter);
}

function rowId(what: unknown): string | undefined {
  if (typeof what === 'object' && what !== null && 'id' in what && typeof what.id === 'string') return what.id;
  return undefined;
}

function cursorOf(editor: vscode.TextEditor): vscode.Location {
  return new vscode.Location(editor.document.uri, editor.selection.active);
}

/** Where another listing is shown already, else beside the source, else where the user is. */
function column(besideSource: boolean): vscode.ViewColumn {
  const shown = vscode.window.visibleTextEditors.find((editor) => editor.document.uri.scheme === scheme);
  return shown?.viewColumn ?? (besideSource ? vscode.ViewColumn.Beside : vscode.ViewColumn.Active);
}

/** What the cursor's line was compiled into, else the procedure that begins last above it. */
async function procedureAtCursor(client: Client, cursor: vscode.Location | undefined): Promise<string | undefined> {
  if (!cursor) return undefined;
  const costs = await client.fileCosts(cursor.uri);
  const here = cursor.range.start.line;
  const ofLine = costs.lines.find((line) => line.line === here)?.procedures ?? [];
  if (ofLine.length > 1) return vscode.window.showQuickPick(ofLine, { title: 'Dwell: Show Listing', placeHolder: 'This line was compiled into several functions' });
  return ofLine[0] ?? costs.procedures.filter((procedure) => procedure.line <= here).at(-1)?.id;
}

async function askProcedure(client: Client): Promise<string | undefined> {
  const { rows } = await client.hotProcedures({ by: 'procedure', limit: 100 });
  const items = rows.map((row) => ({ label: row.label, description: row.image ?? '', id: row.id }));
  const pick = await vscode.window.showQuickPick(items, { title: 'Dwell: Show Listing', placeHolder: 'The function', matchOnDescription: true });
  return pick?.id;
}

async function goToSource(listings: Listings): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return;
  const line = listings.line(editor.document, editor.selection.active.line);
  const source = line && listings.source(line);
  if (!source) throw new Error('no source is known for this line');
  const visible = vscode.window.visibleTextEditors.find((other) => other.document.uri.toString() === source.uri.toString());
  const where = visible?.viewColumn ?? editor.viewColumn ?? vscode.ViewColumn.Active;
  await vscode.window.showTextDocument(source.uri, { selection: source.range, viewColumn: where });
}
