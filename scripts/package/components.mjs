// What is inside of a package besides our own code: crates that are linked, npm packages that are bundled. Each with its version, its
// licence, and the texts that its licence wants to be kept.

import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Stop, top } from '../step.mjs';

/**
 * @typedef {{ kind: 'cargo' | 'npm', name: string, version: string, license: string, source: string, texts: string[] }} Component
 * `license`: an SPDX expression; `source`: where its code is kept; `texts`: its licence files
 */

/** Files that a licence may be in. LICENSE-APACHE and the like have an ending. */
const licenseFile = /^(licen[cs]e|copying|notice|unlicense|copyright)/i;

/** Returns the licence files in a package's folder, and in the folders below, where crates keep the C libraries that they compile. */
function textsIn(folder) {
  const entries = (where) => readdirSync(where, { withFileTypes: true });
  const folders = [folder, ...entries(folder).filter((entry) => entry.isDirectory()).map(({ name }) => join(folder, name))];
  const files = folders.flatMap((where) => entries(where).filter((entry) => entry.isFile() && licenseFile.test(entry.name)).map(({ name }) => join(where, name)));
  return [...new Set(files.map((file) => readFileSync(file, 'utf8').trim()))];
}

/** Returns the crates that are linked into these packages of ours on this machine. */
export function crates(packages) {
  const asked = spawnSync('cargo', ['metadata', '--format-version', '1', '--locked', '--filter-platform', `${rustArchitecture()}-unknown-linux-gnu`], { cwd: top, encoding: 'utf8', maxBuffer: 2 ** 28 });
  if (asked.status !== 0) throw new Stop(`cargo metadata: ${asked.stderr.trim()}`);
  const { packages: all, resolve } = JSON.parse(asked.stdout);
  const byId = new Map(all.map((each) => [each.id, each]));
  const nodes = new Map(resolve.nodes.map((node) => [node.id, node]));
  const isMacro = (id) => byId.get(id).targets.some(({ kind }) => kind.includes('proc-macro'));
  // What is needed to build or to test is not inside.
  const linked = (node) => node.deps.filter(({ dep_kinds: kinds, pkg }) => kinds.some(({ kind }) => kind === null) && !isMacro(pkg)).map(({ pkg }) => pkg);
  const found = new Set();
  const visit = (id) => {
    if (found.has(id)) return;
    found.add(id);
    linked(nodes.get(id)).forEach(visit);
  };
  all.filter(({ name }) => packages.includes(name)).forEach(({ id }) => visit(id));
  const foreign = [...found].map((id) => byId.get(id)).filter(({ source }) => source !== null);
  return sorted(foreign.map(({ name, version, license, repository, manifest_path: manifest }) => ({
    kind: 'cargo', name, version, license: license ?? 'NOASSERTION', source: repository ?? '', texts: textsIn(dirname(manifest)),
  })));
}

/** Returns the npm packages of which files are in the bundles of the server and the extension. */
export async function bundled() {
  const entries = ['lsp-server/src/main.ts', 'lsp-server/src/mcp/server.ts', 'vscode-extension/src/extension.ts', ...['hotList', 'flame', 'sql'].map((page) => `vscode-extension/src/${page}/script.ts`)];
  const { metafile } = await build({
    absWorkingDir: top, entryPoints: entries, bundle: true, platform: 'node', format: 'cjs', external: ['vscode', './dwell-core.node', './mcp.js'], loader: { '.css': 'text' },
    outdir: 'nowhere', write: false, metafile: true, logLevel: 'silent',
  });
  const folders = new Set(Object.keys(metafile.inputs).flatMap((file) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []));
  return sorted([...folders].map((folder) => {
    const { name, version, license, repository } = JSON.parse(readFileSync(join(top, folder, 'package.json'), 'utf8'));
    const source = typeof repository === 'string' ? repository : repository?.url ?? '';
    return { kind: 'npm', name, version, license: license ?? 'NOASSERTION', source, texts: textsIn(join(top, folder)) };
  }));
}

const sorted = (components) => components.toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.version < b.version ? -1 : 1));

export const rustArchitecture = () => ({ x64: 'x86_64', arm64: 'aarch64' })[process.arch];

/** Returns our own licences in one text. */
export const ownLicense = () =>
  ['Dwell is licensed under either of the two licences below, at your choice. The kernel module (kmod/) is under GPL-2.0.',
    ...['LICENSE-MIT', 'LICENSE-APACHE'].map((file) => readFileSync(join(top, file), 'utf8').trim())].join(`\n\n${'-'.repeat(78)}\n\n`) + '\n';

/** Returns the notices that the licences of components ask for: a list, then each text once. */
export function notices(components) {
  const users = new Map();
  for (const { name, version, texts } of components) {
    for (const text of texts) users.set(text, [...users.get(text) ?? [], `${name} ${version}`]);
  }
  const list = components.map(({ name, version, license, source }) => `${name} ${version}: ${license}${source ? `, ${source}` : ''}`);
  const texts = [...users].map(([text, names]) => `${'-'.repeat(78)}\n${names.join(', ')}\n\n${text}`);
  return `Dwell contains the following packages. The texts of their licences follow.\n\n${list.join('\n')}\n\n${texts.join('\n\n')}\n`;
}

/** Returns a bill of materials in CycloneDX 1.5. `time` is in seconds since 1970. */
export function billOfMaterials(components, version, time) {
  const component = ({ kind, name, version: of, license }) => ({
    type: 'library', 'bom-ref': `pkg:${kind}/${name}@${of}`, name, version: of, purl: `pkg:${kind}/${name.replace('@', '%40')}@${of}`,
    ...(license === 'NOASSERTION' ? {} : { licenses: [{ expression: license.replaceAll('/', ' OR ') }] }),
  });
  return {
    bomFormat: 'CycloneDX', specVersion: '1.5', version: 1,
    metadata: { timestamp: new Date(time * 1000).toISOString(), component: { type: 'application', 'bom-ref': 'dwell', name: 'dwell', version } },
    components: components.map(component),
    dependencies: [{ ref: 'dwell', dependsOn: components.map((each) => component(each)['bom-ref']) }],
  };
}
