/**
 * A file's costs laid over what the editor shows of it: what hints, lenses, hovers and `dwell/fileCosts` have in common.
 */
import { LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import type { FileCosts } from './core';
import type { TrackedDocument } from './documents';
import { pathOf, uriOf } from './fileUri';
import type { FileAnswer, Profile } from './profile';

/** Where documents are found by their URI. */
export interface Documents {
  get(uri: string): TrackedDocument | undefined;
}

export interface FileView {
  uri: string;
  path: string;
  costs: FileCosts;
  /** What `costs` came with. */
  answer: FileAnswer;
  /** Undefined: the file is not open. */
  document: TrackedDocument | undefined;
  /** From a line of the file as answered (from 1) to the line the editor shows (from 0); null: none. */
  place(line: number): number | null;
  /** The same of a line that was edited in place; null: it was not. */
  editedPlace(line: number): number | null;
}

/** The view, or undefined where the document is no file. */
export async function viewFile(profile: Profile, documents: Documents, uri: string, token: CancellationToken): Promise<FileView | undefined> {
  const path = pathOf(uri);
  if (path === undefined) return undefined;
  const asked = documents.get(uri);
  const version = asked?.version;
  const answer = await profile.fileCosts(path, token);
  const { costs, text } = answer;
  const document = documents.get(uri);
  // Whoever asked about an older text asks again; nothing is said about it.
  if (asked !== undefined && document?.version !== version) throw new ResponseError(LSPErrorCodes.ContentModified, 'the text has changed');
  const places = document === undefined || text === null ? undefined : document.placesOf(text);
  const place = (line: number): number | null => {
    if (document === undefined) return line - 1;
    return places?.same.get(line - 1) ?? null;
  };
  const editedPlace = (line: number): number | null => places?.edited.get(line - 1) ?? null;
  return { uri, path, costs, answer, document, place, editedPlace };
}

/** Where a line of any file stands, as a link can name it; of the viewed file: where the editor shows it. */
export function locate(view: FileView, file: string | null, line: number | null): { uri: string; line: number } | null {
  if (file === null || line === null) return null;
  if (file !== view.path) return locationOf(file, line);
  const place = view.place(line);
  return place === null ? null : { uri: view.uri, line: place };
}

/** A source file's line (from 1) as a location; null for a path that does not say where it is. */
export function locationOf(file: string | null, line: number | null): { uri: string; line: number } | null {
  if (file?.startsWith('/') !== true || line === null) return null;
  return { uri: uriOf(file), line: Math.max(0, line - 1) };
}
