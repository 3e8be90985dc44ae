/**
 * Settings as clients send them, read once into complete and valid ones; what is not understood keeps its default.
 */
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { HintLevel } from './protocol';
import { read, Settings } from './requests';

export interface ValidSettings {
  database: string;
  epochs: string[];
  hints: HintLevel;
  hotShare: number;
  /** Null: look beside the server, then in PATH. */
  dwellPath: string | null;
  /** Whether severe stalls are published as diagnostics. */
  diagnostics: boolean;
  /** Whether LSP's call hierarchy is answered from call stacks. */
  callHierarchy: boolean;
  /** From a folder as built to where it is here; longest first. */
  sourceMap: [string, string][];
  /** Folders with separate debug files. */
  debugDirs: string[];
}

export function readSettings(sent: unknown, env: NodeJS.ProcessEnv = process.env): ValidSettings {
  const { database, epochs, hints, hotShare, dwellPath, diagnostics, callHierarchy, sourceMap, debugDirs } = read('settings', Settings, isRecord(sent) ? sent : {});
  const folders = Object.entries(sourceMap ?? {}).filter(([from, to]) => from !== '' && to !== '');
  return {
    database: database === undefined ? defaultDatabase(env) : expandHome(database),
    epochs: epochs ?? ['latest'],
    hints: hints ?? 'hot',
    hotShare: hotShare ?? 0.01,
    dwellPath: dwellPath === undefined ? null : expandHome(dwellPath),
    diagnostics: diagnostics ?? false,
    callHierarchy: callHierarchy ?? false,
    sourceMap: folders.map(([from, to]): [string, string] => [from, expandHome(to)]).sort(([a], [b]) => b.length - a.length),
    debugDirs: (debugDirs ?? []).filter((folder) => folder !== '').map(expandHome),
  };
}

function defaultDatabase(env: NodeJS.ProcessEnv): string {
  // A variable that is set to nothing is not set.
  const set = (name: string): string | undefined => (env[name] === '' ? undefined : env[name]);
  return set('DWELL_DB') ?? join(set('XDG_DATA_HOME') ?? join(homedir(), '.local', 'share'), 'dwell');
}

function expandHome(path: string): string {
  return path === '~' || path.startsWith('~/') ? join(homedir(), path.slice(1)) : path;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
