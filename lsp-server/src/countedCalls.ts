/**
 * `dwell.server.countCalls`, `stopCounting` and `dwell/callPaths`: functions of running programs whose calls the `dwell` program counts
 * now, and what lenses and hints say of them. Counting ends with the server: `dwell` ends when nobody reads what it writes.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { LSPErrorCodes, ResponseError, type CodeLens, type InlayHint } from 'vscode-languageserver';
import type { TrackedDocument } from './documents';
import { pathOf } from './fileUri';
import { locationOf, type Documents } from './fileView';
import { failureLine, findDwell } from './program';
import { showCallPathsCommand, commands, type CallCount, type CallPathsResult, type CallTimes, type CountedFunction, type CountedPath } from './protocol';
import type { Programs } from './record';
import { baseName, shortName } from './callers';
import { count, fileName, joined, nanoseconds, quantity, shortShare } from './text';

/** Time between two answers of the program. */
const interval_s = 1;
/** Paths of a function that are passed on, most calls first. */
const pathsMax = 500;
/** What is kept of what the program says on standard error. */
const wordsKept = 1 << 14;

/** What `dwell callpaths --json` prints on a line (docs/json.md), as far as it is used here. */
interface Told {
  elapsed_ns: number;
  functions: ToldFunction[];
}
interface ToldFunction {
  function: string;
  image: string;
  file: string | null;
  line: number | null;
  calls: number;
  returns: number | null;
  missed: number;
  metrics: Record<string, ToldValues | undefined>;
  paths: ToldPath[];
}
interface ToldPath {
  frames: { function: string | null; image: string | null; file: string | null; line: number | null; inlined: boolean }[];
  is_complete: boolean;
  calls: number;
  returns: number | null;
  share: number;
  metrics: Record<string, ToldValues | undefined>;
}
interface ToldValues {
  sum: number;
  p50: number | null;
  p99: number | null;
  max: number;
}

type Place = CallPathsResult['sites'][number]['place'];

/** What to count: names as the program takes them, the likeliest first. */
export interface Wanted {
  pids: number[];
  names: string[];
}

/** A run of the program. */
interface Counting {
  id: number;
  pids: number[];
  /** What is counted, as the program was told. */
  names: string[];
  child: ChildProcess | undefined;
  latest: Told | undefined;
  before: Told | undefined;
  /** Why it ended, unless it was stopped or the programs ended. */
  problem: string | null;
}

export class CountedCalls {
  private readonly all = new Map<number, Counting>();
  private lastId = 0;

  /** `changed` is called when there are other numbers. */
  constructor(
    private readonly documents: Documents,
    private readonly changed: () => void,
  ) {}

  /** Begins to count. A program can be counted by one run only: what is counted in it already is counted anew beside the function. Returns
   *  when there are numbers. */
  async start(programs: Programs, { pids, names }: Wanted): Promise<CallCount> {
    const program = await findDwell(programs.dwellPath, programs.serverFolder);
    if (program === undefined) throw failed("the dwell program is missing: set 'dwellPath' to it");
    const same = [...this.all.values()].find((each) => each.child !== undefined && each.pids.some((pid) => pids.includes(pid)));
    const known = same?.names ?? [];
    const together = [...new Set([...(same?.pids ?? []), ...pids])];
    if (same !== undefined) await this.end(same);
    let refusal: unknown;
    for (const name of names) {
      const counting: Counting = { id: same?.id ?? (this.lastId += 1), pids: together, names: [...new Set([...known, name])], child: undefined, latest: undefined, before: undefined, problem: null };
      try {
        await this.run(program, counting);
        return shown(counting);
      } catch (error) {
        refusal ??= error;
      }
    }
    if (same !== undefined) await this.run(program, { ...same, latest: undefined, before: undefined, problem: null }).catch(() => undefined);
    throw refusal;
  }

  /** Stops one that runs; forgets one that has ended. */
  async stop(id: number): Promise<void> {
    const counting = this.all.get(id);
    if (counting === undefined) return;
    if (counting.child === undefined) this.all.delete(id);
    else await this.end(counting);
    this.changed();
  }

