/**
 * Traces the lines of a text back to the lines of an earlier text, so that no number ever stands on the wrong line.
 */
import { diffArrays } from 'diff';

/** For each line of the later text, the same line of the earlier one, or -1. */
export type Origins = number[];

/** Texts that differ by more edits than this have only their common head and tail compared. */
const editsMax = 400;

export function splitLines(text: string): string[] {
  return text.split(/\r\n|\n|\r/);
}

/** Returns the origin of each of `after`'s lines. Takes time O((N + M)·D) for N and M lines that differ by D edits. */
export function lineDifference(before: readonly string[], after: readonly string[]): Origins {
  const origins: Origins = new Array<number>(after.length).fill(-1);
  let head = 0;
  const shorter = Math.min(before.length, after.length);
  while (head < shorter && before[head] === after[head]) origins[head] = head++;
  let tail = 0;
  while (tail < shorter - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) {
    tail++;
    origins[after.length - tail] = before.length - tail;
  }
  const [old, now] = [before.slice(head, before.length - tail), after.slice(head, after.length - tail)];
  let [from, to] = [head, head];
  for (const { added, removed, count } of diffArrays(old, now, { maxEditLength: editsMax }) ?? []) {
    if (!added && !removed) for (let at = 0; at < count; at++) origins[to + at] = from + at;
    if (!added) from += count;
    if (!removed) to += count;
  }
  return origins;
}

/**
 * Returns the origins, with those restored that edits had lost: a line that was cut and pasted back, or reverted, stands between the same
 * neighbours with the same text.
 */
export function foundAgain(origins: Origins, before: readonly string[], now: readonly string[]): Origins {
  const found = [...origins];
  let last = -1;
  for (let line = 0; line < now.length; ) {
    const origin = origins[line] ?? -1;
    if (origin >= 0) {
      last = Math.max(last, origin);
      line++;
      continue;
    }
    let end = line;
    while (end < now.length && (origins[end] ?? -1) < 0) end++;
    const next = end < now.length ? (origins[end] ?? -1) : before.length;
    const lost = lineDifference(before.slice(last + 1, Math.max(last + 1, next)), now.slice(line, end));
    for (const [at, from] of lost.entries()) if (from >= 0) found[line + at] = last + 1 + from;
    line = end;
  }
  return found;
}

/**
 * Returns the origins after lines `first..=last`, which were `was`, became `now`. A line that was edited in place keeps its origin:
 * callers compare the texts before they show a number, so undoing the edit brings the number back.
 */
export function editLines(origins: Origins, first: number, last: number, was: readonly string[], now: readonly string[]): Origins {
  const old = origins.slice(first, last + 1);
  const replaced =
    was.length === 1 && now.length === 1 ? old : lineDifference(was, now).map((from) => (from < 0 ? -1 : (old[from] ?? -1)));
  return [...origins.slice(0, first), ...replaced, ...origins.slice(last + 1)];
}
