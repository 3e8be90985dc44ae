// One connection to dwell-lsp: starts the server, keeps it alive and sends it the settings of its workspace folders.
// Nothing else in the extension knows that there is a process or a protocol.
import { existsSync } from 'node:fs';
import * as vscode from 'vscode';
import {
  CloseAction, DidChangeConfigurationNotification, ErrorAction, ExecuteCommandRequest, LanguageClient, State,
  TransportKind, WorkDoneProgress, type CloseHandlerResult, type ErrorHandler, type LanguageClientOptions, type StaticFeature,
} from 'vscode-languageclient/node';
import { methods, showLegendCommand, showListingCommand, type Settings } from '@dwell/lsp-server/protocol';
import { reason } from './failures';
import { below } from './folders';

/** Languages whose sources are annotated; the manifest activates on the same. */
export const languages = ['c', 'cpp', 'rust', 'go'];

/** Where the selection is remembered. */
const selectionKey = 'dwell.epochs';

export type ServerState = 'starting' | 'running' | 'stopped';
/** What a long command reports meanwhile. */
export type Report = (message: string) => void;

/** What a connection is for. */
export interface Scope {
  /** Its folders, which have their settings in common; none: there is no workspace. */
  folders: readonly vscode.WorkspaceFolder[];
  /** There are others: it sees files of its folders alone. */
  shared: boolean;
  /** Commands of a name can be registered by one. */
  first: boolean;
}

