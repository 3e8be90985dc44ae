/** PROTOCOL.md is what the code says. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { commands, goToCallerCommand, methods, showListingCommand } from '../src/protocol';
import { Settings } from '../src/requests';
import { page, withTypes } from './protocolTypes';

test('the types in PROTOCOL.md are those of the schemas', async () => {
  const text = await readFile(page, 'utf8');
  assert.match(text, /interface LineCost \{/);
  assert.equal(withTypes(text), text, 'run `npm run protocol -w @dwell/lsp-server`');
});

test('every request, notification, command and setting has its row', async () => {
  const text = await readFile(page, 'utf8');
  const rows = new Set([...text.matchAll(/^\| `([^`]+)` \|/gm)].map(([, name]) => name));
  const expected = [...Object.values(methods), ...Object.values(commands), ...Object.keys(Settings.shape)];
  assert.deepEqual([...rows].sort(), expected.sort());
  assert.ok(text.includes(showListingCommand));
  assert.ok(text.includes(goToCallerCommand));
});
