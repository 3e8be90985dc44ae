/**
 * Notifies the client that the profile changed, by refresh requests and `dwell/profileDidChange`, whichever it supports.
 */
import type { ClientCapabilities, Connection } from 'vscode-languageserver';
import { methods, type ClientDwellCapabilities as Announced, type ProfileDidChangeParams } from './protocol';
import { ClientDwellCapabilities, read } from './requests';
import { isRecord } from './settings';

/** A daemon appends often: changes within this time are reported once. */
const quiet_ms = 100;

/** What the client announced of Dwell's own protocol. */
export function announced({ experimental }: ClientCapabilities): Announced {
  const own: unknown = isRecord(experimental) ? experimental.dwell : undefined;
  return read('capabilities', ClientDwellCapabilities, isRecord(own) ? own : {});
}

export class Watch {
  private timer: NodeJS.Timeout | undefined;
  /** LSP lets a server ask nothing before the client says that it is initialized. */
  private started = false;
  private readonly hints: boolean;
  private readonly lenses: boolean;
  private readonly own: boolean;
  private readonly ownCalls: boolean;

  constructor(
    private readonly connection: Connection,
    capabilities: ClientCapabilities,
    private readonly selected: () => readonly string[],
  ) {
    this.lenses = capabilities.workspace?.codeLens?.refreshSupport === true;
    const { profileDidChange, drawsLineEnds, callsDidChange } = announced(capabilities);
    this.own = profileDidChange === true;
    this.ownCalls = callsDidChange === true;
    this.hints = capabilities.workspace?.inlayHint?.refreshSupport === true && drawsLineEnds !== true;
  }

  start(): void {
    this.started = true;
  }

  changed(): void {
    if (!this.started) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      // The client may have gone, which is no error.
      this.tell().catch(() => undefined);
    }, quiet_ms);
  }

  /** There are other numbers of counted calls. */
  callsChanged(): void {
    if (!this.started) return;
    const told: Promise<unknown>[] = [];
    if (this.ownCalls) told.push(this.connection.sendNotification(methods.callsDidChange, {}));
    void Promise.allSettled([...told, ...this.refreshes()]);
  }

  dispose(): void {
    clearTimeout(this.timer);
  }

  private async tell(): Promise<void> {
    const told: Promise<unknown>[] = [];
    const params: ProfileDidChangeParams = { epochs: [...this.selected()] };
    if (this.own) told.push(this.connection.sendNotification(methods.profileDidChange, params));
    // A client that is leaving, or refuses, is asked again with the next change.
    await Promise.allSettled([...told, ...this.refreshes()]);
  }

  private refreshes(): Promise<unknown>[] {
    return [
      ...(this.hints ? [this.connection.sendRequest('workspace/inlayHint/refresh')] : []),
      ...(this.lenses ? [this.connection.sendRequest('workspace/codeLens/refresh')] : []),
    ];
  }
}
