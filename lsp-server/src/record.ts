/**
 * `dwell.server.record`, `recordCommandLine`, `importPerf` and `newEpoch`: new epochs; `report`: a page about those that are shown. All
 * by the `dwell` program.
 */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import { errorMessage } from './core';
import type { Profile } from './profile';
import { failureLine, findDwell, reportFd, run, type Finished } from './program';
import type { Progress } from './progress';
import { commands, type CommandLine, type RecordResult } from './protocol';
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
  const params = read(commands.record, RecordParams, argument);
  const { command, pids, cwd } = params;
  progress.begin(`recording ${command?.join(' ') ?? `process ${(pids ?? []).join(', ')}`}`);
  // A command that is interrupted did not do its work; processes are watched until one has seen enough.
  const keeps = command === undefined;
  return makeEpoch(profile, programs, { verb: ['record', '--report-fd', String(reportFd), ...recordArguments(params)], cwd, keeps }, token, progress);
}

/** The same to be run by the client, in a terminal where the command can be talked to. The client selects the new epoch. */
export async function recordCommandLine(profile: Profile, programs: Programs, argument: unknown): Promise<CommandLine> {
  const params = read(commands.recordCommandLine, RecordParams, argument);
  const program = await programOf(programs);
  reports ??= mkdtemp(join(tmpdir(), 'dwell-'));
  const report = join(await reports, `${(lastReport += 1)}.json`);
  return { program, args: ['--db', profile.folder, 'record', '--report', report, ...recordArguments(params)], report };
}

/** The folder of this server's reports, which nobody else can write to. */
let reports: Promise<string> | undefined;
let lastReport = 0;

function recordArguments({ command, pids, name, seconds }: RecordParams): string[] {
  const subject = command === undefined ? ['--pid', (pids ?? []).join(',')] : ['--', ...command];
  return [...(name === undefined ? [] : ['--name', name]), ...(seconds === undefined ? [] : ['--duration', String(seconds)]), ...subject];
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
  const program = await programOf(programs);
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

async function programOf({ dwellPath, serverFolder }: Programs): Promise<string> {
  const program = await findDwell(dwellPath, serverFolder);
  if (program !== undefined) return program;
  throw failed(`the dwell program is missing (${dwellPath ?? 'neither beside the server nor in PATH'}): set 'dwellPath' to it`);
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
