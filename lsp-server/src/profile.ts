/**
 * The profile that is shown: the open database, the epochs selected, and answers cached until either changes. What goes
 * wrong with a profile is a note beside an empty answer: an editor without a profile is a normal editor.
 */
import { readFile, stat } from 'node:fs/promises';
import type { CancellationToken } from 'vscode-languageserver';
import { errorCode, errorMessage, type Binding, type Cancel, type Core, type EpochList, type FileCosts, type Listing, type Top } from './core';
import type { HotProceduresParams } from './protocol';
import { Cancelled, SharedAnswers } from './shared';

/** A file's costs, and its text as it was when they were asked for (null: it cannot be read). */
export interface FileAnswer {
  costs: FileCosts;
  text: string | null;
}

const filesKept = 64;
/** How often a database that cannot be opened is tried again. */
const retryInterval_ms = 2000;

export class Profile {
  private core: Core | undefined;
  private database = '';
  private epochs: string[] = ['latest'];
  private retry: NodeJS.Timeout | undefined;
  private readonly files: SharedAnswers<FileAnswer>;
  private readonly tops: SharedAnswers<Top>;

  /** `onChange`: what is shown may have changed; `onNote`: something a user may want to know, once. */
  constructor(
    private readonly binding: Binding,
    private readonly onChange: () => void,
    private readonly onNote: (note: string) => void,
  ) {
    const newCancel = (): Cancel => new binding.Cancel();
    this.files = new SharedAnswers(filesKept, newCancel);
    this.tops = new SharedAnswers(8, newCancel);
  }

  /** Selectors of the epochs shown. */
  get selected(): readonly string[] {
    return this.epochs;
  }

  get folder(): string {
    return this.database;
  }

  use(database: string, epochs: readonly string[]): void {
    const moved = database !== this.database;
    this.database = database;
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

  close(): void {
    clearTimeout(this.retry);
    this.core?.unwatch();
    this.core = undefined;
  }

  epochList(token?: CancellationToken): Promise<EpochList> {
    return this.orEmpty(token, { epochs: [], warnings: [] }, 'warnings', (core, cancel) => core.epochs(cancel));
  }

  top(request: HotProceduresParams, token?: CancellationToken): Promise<Top> {
    const { by = 'procedure', limit } = request;
    const empty: Top = { epochs: [], total: {}, rows: [], omittedRows: 0, notes: [] };
    const ask = { epochs: [...this.epochs], by, ...(limit === undefined ? {} : { limit }) };
    const key = JSON.stringify(ask);
    return this.orEmpty(token, empty, 'notes', (core) => this.tops.get(key, token, (cancel) => core.top(ask, cancel)));
  }

  /** Rejects where there is none: whoever asks for a listing has named it. */
  listing(procedure: string, token?: CancellationToken): Promise<Listing> {
    return this.ask(token, (core, cancel) => core.listing([...this.epochs], procedure, cancel));
  }

  async fileCosts(path: string, token?: CancellationToken): Promise<FileAnswer> {
    const costs: FileCosts = { epochs: [], source: 'unchecked', lines: [], procedures: [], notes: [] };
    const version = await fileVersion(path);
    const key = JSON.stringify([this.epochs, path, version]);
    const epochs = [...this.epochs];
    try {
      const core = this.opened();
      return await this.files.get(key, token, (cancel) => readFileAnswer(core, epochs, path, cancel));
    } catch (error) {
      return { costs: { ...costs, notes: [this.noteOf(error)] }, text: null };
    }
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
      return await question(core, cancel);
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
    const core = this.binding.Dwell.open({ database: this.database });
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
    this.files.clear();
    this.tops.clear();
    this.onChange();
  }
}

/** The costs and the very text they are of: asked again while the file changes under the question. */
async function readFileAnswer(core: Core, epochs: string[], path: string, cancel: Cancel): Promise<FileAnswer> {
  for (let attempt = 0; ; attempt++) {
    const before = await fileVersion(path);
    const costs = await core.fileCosts(epochs, path, cancel);
    const text = await readFile(path, 'utf8').catch(() => null);
    if (attempt === 2 || before === (await fileVersion(path))) return { costs, text };
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
