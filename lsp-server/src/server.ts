/**
 * The server's wiring: which request is answered by which file, in which state. Answers are made elsewhere.
 */
import {
  ExecuteCommandRequest,
  LSPErrorCodes,
  PositionEncodingKind,
  ResponseError,
  TextDocumentSyncKind,
  TextDocuments,
  type CancellationToken,
  type Connection,
  type ExecuteCommandParams,
  type InitializeParams,
  type InitializeResult,
} from 'vscode-languageserver';
import { codeLenses } from './codeLens';
import { errorCode, errorMessage, type Binding } from './core';
import { tracking } from './documents';
import { epochs } from './epochs';
import { fileCosts } from './fileCosts';
import { viewFile, type FileView } from './fileView';
import { hotProcedures } from './hotProcedures';
import { hover } from './hover';
import { inlayHints } from './inlayHints';
import { listing } from './listing';
import { Profile } from './profile';
import { startProgress } from './progress';
import { commands, methods, protocolVersion, type FileCostsParams, type HotProceduresParams, type ListingParams } from './protocol';
import { invalid, newEpoch, record } from './record';
import { isRecord, isText, isTextList, readSettings, type ValidSettings } from './settings';
import { Cancelled } from './shared';
import { Watch } from './watch';

export interface ServerOptions {
  binding: Binding;
  version: string;
  /** Where the `dwell` program may lie. */
  folder: string;
}

/** Serves one client until its connection ends. */
export function serve(connection: Connection, options: ServerOptions): void {
  new Server(connection, options).listen();
}

class Server {
  private readonly documents = new TextDocuments(tracking);
  private readonly profile: Profile;
  private readonly told = new Set<string>();
  private settings: ValidSettings = readSettings(undefined);
  private watch: Watch | undefined;
  private pullsSettings = false;
  private takesProgress = false;

  constructor(
    private readonly connection: Connection,
    private readonly options: ServerOptions,
  ) {
    this.profile = new Profile(
      options.binding,
      () => this.watch?.changed(),
      (note) => {
        this.tellOnce(note);
      },
    );
  }

  listen(): void {
    const { connection, documents, profile } = this;
    connection.onInitialize((params) => this.initialize(params));
    connection.onInitialized(() => {
      this.watch?.start();
      return this.pullSettings();
    });
    connection.onDidChangeConfiguration(({ settings }) => this.configurationChanged(settings));
    connection.onShutdown(() => {
      this.watch?.dispose();
      profile.close();
    });
    documents.onDidSave(({ document }) => {
      document.saved();
      this.watch?.changed();
    });
    this.answerEditors();
    this.answerDwell();
    documents.listen(connection);
    connection.listen();
  }

  /** What LSP has requests for. */
  private answerEditors(): void {
    const { connection } = this;
    connection.languages.inlayHint.on(({ textDocument, range }, token) =>
      this.view(textDocument.uri, token, (view) => inlayHints(view, range, this.settings)),
    );
    connection.onCodeLens(({ textDocument }, token) => this.view(textDocument.uri, token, codeLenses));
    connection.onHover(({ textDocument, position }, token) => this.view(textDocument.uri, token, (view) => hover(view, position.line)));
    // Not onExecuteCommand, which keeps the progress token to itself.
    connection.onRequest(ExecuteCommandRequest.type, (params, token) => answered(token, () => this.execute(params, token)));
  }

  /** What it has none for. */
  private answerDwell(): void {
    const { profile } = this;
    this.answerOwn(methods.epochs, (_params, token) => epochs(profile, token));
    this.answerOwn(methods.hotProcedures, (params, token) => hotProcedures(profile, hotProceduresParams(params), token));
    this.answerOwn(methods.listing, (params, token) => listing(profile, listingParams(params), token));
    this.answerOwn(methods.fileCosts, (params, token) => this.view(fileCostsParams(params).textDocument.uri, token, fileCosts));
  }

  private answerOwn(method: string, answer: (params: unknown, token: CancellationToken) => Promise<unknown>): void {
    this.connection.onRequest(method, (...given: unknown[]) => {
      // Lua's empty table arrives as an empty list: no parameters by position, the token alone.
      const token = given.pop() as CancellationToken;
      return answered(token, () => answer(given[0], token));
    });
  }

