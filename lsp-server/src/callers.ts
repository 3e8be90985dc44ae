/**
 * `dwell/callers`, and what lenses and the call hierarchy have in common with it: who calls a function or what it calls, by the call
 * stacks of its samples. Shares are parts of the samples of the function that was asked about, never of calls: stacks do not count calls.
 */
import { LSPErrorCodes, ResponseError, type CancellationToken } from 'vscode-languageserver';
import { errorCode, type CallersRow, type FileFunction } from './core';
import { pathOf } from './fileUri';
import { locationOf, type FileView } from './fileView';
import type { Profile } from './profile';
import type { CallerRow, CallersParams, CallersResult, CallStep } from './protocol';
import { count, fileName, percent } from './text';

type Position = NonNullable<CallersParams['position']>;
type Place = { uri: string; line: number } | null;
/** A function as the core takes it. */
type Named = Pick<FileFunction, 'function' | 'image'>;

/** Stands for the frames that incomplete stacks lack. */
const incompleteName = '[incomplete]';

/** A function of the file as the editor shows it, lines from 0. */
export interface ShownFunction extends Named {
  /** Where it begins; null: the line was edited, or all its calls are inlined. */
  line: number | null;
  /** The first and last line with samples or calls. */
  lines: [number, number] | null;
  samples: number;
  own: number;
  rows: CallersRow[];
}

/** `BINARY:NAME`, as the core takes it. */
export function idOf({ image, function: name }: Named): string {
  return `${image}:${name}`;
}

/** The file's functions that are in call stacks; none where no stacks were recorded. */
export async function functionsOf(profile: Profile, view: FileView | undefined, token?: CancellationToken): Promise<ShownFunction[]> {
  if (view === undefined) return [];
  const known = await profile.fileFunctions(view.path, view.answer.version, token).catch((error: unknown) => {
    if (errorCode(error) === 'no-stacks') return null;
    throw error;
  });
  const shown = (line: number | null): number | null => (line === null ? null : view.place(line));
  return (known?.functions ?? []).map(({ line, lines, ...rest }) => {
    const [first, last] = [shown(lines?.[0] ?? null), shown(lines?.[1] ?? null)];
    return { ...rest, line: shown(line), lines: first === null || last === null ? null : [first, last] };
  });
}

/** The function at a position: the one that the word there names, otherwise the one around it. */
export function functionAt(functions: readonly ShownFunction[], text: string, { line, character }: Position): ShownFunction | undefined {
  const word = wordAt(text, character);
  const encloses = ({ line: begin, lines }: ShownFunction): boolean => lines !== null && Math.min(begin ?? lines[0], lines[0]) <= line && line <= lines[1];
  const most = (some: ShownFunction[]): ShownFunction | undefined => some.sort((a, b) => b.samples - a.samples)[0];
  const named = functions.filter(({ function: name }) => word !== '' && baseName(name) === word);
  const around = functions.filter((each) => encloses(each) || each.line === line);
  const length = ({ lines }: ShownFunction): number => (lines === null ? 0 : lines[1] - lines[0]);
  return most(named.filter((each) => around.includes(each))) ?? most(named) ?? around.sort((a, b) => length(a) - length(b))[0];
}

function wordAt(text: string, character: number): string {
  const before = /[\p{L}\p{N}_~$]*$/u.exec(text.slice(0, character))?.[0] ?? '';
  const after = /^[\p{L}\p{N}_~$]*/u.exec(text.slice(character))?.[0] ?? '';
  return before + after;
}

/** What editors have under the cursor: `parse` of `ns::Parser<T>::parse(int)`, of `main.(*T).parse` and of `parse.part.0`. */
export function baseName(name: string): string {
  const whole = shortName(name).replace(/(@|\.(cold|part|isra|constprop|llvm)\b).*$/, '');
  return /([\p{L}\p{N}_~$]+)$/u.exec(whole)?.[1] ?? whole;
}

