// Holds index.d.ts to the sources; `--write` makes it anew. The macros of napi-derive describe classes and requests while they
// expand, so linting is enough for them; an example of dwell-query prints the types of the answers. Both take the packages
// together that `npm test` lints and tests, so that what is built already serves here too.
import { generateTypeDef } from '@napi-rs/cli';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import ts from 'typescript';
import { checking } from '../../scripts/cargo.mjs';

const here = import.meta.dirname;
const workspace = join(here, '../..');
const kept = join(here, 'index.d.ts');

/** Classes and requests, from core/node. */
async function bindingTypes() {
  const typeDefDir = mkdtempSync(join(tmpdir(), 'dwell-types-'));
  try {
    // A new folder each time: napi-build tells cargo to expand again when it changes.
    const { command: [cargo, ...words], env } = checking('clippy', '-q', '--workspace', '--all-targets', '--', '-D', 'warnings');
    execFileSync(cargo, words, { cwd: workspace, stdio: 'inherit', env: { ...process.env, ...env, NAPI_TYPE_DEF_TMP_FOLDER: typeDefDir } });
    // One line for each; the build of the library's own tests adds the same ones.
    const file = join(typeDefDir, 'dwell-node');
    const lines = readFileSync(file, 'utf8').split('\n');
    writeFileSync(file, lines.filter((line, at) => line === '' || lines.indexOf(line) === at).join('\n'));
    return (await generateTypeDef({ typeDefDir, cwd: here, noDtsHeader: true })).dts;
  } finally {
    rmSync(typeDefDir, { recursive: true });
  }
}

/** Answers, from core/query. Optimizing a program that runs once would take five times as long. */
function answerTypes() {
  const plainly = ['--config', 'profile.release.package.dwell-analysis.opt-level=0'];
  const { command: [cargo, ...words], env } = checking('run', '-q', ...plainly, '--features', 'dwell-query/typescript', '--example', 'typescript');
  const types = execFileSync(cargo, words, { cwd: workspace, stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8', env: { ...process.env, ...env } });
  return types
    .replace(/\?: (.*) \| null, /g, '?: $1, ') // What may be left out is never null as well.
    .replace(/\/\*\*\n \* (.*)\n \*\//g, '/** $1 */') // A sentence takes a line,
    .replaceAll('`None`', '`null`')
    .replace(/\[(`[\w:]+`)\](?:\([\w:]+\))?/g, '$1'); // and links to items mean something to rustdoc only.
}

const types = ts.createSourceFile(kept, (await bindingTypes()) + answerTypes(), ts.ScriptTarget.Latest);
const made = `// Made by \`npm run types -w @dwell/core\` from core/node/src and core/query/src/answer.\n\n${ts.createPrinter().printFile(types)}`;
if (process.argv.includes('--write')) writeFileSync(kept, made);
else if (readFileSync(kept, 'utf8') !== made) {
  console.error('core/node/index.d.ts: not what the sources say: run `npm run types -w @dwell/core`');
  process.exitCode = 1;
}
