/**
 * The binding to Dwell's core, as the server uses it: tests put a fake in its place.
 */
import type * as core from '@dwell/core';

export type { EpochList, FileCosts, LineCost, Listing, ListingInstruction, ListingStall, ProcedureCost, Top, TopRequest, TopRow } from '@dwell/core';

/** Stops the calls it is given to: they reject with code `cancelled`. */
export interface Cancel {
  cancel(): void;
}

/** An open database; see `core/node/index.d.ts`. */
export interface Core {
  epochs(cancel: Cancel): Promise<core.EpochList>;
  top(request: core.TopRequest, cancel: Cancel): Promise<core.Top>;
  listing(epochs: string[], procedure: string, cancel: Cancel): Promise<core.Listing>;
  fileCosts(epochs: string[], path: string, cancel: Cancel): Promise<core.FileCosts>;
  watch(callback: () => void): void;
  unwatch(): void;
}

/** What the native module offers. */
export interface Binding {
  Dwell: { open(options: core.OpenOptions): Core };
  Cancel: new () => Cancel;
}

/** The `code` of an error of the core, or an empty text. */
export function errorCode(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : '';
  return typeof code === 'string' ? code : '';
}

export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
