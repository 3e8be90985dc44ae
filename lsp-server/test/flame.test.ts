/** `dwell/flame`: answers of the core as columns. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flameResult } from '../src/flame';
import { FlameResult } from '../src/results';
import { FakeCancel, fakeBinding } from './fake';

test('a tree is a few numbers for each frame, and functions know their places and causes', async () => {
  const { core } = fakeBinding({});
  const answer = flameResult(await core.flame({ epochs: ['e1'] }, new FakeCancel()));
  const { parents, codes, own, seconds, functions, events } = FlameResult.parse(answer);
  assert.deepEqual({ parents, codes, own, seconds }, { parents: [-1, 0, 0], codes: [0, 3, -3], own: [0, 75, 5], seconds: 0.0025 }); // 80 of 200 samples have a stack.
  assert.deepEqual(functions.map(({ location }) => location), [{ uri: 'file:///src/main.c', line: 19 }, null]);
  assert.deepEqual(functions[1]?.analysis?.causes, [{ kind: 'dynamic', cause: 'd-cache-miss', label: 'D-cache miss', shareMin: 0.1, shareMax: 0.8 }]);
  assert.equal(events[0]?.allSamples, 200);
  assert.equal(flameResult({ ...(await core.flame({ epochs: [] }, new FakeCancel())), unit: 'ns' }).seconds, 1e-9);
});
