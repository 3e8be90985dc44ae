/** Callers for editors: LSP's call hierarchy, `dwell/callers` and lenses, over a core whose answers are data. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { CallHierarchyIncomingCall, CallHierarchyItem, CallHierarchyOutgoingCall, CodeLens, MessageConnection } from 'vscode-languageserver/node';
import { baseName, functionAt, shortName, type ShownFunction } from '../src/callers';
import type { FileFunction } from '../src/core';
import type { CallersLens, CallersResult } from '../src/protocol';
import { open, startInProcess, stop, until, type Started } from './client';
import { callers, CoreError, fakeBinding } from './fake';

const folder = mkdtempSync(join(tmpdir(), 'dwell-callers-'));
after(() => {
  rmSync(folder, { recursive: true });
});
const path = join(folder, 'copy.c');
const text = 'void copy(int *a)\n{\n  for (;;)\n    *a = 1;\n}\n\nint other;\n';
writeFileSync(path, text);

function functions(): FileFunction[] {
  const { rows } = callers('copy', 1);
  const unknown = { ...rows[0], function: '[incomplete]', begins: null, sites: [], samples: 1, share: 0.025 } as FileFunction['rows'][number];
  return [{ function: 'copy', image: 'prog', line: 1, lines: [3, 4], samples: 40, own: 30, rows: [...rows, unknown] }];
}

async function withStacks<T>(use: (client: MessageConnection, uri: string, started: Started) => Promise<T>, settings: object = {}, capabilities?: object): Promise<T> {
  const { binding, core } = fakeBinding({ file: path });
  core.fileFunctions = (epochs) => Promise.resolve({ schema: 1, epochs, event: 'cpu-clock', samples: 80, functions: functions(), notes: [] });
  const started = await startInProcess(binding, { database: '/db', ...settings }, capabilities);
  try {
    return await use(started.client, await open(started.client, path, text), started);
  } finally {
    await stop(started);
  }
}

test('the call hierarchy has shares of samples, and goes on along the way that it came', () =>
  withStacks(
    async (client, uri, { result }) => {
      assert.equal(result.capabilities.callHierarchyProvider, true);
      const [item, ...others] = await client.sendRequest<CallHierarchyItem[]>('textDocument/prepareCallHierarchy', { textDocument: { uri }, position: { line: 3, character: 6 } });
      assert.ok(item);
      assert.deepEqual([item.name, item.detail, item.selectionRange.start.line, item.range.end.line, others.length], ['copy', 'in 50.0% of 80 samples with a call stack · prog', 0, 3, 0]);

      const incoming = await client.sendRequest<CallHierarchyIncomingCall[]>('callHierarchy/incomingCalls', { item });
      assert.deepEqual(incoming.map(({ from, fromRanges }) => [from.name, from.detail, from.selectionRange.start.line, fromRanges.map(({ start }) => start.line)]), [
        ['parse', "75.0% of copy's samples (30 of 40) · prog", 4, [6]],
        // Where it begins is not known: it is shown at its call.
        ['load', "25.0% of copy's samples (10 of 40) · prog", 8, [8]],
      ]);
      const [parse] = incoming;
      assert.ok(parse);
      const [main] = await client.sendRequest<CallHierarchyIncomingCall[]>('callHierarchy/incomingCalls', { item: parse.from });
      assert.equal(main?.from.detail, "75.0% of copy's samples (30 of 40) · prog");
      assert.deepEqual(main.from.data, { function: 'prog:copy', callees: false, through: ['parse', 'main'].map((name) => ({ function: name, image: 'prog', inlined: false })) });

      const outgoing = await client.sendRequest<CallHierarchyOutgoingCall[]>('callHierarchy/outgoingCalls', { item });
      assert.equal(outgoing[0]?.to.name, 'parse');
      // Turned around, the hierarchy begins anew at the item.
      const turned = await client.sendRequest<CallHierarchyOutgoingCall[]>('callHierarchy/outgoingCalls', { item: parse.from });
      assert.match(turned[0]?.to.detail ?? '', /of parse's samples/);
      assert.equal(await client.sendRequest('textDocument/prepareCallHierarchy', { textDocument: { uri }, position: { line: 6, character: 5 } }), null);
      await assert.rejects(client.sendRequest('callHierarchy/incomingCalls', { item: { ...item, data: 7 } }), /callHierarchy/);
    },
    { callHierarchy: true },
  ));

test('the call hierarchy is offered only where it is asked for, and the offer can be taken back', async () => {
  await withStacks((_client, _uri, { result }) => {
    assert.equal(result.capabilities.callHierarchyProvider, undefined);
    return Promise.resolve();
  });
  const dynamic = { textDocument: { callHierarchy: { dynamicRegistration: true } } };
  await withStacks(
    async (client, _uri, { result, received }) => {
      assert.equal(result.capabilities.callHierarchyProvider, undefined);
      const heard = (method: string): boolean => received.some((each) => each.method === method);
      assert.ok(!heard('client/registerCapability'));
      await client.sendNotification('workspace/didChangeConfiguration', { settings: { dwell: { database: '/db', callHierarchy: true } } });
      await until('the offer', () => heard('client/registerCapability'));
      await client.sendNotification('workspace/didChangeConfiguration', { settings: { dwell: { database: '/db' } } });
      await until('the end of the offer', () => heard('client/unregisterCapability'));
    },
    {},
    dynamic,
  );
});

test('callers are asked for by name or at a position, a level at a time', () =>
  withStacks(async (client, uri) => {
    const here = { textDocument: { uri }, position: { line: 0, character: 6 } };
    const answer = await client.sendRequest<CallersResult>('dwell/callers', here);
    assert.deepEqual([answer.id, answer.place?.line, answer.samples, answer.total], ['prog:copy', 0, 40, 80]);
    const [parse] = answer.rows;
    assert.ok(parse);
    assert.deepEqual([parse.label, parse.details, parse.sites[0]?.line, parse.place?.line], ['parse', "75.0% of copy's samples (30 of 40)", 6, 4]);
    const next = await client.sendRequest<CallersResult>('dwell/callers', { function: answer.id, through: [{ function: 'parse', image: 'prog', inlined: false }] });
    assert.deepEqual(next.rows.map((row) => row.function), ['main']);
    await assert.rejects(client.sendRequest('dwell/callers', { ...here, position: { line: 5, character: 0 } }), /copy.c:6: no function with call stacks is here/);
    await assert.rejects(client.sendRequest('dwell/callers', { function: 'prog:absent' }), /in no call stack/);
    await assert.rejects(client.sendRequest('dwell/callers', {}), /name a function/);
    await assert.rejects(client.sendRequest('dwell/callers', { function: 'copy', through: [{ function: 'x' }] }), /through/);
  }));

test('a lens names the callers, and leads to their calls', () =>
  withStacks(async (client, uri) => {
    const [lens, ...others] = await client.sendRequest<CodeLens[]>('textDocument/codeLens', { textDocument: { uri } });
    assert.deepEqual([lens?.command?.title, lens?.range.start.line, others.length], ['called from parse 75 %, load 25 %, [incomplete] 2.5 %', 0, 0]);
    const { id, calls } = lens?.command?.arguments?.[0] as CallersLens;
    assert.deepEqual([id, calls.map(({ label, line }) => [label, line])], ['prog:copy', [['parse', 6], ['load', 8], ['[incomplete]', null]]]);
  }));

test('without stacks there is no lens, and other failures leave the other lenses', async () => {
  const { binding, core } = fakeBinding({ file: path });
  const started = await startInProcess(binding, { database: '/db' });
  const uri = await open(started.client, path, text);
  assert.deepEqual(await started.client.sendRequest('textDocument/codeLens', { textDocument: { uri } }), []);
  core.fileFunctions = () => Promise.reject(new CoreError('database', 'torn'));
  assert.deepEqual(await started.client.sendRequest('textDocument/codeLens', { textDocument: { uri } }), []);
  await stop(started);
});

test('a position means the function that is named there, else the one around it', () => {
  const shown = (name: string, lines: [number, number], samples = 1): ShownFunction => ({ function: name, image: 'p', line: lines[0], lines, samples, own: 0, rows: [] });
  const all = [shown('ns::outer(int)', [0, 20]), shown('ns::outer(long)', [30, 40], 5), shown('lambda', [5, 8])];
  const at = (text: string, line: number, character: number): string | undefined => functionAt(all, text, { line, character })?.function;
  assert.equal(at('  outer(1);', 35, 4), 'ns::outer(long)');
  assert.equal(at('  outer(1);', 10, 3), 'ns::outer(int)');
  assert.equal(at('  outer(1);', 50, 7), 'ns::outer(long)');
  assert.equal(at('  x = 1;', 6, 2), 'lambda');
  assert.equal(at('', 25, 0), undefined);
  assert.deepEqual(
    ['ns::P<a::b>::parse(int)', 'main.(*T).parse', '(anonymous namespace)::run()', '<T as core::Fmt>::fmt', '[incomplete]', 'operator new(unsigned long)', 'memcpy@plt', 'core::f::{{closure}}', 'parse.part.0'].map(baseName),
    ['parse', 'parse', 'run', 'fmt', '[incomplete]', 'new', 'memcpy', 'f::{{closure}}', 'parse'],
  );
  assert.deepEqual(['ns::P<a::b>::parse(int)', 'main.(*T).parse', 'a::(anonymous namespace)::run()', 'memcpy@plt', '<T as core::Fmt>::fmt'].map(shortName), ['parse', 'main.(*T).parse', 'run', 'memcpy@plt', 'fmt']);
});
