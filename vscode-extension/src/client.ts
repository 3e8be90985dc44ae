// The connection to dwell-lsp: starts it, keeps it alive, tells it the settings, asks it typed questions.
// Nothing else in the extension knows that there is a process, or a wire.
import { existsSync } from 'node:fs';
import * as vscode from 'vscode';
import {
  CloseAction, DidChangeConfigurationNotification, ErrorAction, ExecuteCommandRequest, LanguageClient, State,
  TransportKind, WorkDoneProgress, type CloseHandlerResult, type LanguageClientOptions, type StaticFeature,
} from 'vscode-languageclient/node';
import {
  commands, methods, type CfgResult, type CompareParams, type DiffParams, type DiffResult, type EpochsResult, type FileCostsResult, type HotProceduresParams, type HotProceduresResult,
  type ImportPerfParams, type ListingResult, type NewEpochParams, type ProcessesResult, type RecordParams, type RecordResult, type Settings, showListingCommand,
} from '@dwell/lsp-server/protocol';
import { reason } from './failures';

/** Languages whose sources are annotated; the manifest activates on the same. */
export const languages = ['c', 'cpp', 'rust', 'go'];

/** The server may die this often within `restartWindowMs` before it is left alone. */
const restartsMax = 4;
const restartWindowMs = 3 * 60_000;
/** Where the selection is remembered. */
const selectionKey = 'dwell.epochs';

export type ServerState = 'starting' | 'running' | 'stopped';
/** What a long command reports meanwhile. */
export type Report = (message: string) => void;

