/**
 * Work-done progress: under the token that a request brought, or under one of our own where the client takes it.
 */
import { WorkDoneProgress, type CancellationToken, type Connection, type ProgressToken } from 'vscode-languageserver';

export interface Progress {
  begin(message: string): void;
  done(): void;
  /** Cancelled by the progress itself, beside the request. */
  cancelled: CancellationToken | undefined;
}

/** `given`: the request's token; `takesOurs`: whether the client lets servers begin. */
export async function startProgress(connection: Connection, given: ProgressToken | undefined, takesOurs: boolean): Promise<Progress> {
  if (given !== undefined) return underToken(connection, given);
  if (!takesOurs) return { begin: () => undefined, done: () => undefined, cancelled: undefined };
  const reporter = await connection.window.createWorkDoneProgress();
  return {
    begin: (message) => {
      reporter.begin('Dwell', undefined, message, true);
    },
    done: () => {
      reporter.done();
    },
    cancelled: reporter.token,
  };
}

function underToken(connection: Connection, token: ProgressToken): Progress {
  return {
    begin: (message) => {
      void connection.sendProgress(WorkDoneProgress.type, token, { kind: 'begin', title: 'Dwell', message, cancellable: true });
    },
    done: () => {
      void connection.sendProgress(WorkDoneProgress.type, token, { kind: 'end' });
    },
    cancelled: undefined,
  };
}