  result(): CallPathsResult {
    const counts = [...this.all.values()].map(shown);
    return { counts, sites: callSites(counts).flatMap((site) => this.whereItIs(site.place, (place) => ({ ...site, place }))) };
  }

  /** What is counted of functions in this document, above their first lines. */
  lenses(document: TrackedDocument | undefined): CodeLens[] {
    return [...this.all.values()].flatMap((counting) => {
      const { id, state, functions } = shown(counting);
      return functions.flatMap(({ function: name, label, place }) => {
        const line = lineIn(document, place);
        if (line === undefined) return [];
        const at = { start: { line, character: 0 }, end: { line, character: 0 } };
        return [
          { range: at, command: { title: joined([functions.length > 1 ? shortName(name) : undefined, label]), command: showCallPathsCommand, arguments: [id] } },
          { range: at, command: { title: state === 'counting' ? 'Stop counting' : 'Close', command: commands.stopCounting, arguments: [id] } },
        ];
      });
    });
  }

  /** At the end of each line of this document that calls a counted function: how often it was the caller. */
  hints(document: TrackedDocument | undefined): InlayHint[] {
    if (document === undefined) return [];
    const own = this.result().sites.filter(({ place }) => pathOf(place.uri) === pathOf(document.uri));
    return own.map(({ place: { line }, label }) => ({ position: { line, character: document.lineText(line).length }, label, paddingLeft: true }));
  }

  /** Passes on where a line of a file stands now; nothing if it was edited away. Of a file that is not open: as it was built. */
  private whereItIs<T>(place: Place, then: (place: Place) => T): T[] {
    const document = this.documents.get(place.uri);
    const line = document === undefined ? place.line : lineIn(document, place);
    return line === undefined ? [] : [then({ ...place, line })];
  }

  /** Ends all runs. */
  dispose(): void {
    for (const { child } of this.all.values()) child?.kill('SIGINT');
  }

  /** Returns when the first numbers are there; throws if the program refuses. */
  private run(program: string, counting: Counting): Promise<void> {
    const args = ['callpaths', '--json', '--interval', String(interval_s), '-m', 'calls,wall,blocked', '-p', counting.pids.join(','), ...counting.names];
    return new Promise((resolve, reject) => {
      const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
      let [line, words] = ['', ''];
      counting.child = child;
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        const lines = (line + text).split('\n');
        line = lines.pop() ?? '';
        const last = lines.at(-1);
        if (last === undefined) return;
        [counting.before, counting.latest] = [counting.latest, JSON.parse(last) as Told];
        this.all.set(counting.id, counting);
        this.changed();
        resolve();
      });
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        words = (words + text).slice(-wordsKept);
      });
      child.on('error', (error) => {
        counting.child = undefined;
        reject(failed(`${program}: ${error.message}`));
      });
      child.on('close', (status) => {
        counting.child = undefined;
        counting.before = undefined;
        if (status !== 0) counting.problem = failureLine({ status, stdout: '', stderr: words, report: '' });
        if (counting.latest === undefined) reject(failed(counting.problem ?? 'the program ended before anything was counted'));
        else this.changed();
      });
    });
  }

  private end({ child }: Counting): Promise<void> {
    return new Promise((resolve) => {
      if (child?.exitCode !== null) {
        resolve();
        return;
      }
      child.once('close', () => {
        resolve();
      });
      child.kill('SIGINT');
    });
  }
}

/** What to count for a position in a document: the function around it by its line in the file, otherwise the one that the word names. */
export function namesAt(path: string, fileLine: number, text: string, character: number): string[] {
  const before = /[\p{L}\p{N}_~$:]*$/u.exec(text.slice(0, character))?.[0] ?? '';
  const after = /^[\p{L}\p{N}_~$]*/u.exec(text.slice(character))?.[0] ?? '';
  const word = baseName(before + after);
  return [`${path}:${fileLine}`, ...(word === '' ? [] : [word])];
}

