// `npm start [-- CMD…]`: builds everything, samples the machine while a workload (or CMD) runs, prints where its cycles were
// spent, and explains how to see the same in an editor.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename, relative } from 'node:path';
import { build, dwell, main, vsix } from './build.mjs';
import { forBuilding } from './needs.mjs';
import { Stop, top } from './step.mjs';

const usual = 'test-fixtures/programs/build/copy';

/** Returns whether the kernel lets us sample processes of other users. */
function mayWatchAll() {
  if (process.getuid() === 0) return true;
  try {
    return Number(readFileSync('/proc/sys/kernel/perf_event_paranoid', 'utf8')) <= 0;
  } catch {
    return false;
  }
}

function show(title, options) {
  console.log(`\n── ${title}: dwell ${options.join(' ')}`);
  const { status } = spawnSync(dwell, options, { cwd: top, stdio: 'inherit' });
  // A recording has the exit status of its command; these statuses are dwell's own failures.
  const isFailure = options[0] === 'record' ? [null, 2, 125, 126, 127].includes(status) : status !== 0;
  if (isFailure) throw new Stop(`dwell ${options[0]} ended with status ${status}`);
}

function ask(options) {
  const { status, stdout } = spawnSync(dwell, [...options, '--json'], { cwd: top, encoding: 'utf8', maxBuffer: 1 << 28 });
  return status === 0 ? JSON.parse(stdout) : null;
}

/**
 * Returns the row of the program that was run, or the first row if none has its name (a shell, an interpreter, a
 * build).
 */
function rowOf(program, rows) {
  const named = rows.filter((row) => row.procedure && !row.procedure.startsWith('0x'));
  return named.find((row) => basename(row.image ?? '') === basename(program)) ?? named[0];
}

function editors(place) {
  const file = place ? `${relative(top, place.file) || place.file}` : 'a source file of it';
  const at = place ? `${file}:${place.line}` : file;
  console.log(`
To see the same in an editor:
  VS Code: code --install-extension ${relative(top, vsix())} && code -g ${at}
  Emacs:   emacs -L emacs -l dwell ${place ? `+${place.line} ${file}` : file}   then M-x dwell-mode, M-x dwell-hot-procedures`);
}

await main(async () => {
  const command = process.argv.length > 2 ? process.argv.slice(2) : [usual];
  await forBuilding();
  await build();
  const all = mayWatchAll();
  if (!all) console.log('no permission to sample the whole machine (kernel.perf_event_paranoid > 0): the command alone is sampled');
  show('sampling', ['record', ...(all ? ['-a'] : []), '--', ...command]);
  show('where the time went', ['top', '--limit', '12']);
  const row = rowOf(command[0], ask(['top', '--limit', '200'])?.rows ?? []);
  if (!row) throw new Stop('no named function was sampled: did the command run long enough?');
  show('the hottest procedure', ['annotate', `${basename(row.image)}:${row.procedure}`]);
  const lines = ['top', '--by', 'line', '--image', row.image];
  show('its source lines', [...lines, '--limit', '12']);
  editors(ask(lines)?.rows.find((line) => line.file?.startsWith('/')));
});
