/**
 * The profile that is shown: the open database, the epochs selected, and answers cached until either changes. What goes
 * wrong with a profile is a note beside an empty answer: an editor without a profile is a normal editor.
 */
import { readFile, stat } from 'node:fs/promises';
import type { CancellationToken } from 'vscode-languageserver';
import {
  errorCode, errorMessage, type Binding, type Callers, type Cancel, type Core, type Diff, type DiffRequest, type EpochList, type FileChanges, type FileCosts,
  type FileFunctions, type Flame, type LineDetail, type Listing, type OpenOptions, type SqlAnswer, type SqlRequest, type Stats, type StatsRequest, type Summary, type SummaryRequest, type Top,
} from './core';
import type { CallersParams, FlameParams, HotProceduresParams } from './protocol';
import type { ValidSettings } from './settings';
import { Cancelled, SharedAnswers } from './shared';
import { filesHere } from './sourceMap';
import { inTurn } from './sql';

/** A file's costs, and its text as it was when they were asked for (null: it cannot be read). */
export interface FileAnswer {
  costs: FileCosts;
  text: string | null;
  /** Changes when the file on disk does. */
  version: string;
}

/** Which database is read, and how. */
export type Place = Pick<ValidSettings, 'database' | 'epochs' | 'sourceMap' | 'debugDirs'>;

const filesKept = 64;
/** How often the programs whose lines are shown are looked at: one that was rebuilt is said. */
const programsInterval_ms = 2000;
/** How often a database that cannot be opened is tried again. */
const retryInterval_ms = 2000;

export class Profile {
  private core: Core | undefined;
  private database = '';
  private epochs: string[] = ['latest'];
  private before: string[] | null = null;
  private options: OpenOptions = { database: '' };
  private sourceMap: [string, string][] = [];
  /** `options` as JSON. */
  private place = '';
  private retry: NodeJS.Timeout | undefined;
  /** Programs of the files that were asked for, as they were then. */
  private readonly programs = new Map<string, string>();
  private programsTimer: NodeJS.Timeout | undefined;
  private readonly files: SharedAnswers<FileAnswer>;
  private readonly tops: SharedAnswers<Top>;
  private readonly diffs: SharedAnswers<Diff>;
  private readonly changes: SharedAnswers<FileChanges>;
  private readonly summaries: SharedAnswers<Summary>;
  private readonly lists: SharedAnswers<EpochList>;
  private readonly evidences: SharedAnswers<string[]>;
  private readonly callerAnswers: SharedAnswers<Callers>;
  private readonly functions: SharedAnswers<FileFunctions>;
  private readonly flames: SharedAnswers<Flame>;

  /** `onChange`: what is shown may have changed; `onNote`: something a user may want to know, once. */
  constructor(
    private readonly binding: Binding,
    private readonly onChange: () => void,
    private readonly onNote: (note: string) => void,
  ) {
    const newCancel = (): Cancel => new binding.Cancel();
    this.files = new SharedAnswers(filesKept, newCancel);
    this.tops = new SharedAnswers(24, newCancel);
    this.diffs = new SharedAnswers(8, newCancel);
    this.changes = new SharedAnswers(filesKept, newCancel);
    this.summaries = new SharedAnswers(filesKept, newCancel);
    this.lists = new SharedAnswers(1, newCancel);
    this.evidences = new SharedAnswers(filesKept, newCancel);
    this.callerAnswers = new SharedAnswers(filesKept, newCancel);
    this.functions = new SharedAnswers(filesKept, newCancel);
    this.flames = new SharedAnswers(2, newCancel);
  }

  /** Selectors of the epochs shown. */
  get selected(): readonly string[] {
    return this.epochs;
  }

  /** Selectors of the epochs that are compared with; null: none are pinned. */
  get baseline(): readonly string[] | null {
    return this.before;
  }

  get folder(): string {
    return this.database;
  }

