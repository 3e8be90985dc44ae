// Commands as the user meets them: what fails is said once, in one line, and logged; what was cancelled is not.
import * as vscode from 'vscode';
import { ErrorCodes, LSPErrorCodes, ResponseError } from 'vscode-languageclient/node';

const showLog = 'dwell.showLog';

export class Failures implements vscode.Disposable {
  private readonly registered: vscode.Disposable;

  constructor(private readonly log: vscode.LogOutputChannel) {
    this.registered = vscode.commands.registerCommand(showLog, () => { log.show(); });
  }

  /** Registers a command; `task` names it in messages ("recording", "the listing"). */
  command(id: string, task: string, work: (...args: unknown[]) => Promise<void>): vscode.Disposable {
    return vscode.commands.registerCommand(id, (...args: unknown[]) => this.guard(task, () => work(...args)));
  }

  /** Runs `work`; never rejects. */
  async guard(task: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (isCancellation(error)) return;
      this.log.error(`${task}: ${reason(error)}`);
      // Not awaited: it stays until the user answers it.
      void vscode.window.showErrorMessage(`Dwell: ${task}: ${reason(error)}`, 'Show Log').then((answer) => {
        if (answer) this.log.show();
      });
    }
  }

  dispose(): void {
    this.registered.dispose();
  }
}

/** An error in one line. */
export function reason(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).trim();
}

/** Cancelled, overtaken, or gone with a server that died, which is said in its own words. */
const quietCodes: readonly number[] = [
  LSPErrorCodes.RequestCancelled, LSPErrorCodes.ServerCancelled, LSPErrorCodes.ContentModified, ErrorCodes.PendingResponseRejected,
];

export function isCancellation(error: unknown): boolean {
  if (error instanceof vscode.CancellationError) return true;
  return error instanceof ResponseError && quietCodes.includes(error.code);
}