export class Client implements vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  /** What is shown may have changed: the server came up or went down, another epoch was selected, samples arrived. */
  readonly onDidChange = this.changed.event;
  private readonly language: LanguageClient;
  private readonly registered: { dispose(): unknown }[] = [];
  private deaths: number[] = [];
  /** As JSON. */
  private toldSettings = '';
  private lastProgressToken = 0;

  constructor(private readonly context: vscode.ExtensionContext, private readonly log: vscode.LogOutputChannel) {
    this.language = new LanguageClient('dwell', 'Dwell', {
      module: context.asAbsolutePath('dist/server.js'), transport: TransportKind.stdio,
    }, this.options());
    this.language.registerFeature(announcement);
    this.registered.push(
      this.language.onDidChangeState(() => {
        this.changed.fire();
        void this.sendSettings();
      }),
      this.language.onNotification(methods.profileDidChange, () => { this.changed.fire(); }),
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration('dwell')) void this.sendSettings();
      }),
    );
  }

  get state(): ServerState {
    if (this.language.state === State.Running) return 'running';
    return this.language.state === State.Starting ? 'starting' : 'stopped';
  }

  /** Starts the server unless it runs. Does not reject: a server that cannot start is a state that is shown. */
  async start(): Promise<void> {
    if (this.language.isRunning()) return;
    this.deaths = [];
    try {
      await this.language.start();
    } catch (error) {
      this.log.error(`the server did not start: ${reason(error)}`);
      this.changed.fire();
    }
  }

  epochs(): Promise<EpochsResult> {
    return this.language.sendRequest<EpochsResult>(methods.epochs, {});
  }

  hotProcedures(params: HotProceduresParams): Promise<HotProceduresResult> {
    return this.language.sendRequest<HotProceduresResult>(methods.hotProcedures, params);
  }

  listing(procedure: string, token?: vscode.CancellationToken): Promise<ListingResult> {
    return this.language.sendRequest<ListingResult>(methods.listing, { procedure }, token);
  }

  fileCosts(uri: vscode.Uri): Promise<FileCostsResult> {
    const textDocument = { uri: this.language.code2ProtocolConverter.asUri(uri) };
    return this.language.sendRequest<FileCostsResult>(methods.fileCosts, { textDocument });
  }

  /** Shows these epochs, merged; remembered for this workspace until another choice. */
  async selectEpochs(epochs: string[]): Promise<void> {
    await this.execute(commands.selectEpochs, epochs);
    await this.context.workspaceState.update(selectionKey, epochs);
    this.changed.fire();
  }

  async record(params: RecordParams, token: vscode.CancellationToken, report: Report): Promise<RecordResult> {
    const result = await this.execute<RecordResult>(commands.record, params, token, report);
    // The server shows the new epoch, so an earlier choice is over.
    await this.context.workspaceState.update(selectionKey, undefined);
    return result;
  }

  async importPerf(params: ImportPerfParams, token: vscode.CancellationToken, report: Report): Promise<RecordResult> {
    const result = await this.execute<RecordResult>(commands.importPerf, params, token, report);
    await this.context.workspaceState.update(selectionKey, undefined);
    return result;
  }

  renameEpoch(epoch: string, name: string): Promise<void> {
    return this.execute(commands.renameEpoch, { epoch, name });
  }

  /** For good: whoever calls this has asked. */
  async removeEpochs(epochs: string[]): Promise<void> {
    await this.execute(commands.removeEpochs, epochs);
    const chosen = this.context.workspaceState.get<string[]>(selectionKey);
    if (chosen?.some((id) => epochs.includes(id))) await this.context.workspaceState.update(selectionKey, undefined);
    this.changed.fire();
  }

  /** Shows the change from these epochs to those; null ends the comparison. */
  async compare(params: CompareParams | null): Promise<void> {
    await this.execute(commands.compare, params);
    if (params?.after) await this.context.workspaceState.update(selectionKey, params.after);
    this.changed.fire();
  }

  diff(params: DiffParams, token?: vscode.CancellationToken): Promise<DiffResult> {
    return this.language.sendRequest<DiffResult>(methods.diff, params, token);
  }

  cfg(procedure: string): Promise<CfgResult> {
    return this.language.sendRequest<CfgResult>(methods.cfg, { procedure });
  }

  processes(): Promise<ProcessesResult> {
    return this.language.sendRequest<ProcessesResult>(methods.processes, {});
  }

  newEpoch(params: NewEpochParams): Promise<void> {
    return this.execute(commands.newEpoch, params);
  }

  /** A document as the server named it. */
  uri(wire: string): vscode.Uri {
    return this.language.protocol2CodeConverter.asUri(wire);
  }

  dispose(): void {
    for (const disposable of this.registered) disposable.dispose();
    this.changed.dispose();
    // VS Code gives a disposal no time to wait; the server ends with its input in any case.
    this.language.dispose().catch((error: unknown) => { this.log.warn(`stopping the server: ${reason(error)}`); });
  }

  private async execute<Result>(
    command: string, argument: unknown, token?: vscode.CancellationToken, report?: Report,
  ): Promise<Result> {
    const workDoneToken = `dwell-${this.lastProgressToken += 1}`;
    const progress = report && this.language.onProgress(WorkDoneProgress.type, workDoneToken, (value) => {
      if (value.kind !== 'end' && value.message !== undefined) report(value.message);
    });
    try {
      const params = { command, arguments: [argument], ...(report ? { workDoneToken } : {}) };
      return await (this.language.sendRequest(ExecuteCommandRequest.type, params, token) as Promise<Result>);
    } finally {
      progress?.dispose();
    }
  }

  /** Tells the server of settings that it does not know yet. They may change while it starts, so this runs again when it
   *  is up. Does not reject: a server that is gone is told when it is back. */
  private async sendSettings(): Promise<void> {
    const settings = this.settings();
    if (!this.language.isRunning() || JSON.stringify(settings) === this.toldSettings) return;
    try {
      await this.language.sendNotification(DidChangeConfigurationNotification.type, { settings: { dwell: this.tell(settings) } });
      this.changed.fire();
    } catch (error) {
      this.log.warn(`sending the settings: ${reason(error)}`);
    }
  }

  private tell(settings: Settings): Settings {
    this.toldSettings = JSON.stringify(settings);
    return settings;
  }

  /** Settings as the server knows them; empty ones are left to its defaults. The selection is among them, so that
   *  settings sent anew, or to a server started anew, keep it. */
  private settings(): Settings {
    const chosen = vscode.workspace.getConfiguration('dwell');
    const database = chosen.get<string>('database', '');
    const program = chosen.get<string>('path', '') || this.bundledProgram();
    const epochs = this.context.workspaceState.get<string[]>(selectionKey);
    return {
      ...(epochs ? { epochs } : {}),
      hints: chosen.get('hints', 'hot'),
      hotShare: chosen.get('hotShare', 0.01),
      diagnostics: chosen.get('diagnostics', false),
      sourceMap: chosen.get<Record<string, string>>('sourceMap', {}),
      debugDirs: chosen.get<string[]>('debugDirs', []),
      ...(database ? { database } : {}),
      ...(program ? { dwellPath: program } : {}),
    };
  }

  private bundledProgram(): string | undefined {
    const path = this.context.asAbsolutePath('dist/bin/dwell');
    return existsSync(path) ? path : undefined;
  }

  private options(): LanguageClientOptions {
    return {
      documentSelector: languages.map((language) => ({ scheme: 'file', language })),
      outputChannel: this.log,
      // Hovers link to listings; to nothing else that runs.
      markdown: { isTrusted: { enabledCommands: [showListingCommand] } },
      // Read at each start.
      initializationOptions: () => this.tell(this.settings()),
      middleware: {
        workspace: {
          // A server that asks gets what it is told otherwise, not the settings as VS Code stores them.
          configuration: async (params, token, next) => {
            const answers = await next(params, token);
            if (!Array.isArray(answers)) return answers;
            return params.items.map(({ section }, at): unknown => section === 'dwell' ? this.tell(this.settings()) : answers[at]);
          },
        },
      },
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => this.died(),
      },
    };
  }

  /** Restarts a server that died, quietly; after too many deaths says so once and leaves it. */
  private died(): CloseHandlerResult {
    const now = Date.now();
    this.deaths = [...this.deaths.filter((at) => now - at < restartWindowMs), now];
    if (this.deaths.length <= restartsMax) {
      this.log.warn('the server ended unexpectedly; it is started again');
      return { action: CloseAction.Restart, handled: true };
    }
    const message = `Dwell's server ended ${this.deaths.length} times within three minutes. "Dwell: Refresh" starts it again; the log says why it ended.`;
    return { action: CloseAction.DoNotRestart, message };
  }
}

/** Tells the server that `dwell/profileDidChange` is welcome, and that hovers may link to listings. */
const announcement: StaticFeature = {
  fillClientCapabilities: (capabilities) => {
    const experimental = (capabilities.experimental ?? {}) as Record<string, unknown>;
    capabilities.experimental = { ...experimental, dwell: { profileDidChange: true, commandLinks: true } };
  },
  initialize: () => { /* nothing to set up */ },
  getState: () => ({ kind: 'static' }),
  clear: () => { /* nothing kept */ },
};