  /** Folders with separate debug files. */
  get debugDirs(): readonly string[] {
    return this.options.debugDirs ?? [];
  }

  use({ database, epochs, sourceMap, debugDirs }: Place): void {
    const place = JSON.stringify([database, sourceMap, debugDirs]);
    const moved = place !== this.place;
    this.place = place;
    this.database = database;
    this.options = { database, sourceMap, debugDirs };
    this.sourceMap = sourceMap;
    this.epochs = [...epochs];
    if (moved) {
      this.close();
      this.tryOpen();
    }
    this.changed();
  }

  select(epochs: readonly string[]): void {
    this.epochs = epochs.length > 0 ? [...epochs] : ['latest'];
    this.changed();
  }

  /** Pins the epochs before, and shows those after where they are named; null ends the comparison. */
  compare(before: readonly string[] | null, after?: readonly string[]): void {
    this.before = before === null || before.length === 0 ? null : [...before];
    if (after !== undefined && after.length > 0) this.epochs = [...after];
    this.changed();
  }

  async renameEpoch(epoch: string, name: string): Promise<string> {
    const id = await this.opened().renameEpoch(epoch, name);
    this.changed();
    return id;
  }

  async removeEpochs(epochs: string[]): Promise<string[]> {
    const removed = await this.opened().removeEpochs(epochs);
    // What is gone is neither shown nor compared with.
    const stays = (selector: string): boolean => !removed.includes(selector) && !epochs.includes(selector);
    this.before = this.before?.every(stays) === true ? this.before : null;
    const left = this.epochs.filter(stays);
    this.epochs = left.length > 0 ? left : ['latest'];
    this.changed();
    return removed;
  }

  close(): void {
    clearTimeout(this.retry);
    clearInterval(this.programsTimer);
    this.programsTimer = undefined;
    this.core?.unwatch();
    this.core = undefined;
  }

  epochList(token?: CancellationToken): Promise<EpochList> {
    const empty: EpochList = { schema: 1, epochs: [], warnings: [] };
    return this.orEmpty(token, empty, 'warnings', (core) => this.lists.get('', token, (cancel) => core.epochs(cancel)));
  }

  /** The ids of the epochs that selectors name; none where there is no database. */
  async idsOf(selectors: readonly string[]): Promise<string[]> {
    try {
      return await this.opened().selectedEpochs([...selectors]);
    } catch (error) {
      this.noteOf(error);
      return [];
    }
  }

  top(request: HotProceduresParams, token?: CancellationToken): Promise<Top> {
    const { by = 'procedure', ...rest } = request;
    const empty: Top = { schema: 1, epochs: [], total: {}, rows: [], omitted_rows: 0, notes: [] };
    const ask = { epochs: [...this.epochs], by, ...rest };
    const key = JSON.stringify(ask);
    return this.orEmpty(token, empty, 'notes', (core) => this.tops.get(key, token, (cancel) => core.top(ask, cancel)));
  }

  /** Rejects if there is no such procedure: the user named it. */
  listing(procedure: string, token?: CancellationToken): Promise<Listing> {
    return this.ask(token, (core, cancel) => core.listing([...this.epochs], procedure, cancel));
  }

  /** What a procedure's scale rests on, in words; kept, since only the listing has it. */
  evidence(procedure: string, token?: CancellationToken): Promise<string[]> {
    const scaleOf = async (core: Core, cancel: Cancel): Promise<string[]> => (await core.listing([...this.epochs], procedure, cancel)).scale.evidence;
    return this.ask(token, (core) => this.evidences.get(procedure, token, (cancel) => scaleOf(core, cancel)));
  }

  /** Who calls a function (`IMAGE:NAME`, demangled), or what it calls, after the calls `through`. Rejects if no call stacks were recorded. */
  callers(name: string, { callees = false, through = [] }: Pick<CallersParams, 'callees' | 'through'>, token?: CancellationToken): Promise<Callers> {
    const request = { epochs: [...this.epochs], function: name, callees, through, depth: 1, shareMin: 0 };
    const key = JSON.stringify(request);
    return this.ask(token, (core) => this.callerAnswers.get(key, token, (cancel) => core.callers(request, cancel)));
  }

