/**
 * Parameters of Dwell's own requests, read once into valid ones: what is wrong is said by name.
 */
import {
  methods, type CfgParams, type DiffParams, type FileCostsParams, type HotProceduresParams, type LineParams, type ListingParams, type StatsParams,
  type SummaryParams,
} from './protocol';
import { invalid } from './record';
import { isRecord, isText, isTextList } from './settings';

export function hotProceduresParams(params: unknown): HotProceduresParams {
  const { by, split, bare, offset } = isRecord(params) ? params : {};
  if (by !== undefined && by !== 'procedure' && by !== 'image' && by !== 'line' && by !== 'app') {
    throw invalid(`${methods.hotProcedures}: 'by' must be procedure, image, line or app`);
  }
  return { ...(by === undefined ? {} : { by }), ...(split === true ? { split } : {}), ...(bare === true ? { bare } : {}), ...rowsOf(methods.hotProcedures, 'offset', offset), ...limitOf(methods.hotProcedures, params) };
}

export function listingParams(params: unknown): ListingParams {
  return { procedure: procedureOf(methods.listing, params) };
}

export function cfgParams(params: unknown): CfgParams {
  return { procedure: procedureOf(methods.cfg, params) };
}

export function fileCostsParams(params: unknown, method: string = methods.fileCosts): FileCostsParams {
  const textDocument = isRecord(params) ? params.textDocument : undefined;
  const uri = isRecord(textDocument) ? textDocument.uri : undefined;
  if (!isText(uri)) throw invalid(`${method}: 'textDocument.uri' must name a document`);
  return { textDocument: { uri } };
}

export function lineParams(params: unknown): LineParams {
  const line = isRecord(params) ? params.line : undefined;
  if (typeof line !== 'number' || !Number.isSafeInteger(line) || line < 0) throw invalid(`${methods.line}: 'line' must be a line, from 0`);
  return { ...fileCostsParams(params, methods.line), line };
}

export function summaryParams(params: unknown): SummaryParams {
  const { epochs } = isRecord(params) ? params : {};
  return { ...texts(params, 'procedure', 'image'), ...(isTextList(epochs) && epochs.length > 0 ? { epochs } : {}) };
}

export function diffParams(params: unknown): DiffParams {
  const { before, after, all } = isRecord(params) ? params : {};
  for (const [name, side] of Object.entries({ before, after })) {
    if (side !== undefined && !(isTextList(side) && side.length > 0)) throw invalid(`${methods.diff}: '${name}' must be a list of epochs`);
  }
  return {
    ...(isTextList(before) ? { before } : {}),
    ...(isTextList(after) ? { after } : {}),
    ...(all === true ? { all } : {}),
    ...texts(params, 'procedure', 'normalize'),
    ...limitOf(methods.diff, params),
  };
}

export function statsParams(params: unknown): StatsParams {
  const { epochs, against, shareMin } = isRecord(params) ? params : {};
  if (!isTextList(epochs) || epochs.length === 0) throw invalid(`${methods.stats}: 'epochs' must be a list of epochs`);
  return {
    epochs,
    ...(isTextList(against) ? { against } : {}),
    ...(typeof shareMin === 'number' ? { shareMin } : {}),
    ...texts(params, 'normalize', 'image'),
    ...limitOf(methods.stats, params),
  };
}

function procedureOf(method: string, params: unknown): string {
  const procedure = isRecord(params) ? params.procedure : undefined;
  if (!isText(procedure)) throw invalid(`${method}: 'procedure' must name one`);
  return procedure;
}

/** Those of the keys that are texts. */
function texts<K extends string>(params: unknown, ...keys: K[]): Partial<Record<K, string>> {
  const given = isRecord(params) ? params : {};
  const found: Partial<Record<K, string>> = {};
  for (const key of keys) {
    const value = given[key];
    if (isText(value)) found[key] = value;
  }
  return found;
}

function limitOf(method: string, params: unknown): { limit?: number } {
  return rowsOf(method, 'limit', isRecord(params) ? params.limit : undefined);
}

function rowsOf<K extends string>(method: string, name: K, value: unknown): Partial<Record<K, number>> {
  const rows: Partial<Record<K, number>> = {};
  if (value === undefined) return rows;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) throw invalid(`${method}: '${name}' must be a number of rows`);
  rows[name] = value;
  return rows;
}
