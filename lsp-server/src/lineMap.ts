/**
 * Which line of a text is which line of an earlier text: so that no number ever stands on the wrong line.
 *
 * `lineDifference` is Myers' O(ND) greedy algorithm (Algorithmica 1, 1986, §4) on the lines between the common head and
 * tail, given up beyond `editsMax` edits: those lines then have no counterpart.
 */

/** For each line of the later text, the same line of the earlier one, or -1. */
export type Origins = number[];

const editsMax = 400;

export function splitLines(text: string): string[] {
  return text.split(/\r\n|\n|\r/);
}

/** Input: two texts as lines. Output: the origin of each of `after`'s lines. Time O((N+M)·D), memory O(D²). */
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
  const middle = matchingLines(before.slice(head, before.length - tail), after.slice(head, after.length - tail));
  for (const [x, y] of middle) origins[head + y] = head + x;
  return origins;
}

/** Pairs of equal lines along a shortest edit script. */
function matchingLines(a: readonly string[], b: readonly string[]): [number, number][] {
  if (a.length === 0 || b.length === 0) return [];
  const limit = Math.min(a.length + b.length, editsMax);
  const frontier = new Map<number, number>([[1, 0]]);
  const history: Map<number, number>[] = [];
  for (let edits = 0; edits <= limit; edits++) {
    history.push(new Map(frontier));
    for (let k = -edits; k <= edits; k += 2) {
      const x = slide(a, b, nextX(frontier, k, edits), k);
      frontier.set(k, x);
      if (x >= a.length && x - k >= b.length) return backtrack(history, a.length, b.length);
    }
  }
  return [];
}

/** The furthest x on diagonal k after one more edit: down (a line of b) or right (a line of a). */
function nextX(frontier: ReadonlyMap<number, number>, k: number, edits: number): number {
  return goesDown(frontier, k, edits) ? (frontier.get(k + 1) ?? -1) : (frontier.get(k - 1) ?? -1) + 1;
}

function goesDown(frontier: ReadonlyMap<number, number>, k: number, edits: number): boolean {
  return k === -edits || (k !== edits && (frontier.get(k - 1) ?? -1) < (frontier.get(k + 1) ?? -1));
}

function slide(a: readonly string[], b: readonly string[], from: number, k: number): number {
  let x = from;
  while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
  return x;
}

function backtrack(history: readonly ReadonlyMap<number, number>[], lengthA: number, lengthB: number): [number, number][] {
  const pairs: [number, number][] = [];
  let x = lengthA;
  let y = lengthB;
  for (let edits = history.length - 1; edits >= 0; edits--) {
    const frontier = history[edits];
    if (!frontier) break;
    const k = x - y;
    const start = nextX(frontier, k, edits);
    while (x > start && x > 0 && y > 0) pairs.push([--x, --y]);
    if (edits === 0) break;
    // Undo the edit itself.
    if (goesDown(frontier, k, edits)) y--;
    else x--;
  }
  return pairs;
}

/**
 * Origins with those found again that edits lost: what was cut and put back, or reverted, stands between the same neighbours as
 * before, with its text.
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
 * Origins after lines `first..=last` became `now` (they were `was`). A line edited in place stays a candidate of its
 * origin: whoever shows a number compares the texts, so undoing the edit brings the number back.
 */
export function editLines(origins: Origins, first: number, last: number, was: readonly string[], now: readonly string[]): Origins {
  const old = origins.slice(first, last + 1);
  const replaced =
    was.length === 1 && now.length === 1 ? old : lineDifference(was, now).map((from) => (from < 0 ? -1 : (old[from] ?? -1)));
  return [...origins.slice(0, first), ...replaced, ...origins.slice(last + 1)];
}