  private initialize({ capabilities, initializationOptions }: InitializeParams): InitializeResult {
    this.watch = new Watch(this.connection, capabilities, () => this.profile.selected);
    this.takesProgress = capabilities.window?.workDoneProgress === true;
    // A client that sends settings is not asked for them: it may send more than is configured, a selection say.
    this.pullsSettings = capabilities.workspace?.configuration === true && !isRecord(initializationOptions);
    this.configure(initializationOptions);
    return {
      serverInfo: { name: 'dwell-lsp', version: this.options.version },
      capabilities: {
        positionEncoding: PositionEncodingKind.UTF16,
        textDocumentSync: { openClose: true, change: TextDocumentSyncKind.Incremental, save: { includeText: false } },
        inlayHintProvider: { resolveProvider: false },
        codeLensProvider: { resolveProvider: false },
        hoverProvider: true,
        executeCommandProvider: { commands: Object.values(commands), workDoneProgress: true },
        workspace: { workspaceFolders: { supported: true } },
        experimental: { dwell: { version: protocolVersion } },
      },
    };
  }

  private configure(sent: unknown): void {
    const before = this.settings;
    this.settings = readSettings(sent);
    const { database, epochs } = this.settings;
    // Settings that come again as they were do not undo a selection made since.
    const same = before.database === database && before.epochs.join('\n') === epochs.join('\n');
    if (!same || this.profile.folder === '') this.profile.use(database, epochs);
    else this.watch?.changed();
  }

  private async configurationChanged(settings: unknown): Promise<void> {
    const own = isRecord(settings) ? settings.dwell : undefined;
    if (own === undefined || own === null) await this.pullSettings();
    else this.configure(own);
  }

  /** Clients that answer `workspace/configuration` may say nothing at initialization. */
  private async pullSettings(): Promise<void> {
    if (!this.pullsSettings) return;
    const pulled: unknown = await this.connection.workspace.getConfiguration('dwell').catch(() => null);
    if (isRecord(pulled)) this.configure(pulled);
  }

  private view<T>(uri: string, token: CancellationToken, shape: (view: FileView | undefined) => T): Promise<T> {
    return answered(token, async () => shape(await viewFile(this.profile, this.documents, uri, token)));
  }

  private async execute({ command, arguments: [argument] = [], workDoneToken }: ExecuteCommandParams, token: CancellationToken): Promise<unknown> {
    const programs = { dwellPath: this.settings.dwellPath, serverFolder: this.options.folder };
    switch (command) {
      case commands.selectEpochs:
        if (!isTextList(argument)) throw invalid(`${command}: the argument must be a list of epochs`);
        this.profile.select(argument);
        return null;
      case commands.record:
        return record(this.profile, programs, argument, token, await startProgress(this.connection, workDoneToken, this.takesProgress));
      case commands.newEpoch:
        return newEpoch(this.profile, programs, argument, token);
      case commands.listing:
        if (!isText(argument)) throw invalid(`${command}: the argument must be a procedure`);
        return listing(this.profile, { procedure: argument }, token);
      default:
        throw invalid(`${command}: no such command`);
    }
  }

  /** In the client's log, each thing once: never a window over the work. */
  private tellOnce(note: string): void {
    if (this.told.has(note)) return;
    this.told.add(note);
    this.connection.console.info(note);
  }
}

/** Answers, or says in LSP's words why not. */
async function answered<T>(token: CancellationToken, answer: () => Promise<T>): Promise<T> {
  let value: T;
  try {
    value = await answer();
  } catch (error) {
    if (error instanceof ResponseError) throw error;
    if (error instanceof Cancelled || errorCode(error) === 'cancelled') throw cancelled();
    throw new ResponseError(LSPErrorCodes.RequestFailed, errorMessage(error), { code: errorCode(error) });
  }
  if (token.isCancellationRequested) throw cancelled();
  return value;
}

function cancelled(): ResponseError {
  return new ResponseError(LSPErrorCodes.RequestCancelled, 'cancelled');
}

function hotProceduresParams(params: unknown): HotProceduresParams {
  const { by, limit } = isRecord(params) ? params : {};
  if (by !== undefined && by !== 'procedure' && by !== 'image' && by !== 'line' && by !== 'app') {
    throw invalid(`${methods.hotProcedures}: 'by' must be procedure, image, line or app`);
  }
  if (limit !== undefined && (typeof limit !== 'number' || !Number.isSafeInteger(limit) || limit < 0)) {
    throw invalid(`${methods.hotProcedures}: 'limit' must be a number of rows`);
  }
  return { ...(by === undefined ? {} : { by }), ...(limit === undefined ? {} : { limit }) };
}

function listingParams(params: unknown): ListingParams {
  const procedure = isRecord(params) ? params.procedure : undefined;
  if (!isText(procedure)) throw invalid(`${methods.listing}: 'procedure' must name one`);
  return { procedure };
}

function fileCostsParams(params: unknown): FileCostsParams {
  const textDocument = isRecord(params) ? params.textDocument : undefined;
  const uri = isRecord(textDocument) ? textDocument.uri : undefined;
  if (!isText(uri)) throw invalid(`${methods.fileCosts}: 'textDocument.uri' must name a document`);
  return { textDocument: { uri } };
}