/** `1.2 k calls/s · mean 3.2 µs · p99 10 µs · 40 % of it blocked`; `seconds`: it has ended, and took so long. */
export function callsText({ calls, perSecond, missed, wall, blockedShare }: Omit<CountedFunction, 'label'>, seconds: number | undefined): string {
  return joined([
    seconds === undefined ? `${quantity(perSecond)} calls/s` : `${count(calls)} calls in ${seconds.toFixed(0)} s`,
    wall?.mean == null ? undefined : `mean ${nanoseconds(wall.mean)}`,
    wall?.p99 == null ? undefined : `p99 ${nanoseconds(wall.p99)}`,
    blockedShare === null || blockedShare < 0.005 ? undefined : `${shortShare(blockedShare)} of it blocked`,
    missed === 0 ? undefined : `${count(missed)} calls not counted`,
  ]);
}

/** The lines with calls of counted functions, with the part of the function's calls that each made. */
function callSites(counts: readonly CallCount[]): CallPathsResult['sites'] {
  const sites = new Map<string, { place: Place; of: string; share: number }>();
  for (const counted of counts.flatMap(({ functions }) => functions)) {
    for (const { frames: [site], share } of counted.paths) {
      if (site?.place == null) continue;
      const key = JSON.stringify([counted.image, counted.function, site.place]);
      const known = sites.get(key) ?? { place: site.place, of: counted.function, share: 0 };
      sites.set(key, { ...known, share: known.share + share });
    }
  }
  return [...sites.values()].map(({ place, of, share }) => ({ place, label: `← ${shortShare(share)} of the calls of ${shortName(of)}` }));
}

function shown({ id, pids, child, latest, before, problem }: Counting): CallCount {
  const seconds = (latest?.elapsed_ns ?? 0) / 1e9;
  const state = child === undefined ? 'ended' : 'counting';
  const functions = (latest?.functions ?? []).map((each, at) => {
    const counted = countedFunction(each, seconds, before && { seconds: before.elapsed_ns / 1e9, told: before.functions[at] });
    return { ...counted, label: callsText(counted, state === 'counting' ? undefined : seconds) };
  });
  return { id, pids, seconds, state, problem, functions };
}

function countedFunction(told: ToldFunction, seconds: number, before: { seconds: number; told: ToldFunction | undefined } | undefined): Omit<CountedFunction, 'label'> {
  const { wall, blocked } = told.metrics;
  const since = before === undefined ? seconds : seconds - before.seconds;
  const perSecond = (told.calls - (before?.told?.calls ?? 0)) / Math.max(since, 1e-9);
  return {
    function: told.function, image: fileName(told.image), place: locationOf(told.file, told.line),
    calls: told.calls, perSecond, missed: told.missed, wall: timesOf(wall, told.returns),
    blockedShare: wall === undefined || blocked === undefined || wall.sum === 0 ? null : Math.min(blocked.sum / wall.sum, 1),
    paths: told.paths.slice(0, pathsMax).map(countedPath), omittedPaths: Math.max(told.paths.length - pathsMax, 0),
  };
}

function countedPath({ frames, is_complete: complete, calls, returns, share, metrics }: ToldPath): CountedPath {
  return {
    frames: frames.map(({ function: name, image, file, line, inlined }) => ({ function: name, image: image === null ? null : fileName(image), inlined, place: locationOf(file, line) })).reverse(),
    complete, calls, returns, share, wall: timesOf(metrics.wall, returns),
  };
}

function timesOf(values: ToldValues | undefined, returns: number | null): CallTimes | null {
  if (values === undefined) return null;
  const { sum, p50, p99, max } = values;
  return { sum, mean: returns === null || returns === 0 ? null : sum / returns, p50, p99, max };
}

/** Where a line of a file stands in the document; undefined if it is of another file, or was edited away. */
function lineIn(document: TrackedDocument | undefined, place: Place | null): number | undefined {
  const isOwn = place !== null && document !== undefined && pathOf(place.uri) === pathOf(document.uri);
  return isOwn ? document.lineOfSaved(place.line) : undefined;
}

function failed(why: string): ResponseError {
  return new ResponseError(LSPErrorCodes.RequestFailed, why);
}
