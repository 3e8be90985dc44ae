/**
 * `dwell/epochs`: what there is to choose from, and what is chosen.
 */
import type { CancellationToken } from 'vscode-languageserver';
import type { Profile } from './profile';
import type { EpochsResult } from './protocol';

export async function epochs(profile: Profile, token: CancellationToken): Promise<EpochsResult> {
  const list = await profile.epochList(token);
  return { selected: [...profile.selected], epochs: list.epochs, warnings: list.warnings };
}
