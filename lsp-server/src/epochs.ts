/**
 * `dwell/epochs`, and the commands that name, remove and pin epochs.
 */
import type { CancellationToken } from 'vscode-languageserver';
import { camel } from './camel';
import type { EpochList as CoreEpochs } from './core';
import type { Profile } from './profile';
import { commands, type EpochSummary, type EpochsResult } from './protocol';
import { CompareParams, EpochList, read, RenameEpochParams } from './requests';

export async function epochs(profile: Profile, token: CancellationToken): Promise<EpochsResult> {
  const { selected, baseline } = profile;
  const [list, shown, pinned] = await Promise.all([profile.epochList(token), profile.idsOf(selected), profile.idsOf(baseline ?? [])]);
  const epochs = list.epochs.map((epoch) => ({ ...epoch, events: eventsOf(epoch), shown: shown.includes(epoch.id), pinned: pinned.includes(epoch.id) }));
  return { selected: [...selected], baseline: baseline === null ? null : [...baseline], epochs, warnings: list.warnings };
}

function eventsOf({ events }: CoreEpochs['epochs'][number]): EpochSummary['events'] {
  return Object.fromEntries(Object.entries(events).map(([name, event]) => [name, { ...camel(event), runningShare: event.running_share ?? null }]));
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
