/**
 * `dwell.server.record` and `dwell.server.newEpoch`: new epochs, by the `dwell` program.
 */
import { LSPErrorCodes, ResponseError, type CancellationToken, type WorkDoneProgressReporter } from 'vscode-languageserver';
import { errorMessage } from './core';
import type { Profile } from './profile';
import { failureLine, findDwell, lastJson, run, type Finished } from './program';
import type { NewEpochParams, RecordParams, RecordResult } from './protocol';
import { isRecord, isText, isTextList } from './settings';

/** Where the program is and what it works on. */
export interface Programs {
  dwellPath: string | null;
  serverFolder: string;
}

export async function record(
  profile: Profile,
  programs: Programs,
  argument: unknown,
  token: CancellationToken,
  progress: WorkDoneProgressReporter,
): Promise<RecordResult> {
  const { command, cwd, name } = recordParams(argument);
  progress.begin('Dwell', undefined, `recording ${command.join(' ')}`, true);
  try {
    const verb = ['record', ...(name === undefined ? [] : ['--name', name]), '--', ...command];
    const finished = await dwell(profile, programs, verb, cwd, token);
    const epoch = epochOf(finished);
    profile.select([epoch]);
    return { epoch, output: finished.stderr };
  } finally {
    progress.done();
  }
}

export async function newEpoch(profile: Profile, programs: Programs, argument: unknown, token: CancellationToken): Promise<{ epoch: string }> {
  const { name } = newEpochParams(argument);
  const finished = await dwell(profile, programs, ['epoch', 'new', ...(name === undefined ? [] : [name])], undefined, token);
  return { epoch: epochOf(finished) };
}

/** Runs a verb on the profile's database; what fails is one line. */
async function dwell(profile: Profile, programs: Programs, verb: string[], cwd: string | undefined, token: CancellationToken): Promise<Finished> {
  const program = await findDwell(programs.dwellPath, programs.serverFolder);
  if (program === undefined) {
    const where = programs.dwellPath ?? 'neither beside the server nor in PATH';
    throw failed(`the dwell program is missing (${where}): set 'dwellPath' to it`);
  }
  const interrupt = new AbortController();
  const subscription = token.onCancellationRequested(() => {
    interrupt.abort();
  });
  if (token.isCancellationRequested) interrupt.abort();
  try {
    const finished = await run(program, ['--db', profile.folder, '--json', ...verb], cwd, interrupt.signal);
    if (token.isCancellationRequested) throw new ResponseError(LSPErrorCodes.RequestCancelled, 'cancelled');
    if (finished.status !== 0) throw failed(failureLine(finished));
    return finished;
  } catch (error) {
    throw error instanceof ResponseError ? error : failed(`${program}: ${errorMessage(error)}`);
  } finally {
    subscription.dispose();
  }
}

function epochOf(finished: Finished): string {
  const answer = lastJson(finished.stdout);
  const epoch = isRecord(answer) ? answer.epoch : undefined;
  const id = isRecord(epoch) ? epoch.id : epoch;
  if (!isText(id)) throw failed('the dwell program did not name the epoch: is it of another version?');
  return id;
}

function recordParams(argument: unknown): RecordParams {
  const { command, cwd, name } = isRecord(argument) ? argument : {};
  if (!isTextList(command) || command.length === 0) throw invalid("dwell.server.record: 'command' must be a list of texts");
  return { command, ...(isText(cwd) ? { cwd } : {}), ...(isText(name) ? { name } : {}) };
}

function newEpochParams(argument: unknown): NewEpochParams {
  const { name } = isRecord(argument) ? argument : {};
  return isText(name) ? { name } : {};
}

function failed(why: string): ResponseError {
  return new ResponseError(LSPErrorCodes.RequestFailed, why);
}

export function invalid(why: string): ResponseError {
  return new ResponseError(-32602, why);
}
