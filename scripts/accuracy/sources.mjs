// Fetches the sources of the measured programs: Debian's by `apt-get source`, crates by cargo. The machine's own package lists
// are not changed: this module keeps separate lists, which need no root.

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { must, Stop } from '../step.mjs';

const configured = ['/etc/apt/sources.list', '/etc/apt/sources.list.d'];

/**
 * Debian's sources as this machine names them, with `deb-src` instead of `deb`. Security mirrors are left out because
 * they often have no sources.
 */
function sourceEntries() {
  const files = configured.flatMap((path) => (existsSync(path) ? (path.endsWith('.d') ? readdirSync(path).map((name) => join(path, name)) : [path]) : []));
  const of = (ending, separator) => files.filter((file) => file.endsWith(ending)).flatMap((file) => readFileSync(file, 'utf8').split(separator));
  const stanzas = of('.sources', /\n\s*\n/).map((text) => text.replace(/^Types:.*$/gm, 'Types: deb-src'));
  const lines = of('.list', '\n').map((text) => text.replace(/^deb(-src)?(?=\s)/, 'deb-src'));
  const usable = (text) => /^(Types: deb-src|deb-src\s)/m.test(text) && /debian/i.test(text) && !/security/.test(text.replace(/^#.*$/gm, ''));
  return { sources: stanzas.filter(usable).join('\n\n'), list: [...new Set(lines.filter(usable))].join('\n') };
}

async function aptOptions(folder) {
  const options = [`Dir::Etc::SourceList=/dev/null`, `Dir::Etc::SourceParts=${folder}/sources`, `Dir::State::Lists=${folder}/lists`,
    `Dir::Cache=${folder}/cache`, 'APT::Sandbox::User=root'].flatMap((option) => ['-o', option]);
  if (existsSync(join(folder, 'lists'))) return options;
  for (const name of ['sources', 'lists/partial', 'cache/archives/partial']) mkdirSync(join(folder, name), { recursive: true });
  const entries = sourceEntries();
  if (!entries.sources && !entries.list) throw new Stop('the measured programs come as Debian source packages: no Debian sources are configured here');
  for (const [kind, text] of Object.entries(entries)) if (text) writeFileSync(join(folder, `sources/debian.${kind}`), `${text}\n`);
  await must('lists of Debian sources', ['apt-get', ...options, 'update', '-q']);
  return options;
}

/**
 * Returns the unpacked source of a Debian package below `folder`, with Debian's patches.
 * @returns {Promise<{ path: string, source: string }>}
 */
export async function debianSource(name, folder) {
  const home = join(folder, name);
  if (!existsSync(home)) {
    const making = `${home}.making`;
    rmSync(making, { recursive: true, force: true });
    mkdirSync(making, { recursive: true });
    const options = await aptOptions(join(folder, '.apt'));
    await must(`source of ${name}`, ['bash', '-c', 'cd "$0" && apt-get "$@"', making, ...options, 'source', '-q', name]);
    renameSync(making, home);
  }
  const found = readdirSync(home, { withFileTypes: true }).find((entry) => entry.isDirectory());
  const dsc = readdirSync(home).find((file) => file.endsWith('.dsc'));
  return { path: join(home, found.name), source: `Debian ${name} ${dsc.slice(dsc.indexOf('_') + 1, -'.dsc'.length)}` };
}

/** Returns the source of a crate, as cargo stores it for the project at `project`. */
export async function crateSource(name, project) {
  const { output } = await must(`source of ${name}`, ['cargo', 'metadata', '--format-version', '1', '--locked', '--all-features', '-q', '--manifest-path', join(project, 'Cargo.toml')], { quiet: true });
  const { manifest_path, version } = JSON.parse(output.slice(output.indexOf('{'))).packages.find((found) => found.name === name);
  return { path: dirname(manifest_path), source: `crate ${name} ${version}` };
}
