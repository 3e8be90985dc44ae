/** PROTOCOL.md is what the code says. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import ts from 'typescript';
import { commands, methods, showListingCommand } from '../src/protocol';

const folder = join(__dirname, '..');

/** Interfaces by name, each member as `name: type` without spaces or comments. */
function interfaces(source: string): Map<string, string[]> {
  const file = ts.createSourceFile('protocol.ts', source, ts.ScriptTarget.ES2022, true);
  const found = new Map<string, string[]>();
  file.forEachChild((node) => {
    if (!ts.isInterfaceDeclaration(node)) return;
    found.set(node.name.text, node.members.map((member) => member.getText(file).replace(/[\s;]+/g, '')));
  });
  return found;
}

async function read(name: string): Promise<string> {
  return readFile(join(folder, name), 'utf8');
}

test('the types in PROTOCOL.md are those of protocol.ts', async () => {
  const page = await read('PROTOCOL.md');
  const [block] = /(?<=```ts\n)[^]*?(?=```)/.exec(page) ?? [''];
  const documented = interfaces(block);
  const coded = interfaces(await read('src/protocol.ts'));
  assert.ok(documented.size > 10);
  for (const [name, members] of documented) assert.deepEqual(members, coded.get(name), name);
  // Settings, announcements and arguments of commands stand in tables and sentences; all else must be a documented type.
  const elsewhere = ['Settings', 'ClientDwellCapabilities', 'ProfileDidChangeParams', 'FileCostsParams', 'LineParams', 'FileChangesParams', 'CfgParams', 'RecordParams', 'RecordResult', 'NewEpochParams', 'RenameEpochParams', 'ImportPerfParams', 'CompareParams'];
  assert.deepEqual([...coded.keys()].filter((name) => !documented.has(name)).sort(), elsewhere.sort());
});

test('every request, notification, command and setting has its row', async () => {
  const page = await read('PROTOCOL.md');
  const rows = new Set([...page.matchAll(/^\| `([^`]+)` \|/gm)].map(([, name]) => name));
  const settings = interfaces(await read('src/protocol.ts')).get('Settings') ?? [];
  const expected = [...Object.values(methods), ...Object.values(commands), ...settings.map((member) => member.split('?')[0] ?? '')];
  assert.deepEqual([...rows].sort(), expected.sort());
  assert.ok(page.includes(showListingCommand));
});
