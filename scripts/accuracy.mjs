// `npm run accuracy [-- OPTION…] [PROGRAM…]`: makes the missing captures, and judges the analysis by all of them.
//
// --set NAME    native, native-default, absolute, inorder-aarch64, inorder-riscv64, random; may be repeated; default: all.
//               `random` has no captures: the tests of core/analysis simulate random programs with known frequencies and
//               stalls. `absolute` records with `dwell` itself and judges its answers (scripts/accuracy/absolute.mjs)
// --way NAME    absolute: own-2, own-10, own-40, count-2, count-10, windows-10, attach-10, daemon-30 (seconds of CPU time); may be repeated; default: all
// --anew        absolute: repeat existing recordings
// --role ROLE   judge (default), tune, kernel, all: the programs in the tables
// --quick       few programs and few samples, in a separate folder: checks that everything works, but gives no figures
// --json        prints one object instead of tables
//
// Captures are kept in target/accuracy/SET/PROGRAM (their contents: core/accuracy/FORMAT.md). To make a capture again, remove
// it. The whole set `native` takes about half an hour on two cores, most of it under callgrind.

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { judgeAbsolute } from './accuracy/absolute.mjs';
import { measureBlocks } from './accuracy/mca.mjs';
import { native_windows, sets } from './accuracy/sets.mjs';
import { main } from './build.mjs';
import { must, Stop, target, top } from './step.mjs';

const evaluator = join(target, 'release/dwell-accuracy');

function options() {
  try {
    const text = { type: 'string' };
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: { set: { ...text, multiple: true }, role: text, quick: { type: 'boolean' }, json: { type: 'boolean' }, way: { ...text, multiple: true }, anew: { type: 'boolean' } },
    });
    return { ...values, names: values.set ?? [...Object.keys(sets), 'absolute', 'random'], programs: positionals };
  } catch (error) {
    throw new Stop(error.message);
  }
}

/** Fails with one line that names everything that the sets need and this machine lacks. */
function checkTools(names) {
  const missing = [...new Set(names.flatMap((name) => sets[name].missing()))];
  if (missing.length > 0) throw new Stop(`missing for ${names.join(', ')}; as root: apt-get install ${missing.join(' ')}`);
}

/** Returns the folders of complete captures. */
const captures = (folder) =>
  existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)).filter((path) => existsSync(join(path, 'meta.json')) && !path.endsWith('.making')) : [];

async function make(set, root, { quick, programs }) {
  const wanted = ({ name, quick: soon }) => (programs.length > 0 ? programs.includes(name) : !quick || soon === true);
  const missing = sets[set].programs().filter(wanted).filter(({ name }) => !existsSync(join(root, set, name, 'meta.json')));
  if (missing.length > 0) await sets[set].make(missing, { root, quick, evaluator });
  for (const folder of captures(join(root, set)).filter((path) => !existsSync(join(path, 'mca.tsv')))) measureBlocks(folder);
}

function judge(root, { set = [], role, json, programs }) {
  const choose = (name, values) => values.flatMap((value) => [`--${name}`, value]);
  const arguments_ = ['judge', root, '--windows', String(native_windows), ...choose('set', set), ...choose('program', programs), ...(role ? ['--role', role] : []), ...(json ? ['--json'] : [])];
  const { status } = spawnSync(evaluator, arguments_, { cwd: top, stdio: 'inherit' });
  if (status !== 0) throw new Stop('the captures could not be judged');
}

/** Runs the tests that judge random programs and check bounds on their errors. */
async function judgeRandom({ json }) {
  const test = ['cargo', 'test', '-p', 'dwell-analysis', '--test', 'analysis', '--', 'truth', '--nocapture', '--test-threads=1'];
  const { output } = await must('random programs', test, { quiet: json });
  // The output of a test follows its name on the same line; the verdict has a line of its own.
  const figures = output.split('\n').map((line) => line.replace(/^test \S+ \.\.\. /, '')).filter((line) => /\d\.\d/.test(line) && !/^test result|Finished|Compiling|Running/.test(line.trim()));
  if (!json) console.log(figures.map((line) => `    ${line}`).join('\n'));
}

await main(async () => {
  const asked = options();
  const strange = asked.names.filter((name) => !['absolute', 'random'].includes(name) && !(name in sets));
  if (strange.length > 0) throw new Stop(`no such set: ${strange.join(', ')}; there are ${Object.keys(sets).join(', ')}, absolute, random`);
  const names = asked.names.filter((name) => name in sets);
  checkTools(names);
  if (asked.names.includes('random')) await judgeRandom(asked);
  const root = join(target, asked.quick ? 'accuracy-quick' : 'accuracy');
  if (asked.names.includes('absolute')) {
    await must('dwell', ['cargo', 'build', '--release', '-p', 'dwell-cli'], { quiet: asked.json });
    await must('binding', ['npm', 'run', '-s', 'build', '-w', '@dwell/core'], { quiet: asked.json });
    await judgeAbsolute({ ...asked, root });
  }
  if (names.length === 0) return;
  await must('dwell and its evaluator', ['cargo', 'build', '--release', '-p', 'dwell-cli', '-p', 'dwell-accuracy'], { quiet: asked.json });
  for (const name of names) await make(name, root, asked);
  judge(root, { ...asked, set: asked.set && names });
});
