/**
 * `dwell/listing` and its command twin: a procedure's instructions as text that knows what each line is about.
 */
import { LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import { errorCode, errorMessage, type Listing } from './core';
import { locationOf } from './fileView';
import { listingText, listingTitle } from './listingText';
import type { Profile } from './profile';
import type { ListingParams, ListingResult } from './protocol';
import { Cancelled } from './shared';

export async function listing(profile: Profile, { procedure }: ListingParams, token: CancellationToken): Promise<ListingResult> {
  try {
    return render(await profile.listing(procedure, token));
  } catch (error) {
    if (error instanceof Cancelled || errorCode(error) === 'cancelled') throw error;
    throw new ResponseError(LSPErrorCodes.RequestFailed, errorMessage(error), { code: errorCode(error) });
  }
}

export function render(answer: Listing): ListingResult {
  const lines = listingText(answer);
  const lineOf = new Map<number, number>();
  lines.forEach(({ address }, line) => {
    if (address !== null) lineOf.set(address, line);
  });
  return {
    title: listingTitle(answer),
    text: lines.map(({ text }) => `${text}\n`).join(''),
    lines: lines.map(({ address, file, line, culprits }) => ({
      address,
      source: locationOf(file, line),
      culpritLines: culprits.flatMap((culprit) => lineOf.get(culprit) ?? []),
    })),
    listing: answer,
  };
}
