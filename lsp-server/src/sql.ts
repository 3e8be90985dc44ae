/**
 * `dwell/sql`: the first rows of a query over all epochs. What a query can do is the core's matter; here: whose turn it is.
 */
import { join } from 'node:path';
import type { CancellationToken } from 'vscode-languageserver';
import type { Cancel, Core, SqlAnswer, SqlRequest } from './core';
import type { Profile } from './profile';
import type { SqlParams, SqlResult } from './protocol';

/** Time that a query of a person may take: the editor can cancel it. */
const timeMax_s = 600;

/** The queries that were asked before. */
let before: Promise<unknown> = Promise.resolve();

/**
 * Runs a query when those asked before are done: each takes a thread of the pool that answers all other requests, up to a gigabyte of
 * memory and all processors. `folder` is the server's, where DuckDB's library is looked for.
 */
export function inTurn(core: Core, folder: string, request: Omit<SqlRequest, 'program'>, cancel: Cancel): Promise<SqlAnswer> {
  const stop = (): void => {
    cancel.cancel();
  };
  const run = async (): Promise<SqlAnswer> => {
    // Node does not exit while a thread of its pool works.
    process.once('exit', stop);
    try {
      return await core.sql({ ...request, program: join(folder, 'dwell-core.node') }, cancel);
    } finally {
      process.off('exit', stop);
    }
  };
  const answer = before.then(run, run);
  before = answer;
  return answer;
}

export function sql(profile: Profile, folder: string, params: SqlParams, token: CancellationToken): Promise<SqlResult> {
  return profile.sql(folder, { ...params, seconds: timeMax_s }, token);
}
