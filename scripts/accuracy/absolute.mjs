// The absolute table: `dwell` records real programs with its defaults, and callgrind's counts of the same work judge them.
//
// Enters: which programs, ways and roles. Leaves: scores, tables. Everything that takes long is kept below
// target/accuracy/absolute: PROGRAM.json contains the truth, PROGRAM/WAY.dwell is a recording. To make a file again, remove
// it, or use `--anew`. Answers are computed again each time, so that a change of the analysis is judged by the same
// recordings.

import { existsSync, mkdirSync, readFileSync, realpathSync, renameSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { dwell } from '../build.mjs';
import { must, seconds, Stop, target } from '../step.mjs';
import { answerOf } from './absolute/answers.mjs';
import { makePassInputs } from './absolute/inputs.mjs';
import { programs } from './absolute/programs.mjs';
import { daemonRecording, recordingOf, ways } from './absolute/record.mjs';
import { score } from './absolute/score.mjs';
import { objectOf, tableOf } from './absolute/table.mjs';
import { executionsAt, truthOf } from './absolute/truth.mjs';

const here = join(dirname(fileURLToPath(import.meta.url)), 'absolute/programs');
const rust = join(dirname(fileURLToPath(import.meta.url)), 'programs/rust');

/** Options for building our own programs, by source: the defaults of their makers. */
const builds = {
  'kernels.c': (out) => ['gcc', '-O2', '-g', '-o', join(out, 'kernels'), join(here, 'kernels.c')],
  rust: (out) => ['bash', '-c', 'cargo build -q --release --locked --manifest-path "$0/Cargo.toml" --target-dir "$1/cargo" --bin deflate --bin regexes && cp "$1"/cargo/release/{deflate,regexes} "$1"', rust, out],
  go: (out) => ['bash', '-c', 'cd "$0" && go build -buildvcs=false -o "$1/indexer" .', join(here, 'go'), out],
};

const onPath = (program) => program.includes('/') ? existsSync(program) : process.env.PATH.split(':').some((folder) => existsSync(join(folder, program)));

/** Paths at which a program finds its inputs, scripts and itself. */
function placesOf(work) {
  return {
    input: (name) => join(work, 'inputs', name),
    script: (name) => join(here, name),
    built: (name) => join(work, 'bin', name),
    joined(name, passes) {
      const path = join(work, 'inputs', `${name}.joined`, String(passes));
      if (existsSync(path)) return path;
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(`${path}.new`, Buffer.concat(Array(passes).fill(readFileSync(join(work, 'inputs', name)))));
      renameSync(`${path}.new`, path);
      return path;
    },
  };
}

/** Returns the programs that this machine has, and reports the others. */
function present(wanted, at) {
  return wanted.filter((program) => {
    const there = program.source === undefined || program.source !== 'go' || onPath('go');
    const [command] = program.command(1, { ...at, joined: at.input });
    if (there && (program.source || onPath(command))) return true;
    console.error(`SKIPPED ${program.name}: not on this machine (Debian package ${program.package ?? 'golang-go'})`);
    return false;
  });
}

/**
 * Records and judges.
 * @param {{ role?: string, programs: string[], way?: string[], quick?: boolean, json?: boolean, anew?: boolean, root: string }} asked
 */
export async function judgeAbsolute({ role = 'judge', programs: names, way, quick, json, anew, root }) {
  const strange = (way ?? []).filter((name) => !(name in ways));
  if (strange.length > 0) throw new Stop(`no such way: ${strange.join(', ')}; there are ${Object.keys(ways).join(', ')}`);
  const chosen = way ?? (quick ? ['own-2'] : Object.keys(ways).filter((name) => !ways[name].isLong));
  const work = join(target, 'accuracy-work/absolute');
  const at = placesOf(work);
  makePassInputs(join(work, 'inputs'));
  const roles = role === 'judge' ? ['judge', 'kernel'] : [role];
  const wanted = programs.filter((program) => (names.length > 0 ? names.includes(program.name) : (role === 'all' || roles.includes(program.role)) && (!quick || program.quick)));
  const usable = present(wanted, at);
  mkdirSync(join(work, 'bin'), { recursive: true });
  for (const source of new Set(usable.flatMap(({ source }) => source ?? []))) await must(`build ${source}`, builds[source](join(work, 'bin')), { quiet: json });
  const folder = join(root, 'absolute');
  const runs = withTruth(usable, { at, folder, json });
  const results = [];
  // A program that fails costs one row, not the table.
  for (const name of chosen.filter((each) => ways[each].how !== 'daemon')) {
    for (const run of runs) results.push(...await recorded(run, name, { dwell, folder, anew, json }));
  }
  for (const name of chosen.filter((each) => ways[each].how === 'daemon')) results.push(...await daemon(runs, name, { dwell, folder, anew }));
  console.log(json ? JSON.stringify(objectOf(results)) : tableOf(results));
}

function withTruth(wanted, { at, folder, json }) {
  return wanted.flatMap((program) => {
    const start = performance.now();
    const file = join(folder, `${program.name}.json`);
    const isNew = !existsSync(file);
    try {
      const truth = truthOf(program, at, file);
      if (isNew && !json) console.log(`✓ truth of ${program.name} (${seconds(start)})`);
      return [{ program, truth, at }];
    } catch (error) {
      if (!(error instanceof Stop)) throw error;
      console.error(`SKIPPED ${program.name}: ${error.message}`);
      return [];
    }
  });
}

async function recorded(run, way, { dwell: binary, folder, anew, json }) {
  const { program, truth, at } = run;
  // Dwell cannot attach to programs of many short processes.
  if (program.processes && ways[way].how === 'attach') return [];
  const start = performance.now();
  try {
    const recording = await recordingOf(program, way, { truth, at, dwell: binary, folder: join(folder, program.name), anew });
    const result = resultOf(run, way, recording, await answerOf(binary, recording.database));
    if (!json) console.log(`✓ ${way} ${program.name} (${seconds(start)})`);
    return [result];
  } catch (error) {
    if (!(error instanceof Stop)) throw error;
    console.error(`SKIPPED ${program.name}, ${way}: ${error.message}`);
    return [];
  }
}

async function daemon(runs, way, { dwell: binary, folder, anew }) {
  // The kernels are one application.
  const recordings = await daemonRecording(runs.filter(({ program }) => !program.processes && program.role !== 'kernel'), way, { dwell: binary, folder, anew });
  const results = [];
  for (const run of runs.filter(({ program }) => program.role !== 'kernel' && recordings.has(program.name))) {
    const recording = recordings.get(run.program.name);
    try {
      const answer = await answerOf(binary, recording.database, { apps: [appOf(run)] });
      results.push(resultOf(run, way, recording, answer));
    } catch (error) {
      if (error.code !== 'nothing-taken') throw error;
      console.error(`SKIPPED ${run.program.name}, ${way}: it did not run, or had no samples`);
    }
  }
  return results;
}

/** Returns the name of the application, which is that of its executable: `ruby3.1` for `ruby`. */
function appOf({ program, at }) {
  const [command, , text] = program.command(1, { ...at, joined: at.input });
  const name = command === 'bash' ? text.split(' ')[0] : command;
  const found = name.includes('/') ? name : process.env.PATH.split(':').map((folder) => join(folder, name)).find(existsSync);
  return basename(found === undefined ? name : realpathSync(found));
}

function resultOf({ program, truth }, way, recording, answer) {
  const truthAt = (image, address) => executionsAt(truth.objects.get(image), address, recording);
  return { way, role: program.role, name: program.name, language: program.language, score: score(answer, truthAt, program) };
}
