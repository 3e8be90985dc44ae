/**
 * `dwell/listing` and its command twin: a procedure's instructions as text that knows what each line is about.
 */
import { LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import { errorCode, errorMessage, type Listing, type Summary } from './core';
import { locationOf } from './fileView';
import { listingText, listingTitle, type TextLine } from './listingText';
import type { Profile } from './profile';
import type { ListingParams, ListingResult } from './protocol';
import { Cancelled } from './shared';

export async function listing(profile: Profile, { procedure }: ListingParams, token: CancellationToken): Promise<ListingResult> {
  try {
    // The summary is beside the point of a listing: one without it is whole.
    const request = { epochs: [...profile.selected], procedure };
    const [answer, summary] = await Promise.all([profile.listing(procedure, token), profile.summary(request, token).catch(() => null)]);
    return render(answer, summary);
  } catch (error) {
    if (error instanceof Cancelled || errorCode(error) === 'cancelled') throw error;
    throw new ResponseError(LSPErrorCodes.RequestFailed, errorMessage(error), { code: errorCode(error) });
  }
}

export function render(answer: Listing, summary: Summary | null = null): ListingResult {
  const lines = listingText(answer, summary);
  const lineOf = new Map<number, number>();
  lines.forEach(({ address }, line) => {
    if (address !== null) lineOf.set(address, line);
  });
  return {
    title: listingTitle(answer),
    text: lines.map(({ text }) => `${text}\n`).join(''),
    lines: lines.map(({ address, file, line, culprits, target, operands }) => ({
      address,
      target,
      source: locationOf(file, line),
      culpritLines: culprits.flatMap((culprit) => lineOf.get(culprit) ?? []),
      operands: operands.map((each) => ({ text: each.text, lines: each.writers.flatMap((writer) => lineOf.get(writer) ?? []) })),
    })),
    folds: folds(lines),
    listing: answer,
  };
}

/** The summary, and each basic block: from its head to its last line that is not empty. */
function folds(lines: readonly TextLine[]): ListingResult['folds'] {
  const heads = lines.flatMap(({ fold }, at) => (fold === undefined ? [] : [{ at, kind: fold }]));
  return heads.flatMap(({ at, kind }, index) => {
    let end = (heads[index + 1]?.at ?? lines.length) - 1;
    // The table's head, which stands between the summary and the first block, belongs to neither.
    const gap = lines.findIndex(({ text }, line) => line > at && text === '');
    if (gap >= 0) end = Math.min(end, gap - 1);
    return end > at ? [{ start: at, end, kind }] : [];
  });
}
