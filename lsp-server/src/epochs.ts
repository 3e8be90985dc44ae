/**
 * `dwell/epochs`, and the commands that name, remove and pin epochs.
 */
import type { CancellationToken } from 'vscode-languageserver';
import type { Profile } from './profile';
import { commands, type EpochsResult } from './protocol';
import { CompareParams, EpochList, read, RenameEpochParams } from './requests';

export async function epochs(profile: Profile, token: CancellationToken): Promise<EpochsResult> {
  const { selected, baseline } = profile;
  const [list, shown, pinned] = await Promise.all([profile.epochList(token), profile.idsOf(selected), profile.idsOf(baseline ?? [])]);
  const epochs = list.epochs.map((epoch) => ({ ...epoch, shown: shown.includes(epoch.id), pinned: pinned.includes(epoch.id) }));
  return { selected: [...selected], baseline: baseline === null ? null : [...baseline], epochs, warnings: list.warnings };
}

export async function renameEpoch(profile: Profile, argument: unknown): Promise<{ epoch: string }> {
  const { epoch, name } = read(commands.renameEpoch, RenameEpochParams, argument);
  return { epoch: await profile.renameEpoch(epoch, name) };
}

export async function removeEpochs(profile: Profile, argument: unknown): Promise<{ removed: string[] }> {
  return { removed: await profile.removeEpochs(read(commands.removeEpochs, EpochList, argument)) };
}

export function compare(profile: Profile, argument: unknown): null {
  if (argument === null || argument === undefined) {
    profile.compare(null);
  } else {
    const { before, after } = read(commands.compare, CompareParams, argument);
    profile.compare(before, after);
  }
  return null;
}
