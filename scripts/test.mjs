// `npm test`: sets up what the suites need, runs all of them, continues after a failure, and ends with one line of totals.
// `npm test -- NAME…` runs only the steps whose name contains one of the words.

import { build, main } from './build.mjs';
import { checking } from './cargo.mjs';
import { closingLine, count, failures } from './counts.mjs';
import { forBuilding, forTesting } from './needs.mjs';
import { join } from 'node:path';
import { indented, run, seconds, Stop, tail, target } from './step.mjs';

const npm = (script, workspace) => ['npm', 'run', '-s', script, '-w', workspace];

/** `kinds`: runners whose closing lines are summed. Without any, the step itself counts as one test. */
const steps = [
  { name: 'rustfmt', command: ['cargo', 'fmt', '--all', '--check'] },
  { name: 'clippy', ...checking('clippy', '--workspace', '--all-targets', '--', '-D', 'warnings') },
  // --show-output: a test that cannot run here reports this in its output, which cargo hides if the test passes.
  { name: 'cargo test', ...checking('test', '--workspace', '--no-fail-fast', '--', '--show-output'), kinds: ['cargo'] },
  { name: 'tidy', ...checking('run', '-q', '-p', 'dwell-xtask', '--', 'tidy') },
  { name: 'scripts', command: ['node', '--test', 'scripts/build.test.mjs', 'scripts/counts.test.mjs', 'scripts/export.test.mjs', 'scripts/report.test.mjs', 'scripts/accuracy/callgrind.test.mjs', 'scripts/accuracy/inorder.test.mjs', 'scripts/accuracy/absolute.test.mjs'], kinds: ['node'] },
  { name: 'field cases', command: ['node', '--test', 'scripts/field-cases.test.mjs'], kinds: ['node'] },
  { name: 'fleet', command: ['node', '--test', 'scripts/fleet.test.mjs', 'scripts/receivers.test.mjs'], kinds: ['node'] },
  { name: 'sample table', command: ['make', '-s', '-C', 'kmod', 'check', `BUILD=${join(target, 'kmod')}`], kinds: ['tap'] },
  { name: 'kernel module', command: ['node', 'scripts/vm/module.mjs'], kinds: ['tap'] },
  { name: 'binding lint', command: npm('check', '@dwell/core') },
  { name: 'server lint', command: npm('check', '@dwell/lsp-server') },
  { name: 'extension lint', command: npm('check', 'vscode-extension') },
  { name: 'binding', command: npm('test', '@dwell/core'), kinds: ['node'] },
  { name: 'server, Neovim, Helix', command: npm('test', '@dwell/lsp-server'), kinds: ['node', 'line'] },
  { name: 'VS Code', command: npm('test', 'vscode-extension'), kinds: ['node'] },
  { name: 'Emacs 28', command: ['make', '-s', '-C', 'emacs', 'check'], kinds: ['ert'] },
  { name: 'Emacs 30', command: ['make', '-s', '-C', 'emacs', 'check-30'], kinds: ['ert'] },
];

async function runStep({ name, command, env = {}, kinds = [] }) {
  const done = await run(name, command, { env: { CARGO_TERM_COLOR: 'never', NO_COLOR: '1', ...env } });
  const counts = count({ kinds, output: done.output, status: done.status });
  if (counts.failed > 0) {
    console.log(tail(done));
    const said = failures(done.output);
    if (said.length > 0) console.log(indented(['what failed:', ...said]));
  }
  if (kinds.length > 0) console.log(`    ${closingLine([counts])}`);
  for (const skip of counts.skips) console.log(`    SKIPPED ${skip}`);
  return counts;
}

/** Builds everything as a separate step: its failure is one failed test, and tests that do not need it still run. */
async function buildStep() {
  try {
    await build();
    return { passed: 1, failed: 0, skipped: 0, skips: [] };
  } catch (error) {
    if (!(error instanceof Stop)) throw error;
    console.log(`    ${error.message}`);
    return { passed: 0, failed: 1, skipped: 0, skips: [] };
  }
}

await main(async () => {
  const start = performance.now();
  const words = process.argv.slice(2);
  const wanted = (name) => words.length === 0 || words.some((word) => name.toLowerCase().includes(word.toLowerCase()));
  await forBuilding();
  await forTesting();
  const all = wanted('build') ? [await buildStep()] : [];
  for (const step of steps.filter(({ name }) => wanted(name))) all.push(await runStep(step));
  console.log(`in ${seconds(start)}`);
  console.log(closingLine(all));
  if (all.some(({ failed }) => failed > 0)) process.exitCode = 1;
});
