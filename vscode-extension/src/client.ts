// What the features ask, typed, and whom: a server for each place that profiles of the workspace's folders are kept in, most
// often one. Files ask the server of their folder; views show that of the file one works on.
import * as vscode from 'vscode';
import {
  type CommandLine, commands, methods, type CallCount, type CallersParams, type CallersResult, type CallPathsResult, type CfgResult, type CompareParams, type CountCallsParams, type DiffParams, type DiffResult, type EpochsResult, type FileChangesResult,
  type FileCostsResult, type FlameParams, type FlameResult, type HotProceduresParams, type HotProceduresResult, type ImportPerfParams, type LegendResult, type ListingResult, type NewEpochParams, type ProcessesResult,
  type RecordParams, type RecordResult, type RenameEpochParams, type ReportParams, type SqlParams, type SqlResult,
} from '@dwell/lsp-server/protocol';
import { Connection, type Report, type ServerState } from './connection';
import { grouped } from './folders';

export { languages } from './connection';

export class Client implements vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  /** What is shown may have changed: a server came up or went down, another epoch was selected, samples arrived. */
  readonly onDidChange = this.changed.event;
  private readonly callsChanged = new vscode.EventEmitter<void>();
  /** There are other numbers of counted calls. */
  readonly onCallsDidChange = this.callsChanged.event;
  private readonly subscription: vscode.Disposable;
  private connections: Connection[] = [];
  private heard: vscode.Disposable[] = [];
  /** The one that views show. */
  private current: Connection;
  /** Which folders have their profiles together. */
  private groups = '';

  constructor(private readonly context: vscode.ExtensionContext, private readonly log: vscode.LogOutputChannel) {
    this.current = this.connect();
    this.subscription = vscode.Disposable.from(
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration('dwell')) void this.settingsChanged();
      }),
      vscode.workspace.onDidChangeWorkspaceFolders(() => { void this.settingsChanged(); }),
      vscode.window.onDidChangeActiveTextEditor((editor) => { this.follow(editor); }),
    );
    this.follow(vscode.window.activeTextEditor);
  }

  get state(): ServerState {
    return this.current.state;
  }

  /** The folders whose profile is shown, where there are others; else nothing. */
  get where(): string {
    return this.current.scope.shared ? this.current.scope.folders.map(({ name }) => name).join(', ') : '';
  }

  /** The folders whose profile is shown. */
  get folders(): readonly vscode.WorkspaceFolder[] {
    return this.current.scope.folders;
  }

  /** Starts the servers unless they run. Does not reject: one that cannot start is a state that is shown. */
  async start(): Promise<void> {
    await Promise.all(this.connections.map((connection) => connection.start()));
  }

  epochs(): Promise<EpochsResult> {
    return this.ask<EpochsResult>(methods.epochs, {});
  }

  hotProcedures(params: HotProceduresParams): Promise<HotProceduresResult> {
    return this.ask<HotProceduresResult>(methods.hotProcedures, params);
  }

  listing(procedure: string, token?: vscode.CancellationToken): Promise<ListingResult> {
    return this.ask<ListingResult>(methods.listing, { procedure }, token);
  }

  callers(params: CallersParams): Promise<CallersResult> {
    return this.ask<CallersResult>(methods.callers, params);
  }

  fileCosts(uri: vscode.Uri): Promise<FileCostsResult> {
    return this.askOf<FileCostsResult>(methods.fileCosts, uri);
  }

  fileChanges(uri: vscode.Uri): Promise<FileChangesResult> {
    return this.askOf<FileChangesResult>(methods.fileChanges, uri);
  }

  legend(): Promise<LegendResult> {
    return this.ask<LegendResult>(methods.legend, {});
  }

  /** Shows these epochs, merged; remembered for this workspace until another choice. */
  async selectEpochs(epochs: string[]): Promise<void> {
    const { current } = this;
    await current.execute(commands.selectEpochs, epochs);
    await current.remember(epochs);
    this.changed.fire();
  }

  record(params: RecordParams, token: vscode.CancellationToken, report: Report): Promise<RecordResult> {
    return this.makeEpoch(commands.record, params, token, report);
  }

  /** The command line that records, for a terminal. */
  recordCommandLine(params: RecordParams): Promise<CommandLine> {
    return this.current.execute<CommandLine>(commands.recordCommandLine, params);
  }

  /** Shows what was just recorded. An earlier choice is over. */
  async showRecorded(epoch: string): Promise<void> {
    const { current } = this;
    await current.execute(commands.selectEpochs, [epoch]);
    await current.remember(undefined);
    this.changed.fire();
  }

  importPerf(params: ImportPerfParams, token: vscode.CancellationToken, report: Report): Promise<RecordResult> {
    return this.makeEpoch(commands.importPerf, params, token, report);
  }

  /** Writes an HTML page about what is shown. */
  async report(path: string, token: vscode.CancellationToken, report: Report): Promise<void> {
    await this.current.execute(commands.report, { path } satisfies ReportParams, token, report);
  }

  /** Ends all servers and starts them anew. */
  async restart(): Promise<void> {
    this.current = this.connect();
    this.follow(vscode.window.activeTextEditor);
    await this.start();
    this.changed.fire();
  }

  renameEpoch(epoch: string, name: string): Promise<void> {
    return this.current.execute(commands.renameEpoch, { epoch, name } satisfies RenameEpochParams);
  }

  /** Removes epochs for good. Callers have the user confirm it first. */
  async removeEpochs(epochs: string[]): Promise<void> {
    const { current } = this;
    await current.execute(commands.removeEpochs, epochs);
    if (current.selection?.some((id) => epochs.includes(id))) await current.remember(undefined);
    this.changed.fire();
  }

  /** Shows the change from these epochs to those; null ends the comparison. */
  async compare(params: CompareParams | null): Promise<void> {
    const { current } = this;
    await current.execute(commands.compare, params);
    if (params?.after) await current.remember(params.after);
    this.changed.fire();
  }

  diff(params: DiffParams, token?: vscode.CancellationToken): Promise<DiffResult> {
    return this.ask<DiffResult>(methods.diff, params, token);
  }

  cfg(procedure: string): Promise<CfgResult> {
    return this.ask<CfgResult>(methods.cfg, { procedure });
  }

  flame(params: FlameParams, token?: vscode.CancellationToken): Promise<FlameResult> {
    return this.ask<FlameResult>(methods.flame, params, token);
  }

  sql(params: SqlParams, token: vscode.CancellationToken): Promise<SqlResult> {
    return this.ask<SqlResult>(methods.sql, params, token);
  }

  /** Counts the calls of a function of running programs, until they are stopped. */
  countCalls(params: CountCallsParams): Promise<CallCount> {
    return this.current.execute<CallCount>(commands.countCalls, params);
  }

  /** Stops a count that goes on; forgets one that has ended. */
  stopCounting(id: number): Promise<void> {
    return this.current.execute(commands.stopCounting, id);
  }

  callPaths(): Promise<CallPathsResult> {
    return this.ask<CallPathsResult>(methods.callPaths, {});
  }

  processes(): Promise<ProcessesResult> {
    return this.ask<ProcessesResult>(methods.processes, {});
  }

  newEpoch(params: NewEpochParams): Promise<void> {
    return this.current.execute(commands.newEpoch, params);
  }

  /** A document as the server named it. */
  uri(wire: string): vscode.Uri {
    return this.current.language.protocol2CodeConverter.asUri(wire);
  }

  /** A file of the extension's own. */
  file(path: string): vscode.Uri {
    return vscode.Uri.joinPath(this.context.extensionUri, path);
  }

  dispose(): void {
    this.subscription.dispose();
    this.disconnect();
    this.changed.dispose();
    this.callsChanged.dispose();
  }

  private ask<Result>(method: string, params: unknown, token?: vscode.CancellationToken): Promise<Result> {
    return this.current.language.sendRequest<Result>(method, params, token);
  }

  /** About a file, the server of its folder. */
  private askOf<Result>(method: string, uri: vscode.Uri): Promise<Result> {
    const { language } = this.of(uri);
    return language.sendRequest<Result>(method, { textDocument: { uri: language.code2ProtocolConverter.asUri(uri) } });
  }

  private async makeEpoch(command: string, params: unknown, token: vscode.CancellationToken, report: Report): Promise<RecordResult> {
    const { current } = this;
    const result = await current.execute<RecordResult>(command, params, token, report);
    // The server shows the new epoch, so an earlier choice is over.
    await current.remember(undefined);
    return result;
  }

  private of(uri: vscode.Uri): Connection {
    const folder = vscode.workspace.getWorkspaceFolder(uri);
    return this.connections.find(({ scope }) => scope.folders.some((own) => own.uri.toString() === folder?.uri.toString())) ?? this.current;
  }

  /** Replaces the connections by those that the folders' settings require; returns the first. */
  private connect(): Connection {
    this.disconnect();
    const groups = foldersByPlace();
    this.groups = keyOf(groups);
    const shared = groups.length > 1;
    this.connections = groups.map((folders, at) => new Connection(this.context, this.log, { folders, shared, first: at === 0 }));
    this.heard = this.connections.flatMap((connection) => [
      connection.onDidChange(() => { this.changed.fire(); }),
      connection.onCallsDidChange(() => { this.callsChanged.fire(); }),
    ]);
    const [first] = this.connections;
    if (!first) throw new Error('no group of folders');
    return first;
  }

  private disconnect(): void {
    for (const disposable of [...this.heard, ...this.connections]) disposable.dispose();
  }

  private async settingsChanged(): Promise<void> {
    if (keyOf(foldersByPlace()) !== this.groups) {
      await this.restart();
    } else {
      await Promise.all(this.connections.map((connection) => connection.sendSettings()));
    }
  }

  /** Views show the profile of the file one works on; what is no file of a folder changes nothing. */
  private follow(editor: vscode.TextEditor | undefined): void {
    if (editor?.document.uri.scheme !== 'file') return;
    const wanted = this.of(editor.document.uri);
    if (wanted === this.current) return;
    this.current = wanted;
    this.changed.fire();
  }
}

/** Folders whose profiles are read in the same place, in the same way. */
function foldersByPlace(): vscode.WorkspaceFolder[][] {
  return grouped(vscode.workspace.workspaceFolders ?? [], ({ uri }) => {
    const settings = vscode.workspace.getConfiguration('dwell', uri);
    return JSON.stringify(['database', 'path', 'sourceMap', 'debugDirs'].map((name) => settings.get(name)));
  });
}

function keyOf(groups: readonly (readonly vscode.WorkspaceFolder[])[]): string {
  return JSON.stringify(groups.map((group) => group.map(({ uri }) => uri.toString())));
}
