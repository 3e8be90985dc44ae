/**
 * `dwell.server.record` and `dwell.server.newEpoch`: new epochs, by the `dwell` program.
 */
import { ErrorCodes, LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import { errorMessage } from './core';
import type { Profile } from './profile';
import { endingJson, failureLine, findDwell, run } from './program';
import type { Progress } from './progress';
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
  progress: Progress,
): Promise<RecordResult> {
  const { command, cwd, name } = recordParams(argument);
  progress.begin(`recording ${command.join(' ')}`);
  try {
    const verb = ['record', ...(name === undefined ? [] : ['--name', name]), '--', ...command];
    const result = await dwell(profile, programs, verb, cwd, [token, progress.cancelled]);
    profile.select([result.epoch]);
    return result;
  } finally {
    progress.done();
  }
}

export async function newEpoch(profile: Profile, programs: Programs, argument: unknown, token: CancellationToken): Promise<{ epoch: string }> {
  const { name } = newEpochParams(argument);
  const { epoch } = await dwell(profile, programs, ['epoch', 'new', ...(name === undefined ? [] : [name])], undefined, [token]);
  return { epoch };
}

/** Runs a verb that makes an epoch on the profile's database; what fails is one line. */
async function dwell(
  profile: Profile,
  programs: Programs,
  verb: string[],
  cwd: string | undefined,
  tokens: (CancellationToken | undefined)[],
): Promise<RecordResult> {
  const program = await findDwell(programs.dwellPath, programs.serverFolder);
  if (program === undefined) {
    const where = programs.dwellPath ?? 'neither beside the server nor in PATH';
    throw failed(`the dwell program is missing (${where}): set 'dwellPath' to it`);
  }
  const interrupt = new AbortController();
  const subscriptions = tokens.map((token) => token?.onCancellationRequested(() => {
    interrupt.abort();
  }));
  try {
    const finished = await run(program, ['--db', profile.folder, '--json', ...verb], cwd, interrupt.signal);
    if (interrupt.signal.aborted) throw new ResponseError(LSPErrorCodes.RequestCancelled, 'cancelled');
    if (finished.status !== 0) throw failed(failureLine(finished));
    const { answer, before } = endingJson(finished.stdout);
    return { epoch: epochOf(answer), output: before + finished.stderr };
  } catch (error) {
    throw error instanceof ResponseError ? error : failed(`${program}: ${errorMessage(error)}`);
  } finally {
    for (const subscription of subscriptions) subscription?.dispose();
  }
}

function epochOf(answer: unknown): string {
  const epoch = isRecord(answer) ? answer.epoch : undefined;
  if (!isText(epoch)) throw failed('the dwell program did not name the epoch: is it of another version?');
  return epoch;
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
  return new ResponseError(ErrorCodes.InvalidParams, why);
}