  /** The functions of a file that are in call stacks. `version` is that of the file. Rejects if no call stacks were recorded. */
  fileFunctions(path: string, version: string, token?: CancellationToken): Promise<FileFunctions> {
    const epochs = [...this.epochs];
    const key = JSON.stringify([epochs, path, version]);
    return this.ask(token, (core) => this.functions.get(key, token, (cancel) => core.fileFunctions(epochs, path, cancel)));
  }

  /** All call stacks as one tree. Rejects if none were recorded. */
  flame(params: FlameParams, token?: CancellationToken): Promise<Flame> {
    const request = { epochs: [...this.epochs], ...params };
    return this.ask(token, (core) => this.flames.get(JSON.stringify(request), token, (cancel) => core.flame(request, cancel)));
  }

  /** The first rows of a query over all epochs; not kept. Rejects with DuckDB's message. */
  sql(folder: string, request: Omit<SqlRequest, 'program'>, token?: CancellationToken): Promise<SqlAnswer> {
    return this.ask(token, (core, cancel) => inTurn(core, folder, request, cancel));
  }

  lineDetail(path: string, line: number, token?: CancellationToken): Promise<LineDetail> {
    return this.ask(token, (core, cancel) => core.lineDetail([...this.epochs], path, line, cancel));
  }

  diff(request: DiffRequest, token?: CancellationToken): Promise<Diff> {
    return this.ask(token, (core) => this.diffs.get(JSON.stringify(request), token, (cancel) => core.diff(request, cancel)));
  }

  summary(request: SummaryRequest, token?: CancellationToken): Promise<Summary> {
    return this.ask(token, (core) => this.summaries.get(JSON.stringify(request), token, (cancel) => core.summary(request, cancel)));
  }

  stats(request: StatsRequest, token?: CancellationToken): Promise<Stats> {
    return this.ask(token, (core, cancel) => core.stats(request, cancel));
  }

  /** What changed in a file up to what is shown; null: there is nothing to compare with. `of`: the costs that are shown. */
  async fileChanges(path: string, of: FileAnswer, token?: CancellationToken): Promise<FileChanges | null> {
    const a = this.before ?? (await this.epochBefore(of.costs.epochs, token));
    if (a === null || of.text === null || of.costs.epochs.length === 0) return null;
    const request = { a, b: of.costs.epochs };
    const key = JSON.stringify([request, path, of.version]);
    try {
      return await this.ask(token, (core) => this.changes.get(key, token, (cancel) => core.fileChanges(request, path, cancel)));
    } catch (error) {
      this.noteOf(error);
      return null;
    }
  }

  /** The epoch before the one that is shown, of the same program on the same machine; null: there is none. */
  private async epochBefore(shown: readonly string[], token?: CancellationToken): Promise<string[] | null> {
    const [id] = shown;
    if (id === undefined || shown.length > 1) return null;
    const { epochs } = await this.epochList(token);
    const at = epochs.findIndex((epoch) => epoch.id === id);
    const now = epochs[at];
    if (now === undefined) return null;
    const alike = epochs.slice(0, at).filter(({ scope, host, end }) => scope === now.scope && host === now.host && end !== null);
    const before = alike.at(-1);
    return before === undefined ? null : [before.id];
  }

  async fileCosts(path: string, token?: CancellationToken): Promise<FileAnswer> {
    const costs: FileCosts = { schema: 1, file: path, epochs: [], source: 'unchecked', lines: [], stale: [], procedures: [], programs: [], notes: [] };
    const version = await fileVersion(path);
    const key = JSON.stringify([this.epochs, path, version]);
    const epochs = [...this.epochs];
    try {
      const core = this.opened();
      const answer = await this.files.get(key, token, (cancel) => readFileAnswer(core, epochs, path, cancel));
      await this.lookAtPrograms(answer.costs);
      return { ...answer, costs: filesHere(answer.costs, this.sourceMap) };
    } catch (error) {
      return { costs: { ...costs, notes: [this.noteOf(error)] }, text: null, version };
    }
  }