export class Connection implements vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  /** What is shown may have changed: the server came up or went down, samples arrived. */
  readonly onDidChange = this.changed.event;
  private readonly callsChanged = new vscode.EventEmitter<void>();
  /** There are other numbers of counted calls. */
  readonly onCallsDidChange = this.callsChanged.event;
  readonly language: LanguageClient;
  private readonly registered: { dispose(): unknown }[] = [];
  /** The library's policy of restarts. */
  private restarts: ErrorHandler;
  private saidEnd = false;
  /** As JSON. */
  private toldSettings = '';
  private lastProgressToken = 0;

  constructor(private readonly context: vscode.ExtensionContext, private readonly log: vscode.LogOutputChannel, readonly scope: Scope) {
    this.language = new LanguageClient('dwell', 'Dwell', {
      module: context.asAbsolutePath('dist/server.js'), transport: TransportKind.stdio,
    }, this.options());
    this.restarts = this.language.createDefaultErrorHandler();
    this.language.registerFeature(announcement);
    if (!scope.first) this.language.registerFeature(withoutCommands);
    this.registered.push(
      this.language.onDidChangeState(() => {
        this.changed.fire();
        void this.sendSettings();
      }),
      this.language.onNotification(methods.profileDidChange, () => { this.changed.fire(); }),
      this.language.onNotification(methods.callsDidChange, () => { this.callsChanged.fire(); }),
    );
  }

  get state(): ServerState {
    if (this.language.state === State.Running) return 'running';
    return this.language.state === State.Starting ? 'starting' : 'stopped';
  }

  /** Starts the server unless it runs. Does not reject: a server that cannot start is a state that is shown. */
  async start(): Promise<void> {
    if (this.language.isRunning()) return;
    this.restarts = this.language.createDefaultErrorHandler();
    try {
      await this.language.start();
    } catch (error) {
      this.log.error(`the server did not start: ${reason(error)}`);
      this.changed.fire();
    }
  }

  /** Epochs chosen here; `undefined`: the latest. */
  get selection(): string[] | undefined {
    return this.context.workspaceState.get<string[]>(this.selectionKey);
  }

  async remember(epochs: string[] | undefined): Promise<void> {
    await this.context.workspaceState.update(this.selectionKey, epochs);
  }

  async execute<Result>(command: string, argument: unknown, token?: vscode.CancellationToken, report?: Report): Promise<Result> {
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

  /** Sends the server the settings that it does not have yet. They may change while it starts, so this runs again when it
   *  is up. Does not reject: a server that is gone gets them when it is back. */
  async sendSettings(): Promise<void> {
    const settings = this.settings();
    if (!this.language.isRunning() || JSON.stringify(settings) === this.toldSettings) return;
    try {
      await this.language.sendNotification(DidChangeConfigurationNotification.type, { settings: { dwell: this.tell(settings) } });
      this.changed.fire();
    } catch (error) {
      this.log.warn(`sending the settings: ${reason(error)}`);
    }
  }

  dispose(): void {
    for (const disposable of this.registered) disposable.dispose();
    this.changed.dispose();
    this.callsChanged.dispose();
    // VS Code gives a disposal no time to wait; the server ends with its input in any case.
    this.language.dispose().catch((error: unknown) => { this.log.warn(`stopping the server: ${reason(error)}`); });
  }

  private get selectionKey(): string {
    return this.scope.shared ? [selectionKey, ...this.scope.folders.map(({ uri }) => uri.toString())].join(' ') : selectionKey;
  }

  private tell(settings: Settings): Settings {
    this.toldSettings = JSON.stringify(settings);
    return settings;
  }

  /** Settings as the server knows them; empty ones are left to its defaults. The selection is among them, so that
   *  sending the settings again, or to a restarted server, keeps it. */
  private settings(): Settings {
    const chosen = vscode.workspace.getConfiguration('dwell', this.scope.folders[0]?.uri ?? null);
    const database = chosen.get<string>('database', '');
    const program = chosen.get<string>('path', '') || this.bundledProgram();
    const epochs = this.selection;
    return {
      ...(epochs ? { epochs } : {}),
      hints: chosen.get('hints', 'hot'),
      hotShare: chosen.get('hotPercent', 1) / 100,
      diagnostics: chosen.get('diagnostics', false),
      callHierarchy: chosen.get('callHierarchy', false),
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
    const { folders, shared } = this.scope;
    const places = shared ? folders.map(({ uri }) => ({ pattern: below(uri.fsPath) })) : [{}];
    return {
      documentSelector: places.flatMap((place) => languages.map((language) => ({ scheme: 'file', language, ...place }))),
      outputChannel: this.log,
      // Hovers link to listings and to the legend; to nothing else that runs.
      markdown: { isTrusted: { enabledCommands: [showListingCommand, showLegendCommand] } },
      // Read at each start.
      initializationOptions: () => this.tell(this.settings()),
      middleware: {
        workspace: {
          // A server that asks for settings gets those that it would be sent, not the settings as VS Code stores them.
          configuration: async (params, token, next) => {
            const answers = await next(params, token);
            if (!Array.isArray(answers)) return answers;
            return params.items.map(({ section }, at): unknown => section === 'dwell' ? this.tell(this.settings()) : answers[at]);
          },
        },
      },
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => this.ended(),
      },
    };
  }

  /** Has the library decide whether a server that ended is started again. Says the first time that it was. */
  private async ended(): Promise<CloseHandlerResult> {
    const decision = await this.restarts.closed();
    if (decision.action === CloseAction.DoNotRestart) return { ...decision, message: `${decision.message ?? ''} "Dwell: Refresh" starts it again.` };
    this.log.warn('the server ended unexpectedly; it is started again');
    if (!this.saidEnd) void vscode.window.showWarningMessage('Dwell: the server ended unexpectedly and was started again; the log says more.');
    this.saidEnd = true;
    return { ...decision, handled: true };
  }
}

/** Tells the server that `dwell/profileDidChange` is welcome, that hovers may link to listings, and that hints are not: line ends are drawn
 *  here. */
const announcement: StaticFeature = {
  fillClientCapabilities: (capabilities) => {
    const experimental = (capabilities.experimental ?? {}) as Record<string, unknown>;
    capabilities.experimental = { ...experimental, dwell: { profileDidChange: true, commandLinks: true, drawsLineEnds: true, callsDidChange: true } };
  },
  initialize: () => { /* nothing to set up */ },
  getState: () => ({ kind: 'static' }),
  clear: () => { /* nothing kept */ },
};

/** Its commands are sent all the same; another connection has registered them. */
const withoutCommands: StaticFeature = {
  fillClientCapabilities: () => { /* nothing to say */ },
  preInitialize: (capabilities) => { delete capabilities.executeCommandProvider; },
  initialize: () => { /* nothing to set up */ },
  getState: () => ({ kind: 'static' }),
  clear: () => { /* nothing kept */ },
};
