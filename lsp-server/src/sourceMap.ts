/**
 * Files as the debug information spells them → where they are here: over a whole answer of the core, whose files stand
 * under `file`, and under `source_lines` as keys. Pure.
 */
import { join } from 'node:path';

export type SourceMap = readonly (readonly [string, string])[];

export function filesHere<T>(answer: T, map: SourceMap): T {
  return map.length === 0 ? answer : (mapped(answer, map) as T);
}

export function fileHere(file: string, map: SourceMap): string {
  for (const [from, to] of map) {
    if (from === '.' && !file.startsWith('/')) return join(to, file);
    const folder = from.endsWith('/') ? from : `${from}/`;
    if (file.startsWith(folder)) return join(to, file.slice(folder.length));
  }
  return file;
}

function mapped(value: unknown, map: SourceMap): unknown {
  if (Array.isArray(value)) return value.map((item) => mapped(item, map));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, member(key, inner, map)]));
}

function member(key: string, value: unknown, map: SourceMap): unknown {
  if (key === 'file' && typeof value === 'string') return fileHere(value, map);
  if (key === 'source_lines' && typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([file, lines]) => [fileHere(file, map), lines]));
  }
  return mapped(value, map);
}
