/**
 * The server's wiring: which request is answered by which file, in which state. Answers are made elsewhere.
 */
import {
  CallHierarchyPrepareRequest,
  CancellationToken,
  ExecuteCommandRequest,
  LSPErrorCodes,
  MarkupKind,
  PositionEncodingKind,
  ResponseError,
  TextDocumentSyncKind,
  TextDocuments,
  type Connection,
  type Disposable,
  type ExecuteCommandParams,
  type InitializeParams,
  type Hover,
  type InitializeResult,
  type InlayHint,
  type Range,
} from 'vscode-languageserver';
import { callers, functionsOf } from './callers';
import { incomingCalls, outgoingCalls, prepare } from './callHierarchy';
import { codeLenses } from './codeLens';
import { errorCode, errorMessage, type Binding, type Callers } from './core';
import { tracking } from './documents';
import { cfg } from './cfg';
import { CountedCalls, namesAt } from './countedCalls';
import { Diagnostics } from './diagnostics';
import { changesOf, diff, fileChanges, lineChanges, stats } from './diff';
import { compare, epochs, removeEpochs, renameEpoch } from './epochs';
import { flame } from './flame';
import { fileCosts, lineCosts } from './fileCosts';
import { pathOf } from './fileUri';
import { viewFile, type FileView } from './fileView';
import { hotProcedures } from './hotProcedures';
import { hover } from './hover';
import { changeHints, inlayHints } from './inlayHints';
import { legend } from './legend';
import { lineDetail } from './line';
import { listing } from './listing';
import { Profile } from './profile';
import { processes } from './processes';
import { startProgress } from './progress';
import { commands, methods, protocolVersion, type CallCount, type LineResult } from './protocol';
import { importPerf, newEpoch, record, recordCommandLine, report, type Programs } from './record';
import * as requests from './requests';
import { isRecord, readSettings, type ValidSettings } from './settings';
import { Cancelled } from './shared';
import { sql } from './sql';
import { summary } from './summary';
import { announced, Watch } from './watch';

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
  private isInitialized = false;
  private takesProgress = false;
  private commandLinks = false;
  private rendersMarkdown = true;
  /** Whether the client draws line ends itself, out of `dwell/fileCosts` and `dwell/fileChanges`. */
  private drawsLineEnds = false;
  private registersHierarchy = false;
  private hierarchy: Promise<Disposable> | undefined;
  private readonly diagnostics: Diagnostics;
  private readonly countedCalls = new CountedCalls(this.documents, () => this.watch?.callsChanged());

  constructor(
    private readonly connection: Connection,
    private readonly options: ServerOptions,
  ) {
    this.profile = new Profile(
      options.binding,
      () => {
        this.watch?.changed();
        this.diagnostics.changed();
      },
      (note) => {
        this.tellOnce(note);
      },
    );
    const uris = (): string[] => this.documents.all().map(({ uri }) => uri);
    this.diagnostics = new Diagnostics(connection, uris, (uri) => viewFile(this.profile, this.documents, uri, CancellationToken.None));
  }

  listen(): void {
    const { connection, documents, profile } = this;
    connection.onInitialize((params) => this.initialize(params));
    connection.onInitialized(() => {
      this.isInitialized = true;
      this.watch?.start();
      this.offerHierarchy();
      return this.pullSettings();
    });
    connection.onDidChangeConfiguration(({ settings }) => this.configurationChanged(settings));
    connection.onShutdown(() => {
      this.watch?.dispose();
      this.diagnostics.dispose();
      this.countedCalls.dispose();
      profile.close();
    });
    documents.onDidChangeContent(() => {
      this.diagnostics.changed();
    });
    documents.onDidClose(({ document }) => {
      this.diagnostics.closed(document.uri);
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
    connection.languages.inlayHint.on(({ textDocument: { uri }, range }, token) =>
      this.view(uri, token, async (view) => {
        const calls = this.drawsLineEnds ? [] : this.countedCalls.hints(this.documents.get(uri));
        return [...(await this.hints(view, range, token)), ...calls.filter(({ position: { line } }) => line >= range.start.line && line <= range.end.line)];
      }),
    );
    connection.onCodeLens(({ textDocument }, token) =>
      this.view(textDocument.uri, token, async (view) => {
        const [changes, functions] = await Promise.all([
          changesOf(this.profile, view, token),
          functionsOf(this.profile, view, token).catch((error: unknown) => givenUp(error)),
        ]);
        return [...codeLenses(view, changes, functions ?? []), ...this.countedCalls.lenses(this.documents.get(textDocument.uri))];
      }),
    );
    connection.onHover(({ textDocument, position }, token) => this.view(textDocument.uri, token, (view) => this.hover(view, position.line, token)));
    const hierarchy = connection.languages.callHierarchy;
    hierarchy.onPrepare(({ textDocument, position }, token) => this.view(textDocument.uri, token, (view) => prepare(this.profile, view, position, token)));
    hierarchy.onIncomingCalls(({ item }, token) => answered(token, () => incomingCalls(this.profile, item, token)));
    hierarchy.onOutgoingCalls(({ item }, token) => answered(token, () => outgoingCalls(this.profile, item, token)));
    // Not onExecuteCommand, which keeps the progress token to itself.
    connection.onRequest(ExecuteCommandRequest.type, (params, token) => answered(token, () => this.execute(params, token)));
  }

  /** What it has none for. */
  private answerDwell(): void {
    const { profile } = this;
    this.answerOwn(methods.epochs, requests.Nothing, (_params, token) => epochs(profile, token));
    this.answerOwn(methods.hotProcedures, requests.HotProceduresParams, (params, token) => hotProcedures(profile, params, token));
    this.answerOwn(methods.listing, requests.ListingParams, (params, token) => listing(profile, params, token));
    this.answerOwn(methods.fileCosts, requests.FileCostsParams, ({ textDocument: { uri } }, token) => this.view(uri, token, fileCosts));
    this.answerOwn(methods.line, requests.LineParams, ({ textDocument: { uri }, line }, token) =>
      this.view(uri, token, (view) => lineDetail(profile, view, line, token)),
    );
    this.answerOwn(methods.summary, requests.SummaryParams, (params, token) => summary(profile, params, token));
    this.answerOwn(methods.diff, requests.DiffParams, (params, token) => diff(profile, params, token));
    this.answerOwn(methods.fileChanges, requests.FileChangesParams, ({ textDocument: { uri } }, token) =>
      this.view(uri, token, async (view) => fileChanges(view, await changesOf(profile, view, token))),
    );
    this.answerOwn(methods.stats, requests.StatsParams, (params, token) => stats(profile, params, token));
    this.answerOwn(methods.callers, requests.CallersParams, (params, token) => {
      const { textDocument } = params;
      return textDocument === undefined ? callers(profile, params, undefined, token) : this.view(textDocument.uri, token, (view) => callers(profile, params, view, token));
    });
    this.answerOwn(methods.cfg, requests.CfgParams, ({ procedure }, token) => cfg(profile, procedure, token));
    this.answerOwn(methods.flame, requests.FlameParams, (params, token) => flame(profile, params, token));
    this.answerOwn(methods.sql, requests.SqlParams, (params, token) => sql(profile, this.options.folder, params, token));
    this.answerOwn(methods.legend, requests.Nothing, () => Promise.resolve(legend()));
    this.answerOwn(methods.processes, requests.Nothing, () => processes());
    this.answerOwn(methods.callPaths, requests.Nothing, () => Promise.resolve(this.countedCalls.result()));
  }

  /** Costs; changes while epochs are compared. */
  private async hints(view: FileView | undefined, range: Range, token: CancellationToken): Promise<InlayHint[]> {
    if (this.drawsLineEnds) return [];
    const changes = this.profile.baseline === null ? null : await changesOf(this.profile, view, token);
    return changes === null ? inlayHints(view, range, this.settings) : changeHints(view, changes, range, this.settings);
  }

  private async hover(view: FileView | undefined, line: number, token: CancellationToken): Promise<Hover | null> {
    if (view === undefined) return null;
    const [procedure] = lineCosts(view).find((cost) => cost.line === line)?.procedures ?? [];
    // A line has costs even if its instructions cannot be read.
    const instructions = lineDetail(this.profile, view, line, token).catch((error: unknown) => givenUp(error));
    const [detail, callers, evidence, changes] = await Promise.all([
      instructions,
      instructions.then((known) => this.callers(known, token)),
      procedure === undefined ? null : this.profile.evidence(procedure, token).catch((error: unknown) => givenUp(error)),
      this.profile.baseline === null ? null : changesOf(this.profile, view, token),
    ]);
    const change = changes === null ? undefined : lineChanges(view, changes).find((each) => each.line === line);
    return hover(view, line, { detail, change: change ?? null, callers, evidence: evidence ?? [], commandLinks: this.commandLinks, rendersMarkdown: this.rendersMarkdown });
  }

  /** Who calls the function that most of the line is in; null where no call stacks were recorded. */
  private async callers(detail: LineResult | null, token: CancellationToken): Promise<Callers | null> {
    const [place] = detail?.places ?? [];
    if (place === undefined) return null;
    const image = place.procedure.slice(0, place.procedure.indexOf(':'));
    return this.profile.callers(`${image}:${place.label}`, {}, token).catch((error: unknown) => givenUp(error));
  }

  private answerOwn<S extends requests.Schema>(method: string, schema: S, answer: (params: requests.Read<S>, token: CancellationToken) => Promise<unknown>): void {
    this.connection.onRequest(method, (...given: unknown[]) => {
      // Lua's empty table arrives as an empty list: no parameters by position, the token alone.
      const token = given.pop() as CancellationToken;
      return answered(token, () => answer(requests.read(method, schema, given[0]), token));
    });
  }

  private initialize({ capabilities, initializationOptions }: InitializeParams): InitializeResult {
    this.watch = new Watch(this.connection, capabilities, () => this.profile.selected);
    this.takesProgress = capabilities.window?.workDoneProgress === true;
    const { commandLinks, drawsLineEnds } = announced(capabilities);
    this.commandLinks = commandLinks === true;
    this.drawsLineEnds = drawsLineEnds === true;
    this.rendersMarkdown = capabilities.textDocument?.hover?.contentFormat?.[0] !== MarkupKind.PlainText;
    // A client that sends settings is not asked for them: it may send more than is configured, a selection say.
    this.pullsSettings = capabilities.workspace?.configuration === true && !isRecord(initializationOptions);
    this.registersHierarchy = capabilities.textDocument?.callHierarchy?.dynamicRegistration === true;
    this.configure(initializationOptions);
    return {
      serverInfo: { name: 'dwell-lsp', version: this.options.version },
      capabilities: {
        positionEncoding: PositionEncodingKind.UTF16,
        textDocumentSync: { openClose: true, change: TextDocumentSyncKind.Incremental, save: { includeText: false } },
        ...(this.drawsLineEnds ? {} : { inlayHintProvider: { resolveProvider: false } }),
        codeLensProvider: { resolveProvider: false },
        hoverProvider: true,
        ...(this.settings.callHierarchy && !this.registersHierarchy ? { callHierarchyProvider: true } : {}),
        executeCommandProvider: { commands: Object.values(commands), workDoneProgress: true },
        workspace: { workspaceFolders: { supported: true } },
        experimental: { dwell: { version: protocolVersion } },
      },
    };
  }

  private configure(sent: unknown): void {
    const before = this.settings;
    this.settings = readSettings(sent);
    const { database, epochs, sourceMap, debugDirs } = this.settings;
    // Settings that are sent again unchanged must not undo a selection that the user made since.
    const place = ({ database, epochs, sourceMap, debugDirs }: ValidSettings): string => JSON.stringify([database, epochs, sourceMap, debugDirs]);
    if (place(before) !== place(this.settings) || this.profile.folder === '') this.profile.use({ database, epochs, sourceMap, debugDirs });
    else this.watch?.changed();
    this.diagnostics.enable(this.settings.diagnostics);
    this.offerHierarchy();
  }

  /** Offers the call hierarchy or takes the offer back, where the client lets a server change what it offers. */
  private offerHierarchy(): void {
    if (!this.registersHierarchy || !this.isInitialized || this.settings.callHierarchy === (this.hierarchy !== undefined)) return;
    if (this.settings.callHierarchy) {
      // Null: the documents that the client opens here.
      this.hierarchy = this.connection.client.register(CallHierarchyPrepareRequest.type, { documentSelector: null });
      this.hierarchy.catch((error: unknown) => {
        this.tellOnce(`the call hierarchy is not offered: ${errorMessage(error)}`);
      });
    } else {
      this.hierarchy?.then(
        (offer) => {
          offer.dispose();
        },
        () => undefined,
      );
      this.hierarchy = undefined;
    }
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

  private view<T>(uri: string, token: CancellationToken, shape: (view: FileView | undefined) => T | Promise<T>): Promise<T> {
    return answered(token, async () => shape(await viewFile(this.profile, this.documents, uri, token)));
  }

  private async execute({ command, arguments: [argument] = [], workDoneToken }: ExecuteCommandParams, token: CancellationToken): Promise<unknown> {
    const programs = { dwellPath: this.settings.dwellPath, serverFolder: this.options.folder };
    switch (command) {
      case commands.selectEpochs:
        this.profile.select(requests.read(command, requests.Selection, argument));
        return null;
      case commands.record:
        return record(this.profile, programs, argument, token, await startProgress(this.connection, workDoneToken, this.takesProgress));
      case commands.recordCommandLine:
        return recordCommandLine(this.profile, programs, argument);
      case commands.newEpoch:
        return newEpoch(this.profile, programs, argument, token);
      case commands.importPerf:
        return importPerf(this.profile, programs, argument, token, await startProgress(this.connection, workDoneToken, this.takesProgress));
      case commands.report:
        return report(this.profile, programs, argument, token, await startProgress(this.connection, workDoneToken, this.takesProgress));
      case commands.renameEpoch:
        return renameEpoch(this.profile, argument);
      case commands.removeEpochs:
        return removeEpochs(this.profile, argument);
      case commands.compare:
        return compare(this.profile, argument);
      case commands.listing:
        return listing(this.profile, { procedure: requests.read(command, requests.Procedure, argument) }, token);
      case commands.legend:
        return legend();
      case commands.countCalls:
        return this.countCalls(requests.read(command, requests.CountCallsParams, argument), programs);
      case commands.stopCounting:
        await this.countedCalls.stop(requests.read(command, requests.CountId, argument));
        return null;
      default:
        throw requests.invalid(`${command}: no such command`);
    }
  }

  private countCalls({ pids, function: name, textDocument, position }: requests.CountCallsParams, programs: Programs): Promise<CallCount> {
    if (name !== undefined || textDocument === undefined || position === undefined) return this.countedCalls.start(programs, { pids, names: [name ?? ''] });
    const { uri } = textDocument;
    const path = pathOf(uri);
    if (path === undefined) throw requests.invalid(`${commands.countCalls}: ${uri} is no file`);
    const document = this.documents.get(uri);
    const names = namesAt(path, (document?.savedLine(position.line) ?? position.line) + 1, document?.lineText(position.line) ?? '', position.character);
    return this.countedCalls.start(programs, { pids, names });
  }

  /** Writes a note to the client's log, each note once. Never shows a window, which would interrupt the user. */
  private tellOnce(note: string): void {
    if (this.told.has(note)) return;
    this.told.add(note);
    this.connection.console.info(note);
  }
}

/** Runs `answer`, and turns what it throws into an error of LSP. */
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

/** Returns null for a failed part of an answer; rethrows if the request was cancelled. */
function givenUp(error: unknown): null {
  if (error instanceof Cancelled || errorCode(error) === 'cancelled') throw error;
  return null;
}

function cancelled(): ResponseError {
  return new ResponseError(LSPErrorCodes.RequestCancelled, 'cancelled');
}
