/**
 * `dwell/epochs`, and the commands that name, remove and pin epochs.
 */
import type { CancellationToken } from 'vscode-languageserver';
import type { Profile } from './profile';
import { commands, type CompareParams, type EpochsResult, type RenameEpochParams } from './protocol';
import { invalid } from './record';
import { isRecord, isText, isTextList } from './settings';

export async function epochs(profile: Profile, token: CancellationToken): Promise<EpochsResult> {
  const list = await profile.epochList(token);
  const baseline = profile.baseline === null ? null : [...profile.baseline];
  return { selected: [...profile.selected], baseline, epochs: list.epochs, warnings: list.warnings };
}

export async function renameEpoch(profile: Profile, argument: unknown): Promise<{ epoch: string }> {
  const { epoch, name } = renameParams(argument);
  return { epoch: await profile.renameEpoch(epoch, name) };
}

export async function removeEpochs(profile: Profile, argument: unknown): Promise<{ removed: string[] }> {
  if (!isTextList(argument) || argument.length === 0) throw invalid(`${commands.removeEpochs}: the argument must be a list of epochs`);
  return { removed: await profile.removeEpochs(argument) };
}

export function compare(profile: Profile, argument: unknown): null {
  const params = compareParams(argument);
  if (params === null) profile.compare(null);
  else profile.compare(params.before, params.after);
  return null;
}

function renameParams(argument: unknown): RenameEpochParams {
  const { epoch, name } = isRecord(argument) ? argument : {};
  if (!isText(epoch) || !isText(name)) throw invalid(`${commands.renameEpoch}: 'epoch' and 'name' must be texts`);
  return { epoch, name };
}

function compareParams(argument: unknown): CompareParams | null {
  if (argument === null || argument === undefined) return null;
  const { before, after } = isRecord(argument) ? argument : {};
  if (!isTextList(before) || before.length === 0) throw invalid(`${commands.compare}: 'before' must be a list of epochs`);
  return { before, ...(isTextList(after) && after.length > 0 ? { after } : {}) };
}
