/**
 * `dwell.server.record`, `importPerf` and `newEpoch`: new epochs; `report`: a page about those that are shown. All by the `dwell` program.
 */
import { LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import { errorMessage } from './core';
import type { Profile } from './profile';
import { failureLine, findDwell, reportFd, run, type Finished } from './program';
import type { Progress } from './progress';
import { commands, type RecordResult } from './protocol';
import { ImportPerfParams, NewEpochParams, read, RecordParams, ReportParams } from './requests';
import { isRecord } from './settings';

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
  const { command, pids, cwd, name, seconds } = read(commands.record, RecordParams, argument);
  const subject = command === undefined ? ['--pid', (pids ?? []).join(',')] : ['--', ...command];
  progress.begin(`recording ${command?.join(' ') ?? `process ${(pids ?? []).join(', ')}`}`);
  const options = [...(name === undefined ? [] : ['--name', name]), ...(seconds === undefined ? [] : ['--duration', String(seconds)])];
  // A command that is interrupted did not do its work; processes are watched until one has seen enough.
  const keeps = command === undefined;
  return makeEpoch(profile, programs, { verb: ['record', '--report-fd', String(reportFd), ...options, ...subject], cwd, keeps }, token, progress);
}

export async function importPerf(
  profile: Profile,
  programs: Programs,
  argument: unknown,
  token: CancellationToken,
  progress: Progress,
): Promise<RecordResult> {
  const { path, name } = read(commands.importPerf, ImportPerfParams, argument);
  progress.begin(`importing ${path}`);
  const verb = ['import', ...(name === undefined ? [] : ['--name', name]), '--', path];
  return makeEpoch(profile, programs, { verb, cwd: undefined, keeps: false }, token, progress);
}

/** What the program is to do. */
interface Work {
  verb: string[];
  cwd: string | undefined;
  /** Whether what was recorded up to an interruption counts. */
  keeps: boolean;
}

async function makeEpoch(profile: Profile, programs: Programs, work: Work, token: CancellationToken, progress: Progress): Promise<RecordResult> {
  try {
    const result = made(await dwell(profile, programs, work, [token, progress.cancelled]));
    profile.select([result.epoch]);
    return result;
  } finally {
    progress.done();
  }
}

export async function newEpoch(profile: Profile, programs: Programs, argument: unknown, token: CancellationToken): Promise<{ epoch: string }> {
  const { name } = read(commands.newEpoch, NewEpochParams, argument);
  const verb = ['epoch', 'new', ...(name === undefined ? [] : [name])];
  const { epoch } = made(await dwell(profile, programs, { verb, cwd: undefined, keeps: false }, [token]));
  return { epoch };
}

export async function report(profile: Profile, programs: Programs, argument: unknown, token: CancellationToken, progress: Progress): Promise<null> {
  const { path } = read(commands.report, ReportParams, argument);
  progress.begin(`writing ${path}`);
  const epochs = profile.selected.flatMap((epoch) => ['--epoch', epoch]);
  const debugDirs = profile.debugDirs.flatMap((folder) => ['--debug-dir', folder]);
  try {
    await dwell(profile, programs, { verb: ['report', '--html', path, ...epochs, ...debugDirs], cwd: undefined, keeps: false }, [token, progress.cancelled]);
    return null;
  } finally {
    progress.done();
  }
}

/** Runs a verb on the profile's database; what fails is one line. */
async function dwell(
  profile: Profile,
  programs: Programs,
  { verb, cwd, keeps }: Work,
  tokens: (CancellationToken | undefined)[],
): Promise<Finished> {
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
    if (interrupt.signal.aborted && !keeps) throw new ResponseError(LSPErrorCodes.RequestCancelled, 'cancelled');
    if (finished.status !== 0) throw failed(failureLine(finished));
    return finished;
  } catch (error) {
    throw error instanceof ResponseError ? error : failed(`${program}: ${errorMessage(error)}`);
  } finally {
    for (const subscription of subscriptions) subscription?.dispose();
  }
}

/** The epoch that a run made. `record` reports apart from what the command prints; other verbs run no command. */
function made({ stdout, stderr, report: told }: Finished): RecordResult {
  return told === '' ? { epoch: epochOf(stdout), output: stderr } : { epoch: epochOf(told), output: stdout + stderr };
}

/** The epoch that an answer in JSON names. */
function epochOf(json: string): string {
  const answer: unknown = JSON.parse(json);
  const epoch = isRecord(answer) ? answer.epoch : undefined;
  if (typeof epoch !== 'string') throw failed('the dwell program did not name the epoch: is it of another version?');
  return epoch;
}

function failed(why: string): ResponseError {
  return new ResponseError(LSPErrorCodes.RequestFailed, why);
}
