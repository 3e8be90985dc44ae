/** Callers and inclusive samples as assistants get them: answers of the core, as data and text. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Core } from '../src/core';
import { callers, inclusive } from '../src/mcp/answers';
import { callersOut, inclusiveOut } from '../src/mcp/schemas';
import { callersText, inclusiveText } from '../src/mcp/texts';
import { FakeCancel, fakeBinding } from './fake';

const asked = { function: 'copy', callees: false, depth: 4, minShare: 0.01 };

test('callers are one list with levels, and incomplete stacks are named', async () => {
  const { core } = fakeBinding({});
  const answer = await callers(core, asked, new FakeCancel());
  const told = callersOut.parse(answer);
  assert.deepEqual(told.rows.map(({ level, function: name, share, line }) => [level, name, share, line]), [[0, 'parse', 0.75, 7], [1, 'main', 0.75, 20], [0, 'load', 0.25, 9]]);
  assert.equal(
    callersText(answer),
    `Epoch e1: copy [prog] is in 40 of 80 samples with a call stack, 30 of them in itself
 75.0% parse [prog] at /src/main.c:7
 75.0%   main [prog] at /src/main.c:20
 25.0% load [prog] at /src/main.c:9
2 stacks are incomplete: they end in libc.so.6 (cut)
a note`,
  );
});

test('inclusive samples are ranked', async () => {
  const rows = [{ function: 'main', image: 'prog', samples: 80, share: 1, own: 20 }];
  const answered = { schema: 1, epochs: ['e1'], event: 'cpu-clock', samples: 80, all_samples: 200, incomplete: [], rows, others: 3, notes: [] };
  const core: Core = { ...fakeBinding({}).core, inclusive: () => Promise.resolve(answered) };
  const answer = await inclusive(core, { limit: 1 }, new FakeCancel());
  assert.equal(inclusiveOut.parse(answer).allSamples, 200);
  assert.equal(inclusiveText(answer), 'Epoch e1: 80 of 200 samples have a call stack\n  100%, in itself 25.0%  main [prog]\n3 more rows');
});
