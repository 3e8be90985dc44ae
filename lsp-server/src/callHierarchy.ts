/**
 * LSP's call hierarchy from call stacks: items are functions, `detail` is the share of samples, `fromRanges` are the lines of the calls.
 * An item remembers the way from the function where the hierarchy began, so that all shares are parts of that function's samples.
 * A client may know one provider alone for a document, and the language's own server shows calls that took no time. So this is offered
 * only where the setting `callHierarchy` asks for it.
 */
import { SymbolKind, type CallHierarchyIncomingCall, type CallHierarchyItem, type CallHierarchyOutgoingCall, type CancellationToken, type Position, type Range } from 'vscode-languageserver';
import { functionAt, functionsOf, idOf, isIncomplete, shareText, stepOf } from './callers';
import type { Callers, CallersRow } from './core';
import type { FileView } from './fileView';
import { locationOf } from './fileView';
import type { Profile } from './profile';
import { CallHierarchyData, read } from './requests';
import { count, joined, percent } from './text';

/** Lines are whole: a client takes a character beyond the end of a line for the end. */
const lineEnd = 1000;

type Data = CallHierarchyData;

export async function prepare(profile: Profile, view: FileView | undefined, position: Position, token: CancellationToken): Promise<CallHierarchyItem[] | null> {
  const found = functionAt(await functionsOf(profile, view, token), view?.document?.lineText(position.line) ?? '', position);
  if (view === undefined || found === undefined) return null;
  const { total } = await profile.callers(idOf(found), {}, token);
  const line = found.line ?? found.lines?.[0] ?? position.line;
  const last = Math.max(line, found.lines?.[1] ?? line);
  const detail = joined([`in ${percent(found.samples / Math.max(total, 1))} of ${count(total)} samples with a call stack`, found.image]);
  return [{
    name: found.function, kind: SymbolKind.Function, detail, uri: view.uri,
    range: linesFrom(line, last), selectionRange: linesFrom(line, line), data: { function: idOf(found), through: [] } satisfies Data,
  }];
}

export async function incomingCalls(profile: Profile, item: CallHierarchyItem, token: CancellationToken): Promise<CallHierarchyIncomingCall[]> {
  const { answer, data } = await follow(profile, item, false, token);
  return answer.rows.map((row) => {
    // A function all of whose calls are inlined has no first line: it is shown at its call.
    const from = itemOf(answer, row, item, data, true);
    return { from, fromRanges: rangesIn(row, from.uri) };
  });
}

export async function outgoingCalls(profile: Profile, item: CallHierarchyItem, token: CancellationToken): Promise<CallHierarchyOutgoingCall[]> {
  const { answer, data } = await follow(profile, item, true, token);
  return answer.rows.map((row) => ({ to: itemOf(answer, row, item, data, false), fromRanges: rangesIn(row, item.uri) }));
}

interface Followed {
  answer: Callers;
  data: Data;
}

async function follow(profile: Profile, item: CallHierarchyItem, callees: boolean, token: CancellationToken): Promise<Followed> {
  const data = read('callHierarchy', CallHierarchyData, item.data);
  const isTurned = data.callees !== undefined && data.callees !== callees;
  // A client may turn around anywhere: then the hierarchy begins anew at the item.
  const asked: Data = isTurned ? { function: lastOf(data), through: [], callees } : { ...data, callees };
  if (asked.through.some(isIncomplete)) return { answer: { ...(await profile.callers(data.function, {}, token)), rows: [] }, data: asked };
  return { answer: await profile.callers(asked.function, asked, token), data: asked };
}

function lastOf({ function: first, through }: Data): string {
  const last = through.at(-1);
  return last === undefined ? first : idOf(last);
}

/** `beside`: the item that the call leads from or to, whose place stands for one that is not known. */
function itemOf(answer: Callers, row: CallersRow, beside: CallHierarchyItem, data: Data, isCaller: boolean): CallHierarchyItem {
  const [site] = row.sites;
  const begin = locationOf(row.begins?.file ?? null, row.begins?.line ?? null) ?? (isCaller ? locationOf(site?.file ?? null, site?.line ?? null) : null);
  const detail = joined([shareText(answer, row), row.inlined ? 'inlined' : undefined, row.image, begin === null ? 'place unknown' : undefined]);
  const named = { name: row.function, kind: SymbolKind.Function, detail, data: { ...data, through: [...data.through, stepOf(row)] } satisfies Data };
  if (begin === null) return { ...named, uri: beside.uri, range: beside.range, selectionRange: beside.selectionRange };
  const inFile = isCaller ? row.sites.flatMap(({ file, line }) => (locationOf(file, line)?.uri === begin.uri ? [line - 1] : [])) : [];
  return { ...named, uri: begin.uri, range: linesFrom(begin.line, Math.max(begin.line, ...inFile)), selectionRange: linesFrom(begin.line, begin.line) };
}

function rangesIn(row: CallersRow, uri: string): Range[] {
  return row.sites.flatMap(({ file, line }) => {
    const at = locationOf(file, line);
    return at?.uri === uri ? [linesFrom(at.line, at.line)] : [];
  });
}

function linesFrom(first: number, last: number): Range {
  return { start: { line: first, character: 0 }, end: { line: last, character: lineEnd } };
}
