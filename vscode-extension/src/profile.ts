// The profile that is shown: which epochs there are, which are selected, and whether there is one at all.
// The one place that asks for epochs and that sets `dwell.state`, by which views and menus appear.
import * as vscode from 'vscode';
import type { EpochsResult, EpochSummary } from '@dwell/lsp-server/protocol';
import type { Client } from './client';
import { reason } from './failures';
import { Newest } from './newest';

/** Also the value of the context key `dwell.state`. */
export type ProfileState = 'starting' | 'empty' | 'ready' | 'failed';

const nothing: EpochsResult = { selected: [], baseline: null, epochs: [], warnings: [] };

export class Profile implements vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  /** The state, the epochs, the selection or the samples changed. */
  readonly onDidChange = this.changed.event;
  private readonly subscription: vscode.Disposable;
  private answer = nothing;
  private current: ProfileState = 'starting';
  private readonly newest = new Newest();
  private warned = new Set<string>();

  constructor(private readonly client: Client, private readonly log: vscode.LogOutputChannel) {
    this.subscription = vscode.Disposable.from(
      client.onDidChange(() => { void this.refresh(); }),
      // What may be done without a profile depends on it.
      vscode.workspace.onDidGrantWorkspaceTrust(() => { this.changed.fire(); }),
    );
  }

  get state(): ProfileState {
    return this.current;
  }

  /** Oldest first. */
  get epochs(): readonly EpochSummary[] {
    return this.answer.epochs;
  }

  /** Those that are shown, merged. */
  get selected(): readonly EpochSummary[] {
    return this.answer.epochs.filter(({ shown }) => shown);
  }

  /** Those that are compared with; `undefined`: none are pinned. */
  get baseline(): readonly EpochSummary[] | undefined {
    return this.answer.baseline === null ? undefined : this.answer.epochs.filter(({ pinned }) => pinned);
  }

  /** What is wrong with the database or some of its files. */
  get warnings(): readonly string[] {
    return this.answer.warnings;
  }

  /** Asks again; resolves when what is newest is shown. Does not reject: what fails becomes the state. */
  refresh(): Promise<void> {
    return this.newest.ask(() => this.ask(), async ([state, answer]) => {
      this.answer = answer;
      this.current = state;
      this.logNewWarnings();
      await vscode.commands.executeCommand('setContext', 'dwell.state', state);
      await vscode.commands.executeCommand('setContext', 'dwell.comparing', answer.baseline !== null);
      this.changed.fire();
    });
  }

  dispose(): void {
    this.subscription.dispose();
    this.changed.dispose();
  }

  private async ask(): Promise<[ProfileState, EpochsResult]> {
    if (this.client.state === 'starting') return ['starting', nothing];
    if (this.client.state === 'stopped') return ['failed', nothing];
    try {
      const answer = await this.client.epochs();
      return [answer.epochs.length > 0 ? 'ready' : 'empty', answer];
    } catch (error) {
      this.log.error(`the epochs: ${reason(error)}`);
      return ['failed', nothing];
    }
  }

  /** A database that is watched would repeat its warnings with each change. */
  private logNewWarnings(): void {
    for (const warning of this.answer.warnings) {
      if (!this.warned.has(warning)) this.log.warn(warning);
      this.warned.add(warning);
    }
  }
}
