// Reads the answers of `dwell` for a recording as plain data: procedures, their scale, and samples and estimates of each
// instruction.
//
// Enters: a database. Leaves: an `Answer`. Listings come through the binding: one process knows all scales of a recording then, where `dwell annotate` would compute
// them anew for each procedure. The field `scale` (core/query/src/answer/listing.rs) says what a number claims. If
// `dwell` is too old to report it, executions count as relative ones.

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Stop, top } from '../../step.mjs';

/** Procedures are read until they cover this share of the samples. The remaining ones have few samples each. */
const read_share = 0.95;
const read_max = 150;
/** Name that `top` gives to samples without a symbol. */
const no_symbol = '[no symbol]';

/**
 * @typedef {{ address: number, samples: number, block: number, slots: number, repeats: boolean, executions: number | null, min: number | null, max: number | null, relative: number | null }} Instruction
 * `slots`: places at retirement, 0 if it is fused with the instruction before it; `block`: number of its block
 * @typedef {{ address: number, cpi: number | null, cpi_min: number | null, executions: number | null }} Block
 * @typedef {{ name: string, image: string, kind: 'absolute'|'program'|'procedure', evidence: string[], samples: number, own: number, cpi: number | null, cpi_min: number | null, instructions: Instruction[], blocks: Block[] }} Procedure
 * `own`: samples of the judged application only; cpi and cpi_min: the values that `top` prints
 * @typedef {{ samples: number, period_cycles: number, width: number, knows_scale: boolean, procedures: Procedure[] }} Answer
 * `samples`: time samples of the whole application; `width`: maximum number of instructions that retire in a cycle
 */

const execute = promisify(execFile);

/** Runs dwell and returns its JSON object. */
async function ask(dwell, ...arguments_) {
  try {
    const { stdout } = await execute(dwell, arguments_, { encoding: 'utf8', maxBuffer: 2 ** 30 });
    return JSON.parse(stdout);
  } catch ({ message, stderr }) {
    throw new Stop(`dwell ${arguments_.slice(2).join(' ')}: ${stderr?.trim().split('\n').pop() || message}`);
  }
}

/** Maps a list with as many concurrent calls as there are processors. */
async function mapAtOnce(list, map) {
  const results = [];
  let next = 0;
  const worker = async () => {
    for (let at = next++; at < list.length; at = next++) results[at] = await map(list[at]);
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  return results;
}

/** Returns the rows with the most samples. */
function hottest(rows, samplesOf, all) {
  let read = 0;
  const chosen = [];
  for (const row of rows.toSorted((a, b) => samplesOf(b) - samplesOf(a))) {
    if (samplesOf(row) === 0 || read >= read_share * all || chosen.length >= read_max) break;
    read += samplesOf(row);
    // The kernel and samples without a symbol have no listing. Their samples are counted as ones without a claim.
    if (row.image?.startsWith('/') && row.procedure !== no_symbol) chosen.push(row);
  }
  return chosen;
}

/**
 * Reads everything that is judged in a recording.
 * @param {string} dwell
 * @param {string} database
 * @param {{ apps?: string[] }} options only these applications, where a daemon recorded the whole machine, in several recordings if its rate changed
 * @returns {Promise<Answer>}
 */
export async function answerOf(dwell, database, { apps } = {}) {
  const opened = open(database);
  const epochs = [apps ? 'all' : 'latest'];
  // Computing CPI for all procedures of a machine takes minutes, so for such recordings only blocks are judged.
  const { rows, total } = apps ? await opened.top({ epochs, bare: true }) : await ask(dwell, '--db', database, 'top', '--json', '-n', '0');
  const own = apps ? await ownSamples(opened, apps) : null;
  const event = timeEvent(total);
  const samplesOf = ({ id, samples }) => (own ? (own.get(id) ?? 0) : (samples[event] ?? 0));
  const samples = own ? [...own.values()].reduce((sum, each) => sum + each, 0) : (total[event] ?? 0);
  const chosen = hottest(rows, samplesOf, samples);
  const listings = await mapAtOnce(chosen, ({ id }) => opened.listing(epochs, id));
  const procedures = chosen.map((row, at) => ({ ...procedureOf(listings[at], event), own: samplesOf(row), samples: row.samples[event] ?? 0, cpi: row.cpi ?? null, cpi_min: row.cpi_min ?? row.cpi ?? null }));
  const [first] = listings;
  return { samples, period_cycles: first?.period_cycles ?? 0, width: first ? widthOf(first.machine_model) : 1, knows_scale: first?.scale !== undefined, procedures };
}

const databases = new Map();

/** Opens a database once, since programs of one recording of the machine share what is computed. The binding need not be built where nothing is asked. */
function open(database) {
  if (!databases.has(database)) databases.set(database, createRequire(import.meta.url)('../../../core/node').Dwell.open({ database }));
  return databases.get(database);
}

const timeEvent = (total) => ['cycles', 'cpu-clock', 'task-clock'].find((event) => event in total);

async function ownSamples(opened, apps) {
  const own = new Map();
  for (const app of apps) {
    const { rows, total } = await opened.top({ epochs: ['all'], bare: true, app });
    for (const { id, samples } of rows) own.set(id, (own.get(id) ?? 0) + (samples[timeEvent(total)] ?? 0));
  }
  return own;
}

const widths = new Map();
function widthOf(model) {
  if (!widths.has(model)) widths.set(model, JSON.parse(readFileSync(join(top, 'core/analysis/machines', `${model}.json`), 'utf8')).retire_width);
  return widths.get(model);
}

/** Converts a listing to plain data. @returns {Procedure} */
export function procedureOf(listing, event) {
  const { procedure, image, scale, blocks, instructions } = listing;
  const starts = blocks.map(({ address }) => address);
  const blockAt = (address) => starts.findLastIndex((start) => start <= address);
  const relativeOf = (each) => (each.executions_relative !== undefined ? each.executions_relative : each.executions);
  // Without a known scale the numbers are not a claim, so they are ignored.
  const kind = scale?.kind ?? 'program';
  return {
    name: procedure.demangled ?? procedure.name,
    image: image.path,
    kind,
    evidence: scale?.evidence ?? [],
    instructions: instructions.map((each, index) => ({
      address: each.address,
      samples: each.samples[event] ?? 0,
      block: blockAt(each.address),
      slots: fusesWith(instructions[index - 1]?.text, each.text) ? 0 : 1,
      repeats: /^rep/.test(each.text),
      executions: each.executions,
      min: each.executions_min ?? null,
      max: each.executions_max ?? null,
      relative: relativeOf(each) ?? null,
    })),
    blocks: blocks.map(({ address, cpi, cpi_min, executions }) => ({ address, cpi: cpi ?? null, cpi_min: cpi_min ?? cpi ?? null, executions: executions ?? null })),
  };
}

/**
 * Returns whether this instruction may retire in the place of the previous one: a branch after the instruction that
 * sets its flags, or padding.
 */
function fusesWith(before, text) {
  if (/^(nop|endbr)/.test(text)) return true;
  return /^j(?!mp)/.test(text) && /^(cmp|test|add|sub|and|or|xor|inc|dec)\b/.test(before ?? '');
}