/** `parse` of `ns::Parser<T>::parse(int)`, `f::{{closure}}` of `core::f::{{closure}}`; Go's names whole. */
export function shortName(name: string): string {
  const parts = withoutBrackets(name).split('::');
  return parts.slice(parts.at(-1)?.startsWith('{') === true ? -2 : -1).join('::').trim();
}

/** Leaves out template arguments, and parameters with what follows them. */
function withoutBrackets(name: string): string {
  let depth = 0;
  let kept = '';
  const letters = Array.from(name);
  for (const [at, letter] of letters.entries()) {
    // Go's receivers follow a dot, anonymous namespaces stand at the beginning.
    if (letter === '(' && depth === 0 && letters[at - 1] === '.') kept += letter;
    else if (letter === '(' && depth === 0 && at > 0 && letters[at - 1] !== ':') break;
    else if (letter === '<' || letter === '(') depth++;
    else if ((letter === '>' || letter === ')') && depth > 0) depth--;
    else if (depth === 0) kept += letter;
  }
  return kept;
}

export async function callers(profile: Profile, params: CallersParams, view: FileView | undefined, token: CancellationToken): Promise<CallersResult> {
  const name = params.function ?? (await nameAt(profile, view, params, token));
  const answer = await profile.callers(name, params, token);
  const { begins, rows, incomplete, epochs, notes, samples, own, total } = answer;
  return {
    epochs, id: idOf(answer), function: answer.function, image: answer.image, place: locationOf(begins?.file ?? null, begins?.line ?? null),
    samples, own, total, rows: rows.map((row) => callerRow(answer, row)), incomplete, notes,
  };
}

async function nameAt(profile: Profile, view: FileView | undefined, { position }: CallersParams, token: CancellationToken): Promise<string> {
  if (position === undefined) throw new ResponseError(LSPErrorCodes.RequestFailed, 'name a function, or a document and a position');
  const found = functionAt(await functionsOf(profile, view, token), view?.document?.lineText(position.line) ?? '', position);
  if (found !== undefined) return idOf(found);
  // The core knows why: no stacks were recorded at all, say.
  const word = wordAt(view?.document?.lineText(position.line) ?? '', position.character);
  const where = `${fileName(pathOf(view?.uri ?? '') ?? '')}:${position.line + 1}`;
  if (word === '') throw new ResponseError(LSPErrorCodes.RequestFailed, `${where}: no function with call stacks is here`);
  return word;
}

function callerRow(answer: Named & { samples: number }, row: CallersRow): CallerRow {
  const { function: name, image, inlined, begins, samples, share, sites } = row;
  return {
    function: name, image, inlined, samples, share,
    label: `${name}${inlined ? ' (inlined)' : ''}`, details: shareText(answer, row),
    place: locationOf(begins?.file ?? null, begins?.line ?? null),
    sites: sites.flatMap((site) => {
      const at = locationOf(site.file, site.line);
      return at === null ? [] : [{ ...at, samples: site.samples }];
    }),
    leads: name !== incompleteName,
  };
}

/** `75.0% of copy's samples (30 of 40)`: a part of the samples of the function that was asked about. */
export function shareText(of: { function: string; samples: number }, { share, samples }: Pick<CallersRow, 'share' | 'samples'>): string {
  return `${percent(share)} of ${shortName(of.function)}'s samples (${count(samples)} of ${count(of.samples)})`;
}

/** Where a row's call is, or else where its function begins. */
export function firstSite({ sites: [site], begins }: CallersRow): Place {
  return locationOf(site?.file ?? null, site?.line ?? null) ?? locationOf(begins?.file ?? null, begins?.line ?? null);
}

/** The next step from a row on. */
export function stepOf({ function: name, image, inlined }: Pick<CallersRow, 'function' | 'image' | 'inlined'>): CallStep {
  return { function: name, image, inlined };
}

/** Whether the row stands for frames that are not known. */
export function isIncomplete({ function: name }: Pick<CallersRow, 'function'>): boolean {
  return name === incompleteName;
}
