// Holds index.d.ts to the binding's sources; `--write` makes it anew. The macros of napi-derive describe the types
// while they expand, so a `cargo check` is enough.
import { generateTypeDef } from '@napi-rs/cli';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const here = import.meta.dirname;
const kept = join(here, 'index.d.ts');
const typeDefDir = mkdtempSync(join(tmpdir(), 'dwell-types-'));
try {
  // A new folder each time: napi-build tells cargo to expand again when it changes.
  execFileSync('cargo', ['check', '-q', '-p', 'dwell-node'], { cwd: here, stdio: 'inherit', env: { ...process.env, NAPI_TYPE_DEF_TMP_FOLDER: typeDefDir } });
  const header = '// Made by `npm run types -w @dwell/core` from core/node/src.\n\n';
  const { dts } = await generateTypeDef({ typeDefDir, cwd: here, noDtsHeader: true });
  // A doc comment that went through a macro of ours comes as a raw string, whose `r"` napi-derive leaves in the text.
  const made = header + dts.trim().replace(/^( *(?:\/\*\*|\*) )r"+ ?/gm, '$1') + '\n';
  if (process.argv.includes('--write')) writeFileSync(kept, made);
  else if (readFileSync(kept, 'utf8') !== made) {
    console.error('core/node/index.d.ts: not what the sources say: run `npm run types -w @dwell/core`');
    process.exitCode = 1;
  }
} finally {
  rmSync(typeDefDir, { recursive: true });
}
