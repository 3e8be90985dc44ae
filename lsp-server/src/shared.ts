/**
 * Shares one computation between requests for the same answer, and cancels it when the last of them is cancelled.
 */
import type { CancellationToken } from 'vscode-languageserver';
import type { Cancel } from './core';

/** Thrown to a request that was cancelled, even if the computation goes on for others. */
export class Cancelled extends Error {
  override readonly name = 'Cancelled';
  constructor() {
    super('cancelled');
  }
}

interface Entry<T> {
  answer: Promise<T>;
  cancel: Cancel;
  waiters: number;
  settled: boolean;
}

/** A cache of answers by key that keeps the `capacity` most recently used. */
export class SharedAnswers<T> {
  private readonly entries = new Map<string, Entry<T>>();

  constructor(
    private readonly capacity: number,
    private readonly newCancel: () => Cancel,
  ) {}

  /** The answer under `key`, computed by `ask` unless it is there or on its way; a `token` cancelled already asks nothing. */
  get(key: string, token: CancellationToken | undefined, ask: (cancel: Cancel) => Promise<T>): Promise<T> {
    // A request that is already cancelled starts nothing: no one would be left to cancel the computation.
    if (token?.isCancellationRequested === true) return Promise.reject(new Cancelled());
    const entry = this.entries.get(key) ?? this.start(key, ask);
    // The most recently asked stays longest.
    this.entries.delete(key);
    this.entries.set(key, entry);
    return token === undefined || entry.settled ? this.attend(entry) : this.waitUntil(key, entry, token);
  }

  clear(): void {
    this.entries.clear();
  }

  private start(key: string, ask: (cancel: Cancel) => Promise<T>): Entry<T> {
    const cancel = this.newCancel();
    const entry: Entry<T> = { answer: ask(cancel), cancel, waiters: 0, settled: false };
    entry.answer.then(
      () => {
        entry.settled = true;
      },
      // A failure reaches all who wait now; the next request computes again.
      () => {
        this.forget(key, entry);
      },
    );
    this.entries.set(key, entry);
    for (const oldest of this.entries.keys()) {
      if (this.entries.size <= this.capacity) break;
      this.entries.delete(oldest);
    }
    return entry;
  }

  private attend(entry: Entry<T>): Promise<T> {
    entry.waiters++;
    return entry.answer;
  }

  private waitUntil(key: string, entry: Entry<T>, token: CancellationToken): Promise<T> {
    entry.waiters++;
    return new Promise<T>((resolve, reject) => {
      const subscription = token.onCancellationRequested(() => {
        subscription.dispose();
        reject(new Cancelled());
        if (--entry.waiters === 0 && !entry.settled) {
          entry.cancel.cancel();
          this.forget(key, entry);
        }
      });
      entry.answer.then(resolve, reject).finally(() => {
        subscription.dispose();
      });
    });
  }

  private forget(key: string, entry: Entry<T>): void {
    if (this.entries.get(key) === entry) this.entries.delete(key);
  }
}
