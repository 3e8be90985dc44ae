// What every feature is given.
import type * as vscode from 'vscode';
import type { Client } from './client';
import type { Failures } from './failures';
import type { Profile } from './profile';

export interface Dwell {
  readonly client: Client;
  readonly profile: Profile;
  readonly failures: Failures;
  readonly log: vscode.LogOutputChannel;
  /** Remembered for this workspace. */
  readonly memory: vscode.Memento;
}