  /** From now on a change of one of the file's programs is a change of the profile. */
  private async lookAtPrograms({ programs }: FileCosts): Promise<void> {
    for (const { path } of programs) {
      if (!this.programs.has(path)) this.programs.set(path, await fileVersion(path));
    }
    if (this.programs.size > 0) this.programsTimer ??= setInterval(() => void this.programsChanged(), programsInterval_ms).unref();
  }

  private async programsChanged(): Promise<void> {
    const changed = await Promise.all([...this.programs].map(async ([path, version]) => version !== (await fileVersion(path))));
    if (changed.includes(true)) this.changed();
  }

  private async orEmpty<K extends string, T extends Record<K, string[]>>(
    token: CancellationToken | undefined,
    empty: T,
    notes: K,
    question: (core: Core, cancel: Cancel) => Promise<T>,
  ): Promise<T> {
    try {
      return await this.ask(token, question);
    } catch (error) {
      return { ...empty, [notes]: [this.noteOf(error)] };
    }
  }

  private async ask<T>(token: CancellationToken | undefined, question: (core: Core, cancel: Cancel) => Promise<T>): Promise<T> {
    const core = this.opened();
    if (token?.isCancellationRequested === true) throw new Cancelled();
    const cancel = new this.binding.Cancel();
    const subscription = token?.onCancellationRequested(() => {
      cancel.cancel();
    });
    try {
      return filesHere(await question(core, cancel), this.sourceMap);
    } finally {
      subscription?.dispose();
    }
  }

  /** The note that stands for an error; a cancelled request stays one. */
  private noteOf(error: unknown): string {
    if (error instanceof Cancelled || errorCode(error) === 'cancelled') throw new Cancelled();
    const note = errorMessage(error);
    this.onNote(note);
    return note;
  }

  private opened(): Core {
    this.core ??= this.open();
    return this.core;
  }

  private open(): Core {
    const core = this.binding.Dwell.open(this.options);
    core.watch(() => {
      this.changed();
    });
    return core;
  }

  /** A database that is not there yet may come: the first recording makes it. */
  private tryOpen(): void {
    try {
      this.core ??= this.open();
    } catch (error) {
      this.onNote(errorMessage(error));
      this.retry = setInterval(() => {
        this.retryOpen();
      }, retryInterval_ms).unref();
    }
  }

  private retryOpen(): void {
    try {
      this.core ??= this.open();
      clearInterval(this.retry);
      this.changed();
    } catch {
      // Said once already.
    }
  }

  private changed(): void {
    this.programs.clear();
    this.files.clear();
    this.tops.clear();
    this.diffs.clear();
    this.changes.clear();
    this.summaries.clear();
    this.lists.clear();
    this.evidences.clear();
    this.callerAnswers.clear();
    this.functions.clear();
    this.flames.clear();
    this.onChange();
  }
}

/** The costs and the very text they are of: asked again while the file changes under the question. */
async function readFileAnswer(core: Core, epochs: string[], path: string, cancel: Cancel): Promise<FileAnswer> {
  for (let attempt = 0; ; attempt++) {
    const before = await fileVersion(path);
    const costs = await core.fileCosts(epochs, path, cancel);
    const text = await readFile(path, 'utf8').catch(() => null);
    if (attempt === 2 || before === (await fileVersion(path))) return { costs, text, version: before };
  }
}

/** Changes when the file does. */
async function fileVersion(path: string): Promise<string> {
  try {
    const { mtimeMs, size } = await stat(path);
    return `${mtimeMs}:${size}`;
  } catch {
    return 'gone';
  }
}
