/**
 * Settings as clients send them, read once into complete and valid ones; what is not understood keeps its default.
 */
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { HintLevel } from './protocol';

export interface ValidSettings {
  database: string;
  epochs: string[];
  hints: HintLevel;
  hotShare: number;
  /** Null: look beside the server, then in PATH. */
  dwellPath: string | null;
  /** Whether severe stalls are published as diagnostics. */
  diagnostics: boolean;
  /** From a folder as built to where it is here; longest first. */
  sourceMap: [string, string][];
  /** Folders with separate debug files. */
  debugDirs: string[];
}

export function readSettings(sent: unknown, env: NodeJS.ProcessEnv = process.env): ValidSettings {
  const given = isRecord(sent) ? sent : {};
  const { database, epochs, hints, hotShare, dwellPath, diagnostics, sourceMap, debugDirs } = given;
  return {
    database: isText(database) ? expandHome(database) : defaultDatabase(env),
    epochs: isTextList(epochs) && epochs.length > 0 ? epochs : ['latest'],
    hints: hints === 'off' || hints === 'hot' || hints === 'all' ? hints : 'hot',
    hotShare: typeof hotShare === 'number' && hotShare >= 0 && hotShare <= 1 ? hotShare : 0.01,
    dwellPath: isText(dwellPath) ? expandHome(dwellPath) : null,
    diagnostics: diagnostics === true,
    sourceMap: readSourceMap(sourceMap),
    debugDirs: isTextList(debugDirs) ? debugDirs.filter((folder) => folder !== '').map(expandHome) : [],
  };
}

function readSourceMap(sent: unknown): [string, string][] {
  const pairs = Object.entries(isRecord(sent) ? sent : {});
  const valid = pairs.flatMap(([from, to]): [string, string][] => (from !== '' && isText(to) ? [[from, expandHome(to)]] : []));
  return valid.sort(([a], [b]) => b.length - a.length);
}

function defaultDatabase(env: NodeJS.ProcessEnv): string {
  if (isText(env.DWELL_DB)) return env.DWELL_DB;
  const data = isText(env.XDG_DATA_HOME) ? env.XDG_DATA_HOME : join(homedir(), '.local', 'share');
  return join(data, 'dwell');
}

function expandHome(path: string): string {
  return path === '~' || path.startsWith('~/') ? join(homedir(), path.slice(1)) : path;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

export function isTextList(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}
