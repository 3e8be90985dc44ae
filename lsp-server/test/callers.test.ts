/** Callers and inclusive samples as assistants get them: answers of the core, as data and text. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Core } from '../src/core';
import { callers, hottestPaths, inclusive } from '../src/mcp/answers';
import { callersOut, inclusiveOut, pathsOut } from '../src/mcp/schemas';
import { callersText, inclusiveText, pathsText } from '../src/mcp/texts';
import { FakeCancel, fakeBinding } from './fake';

const asked = { function: 'copy', callees: false, depth: 4, minShare: 0.01 };

test('callers are one list with levels, and incomplete stacks are named', async () => {
  const { core } = fakeBinding({});
  const answer = await callers(core, asked, new FakeCancel());
  const told = callersOut.parse(answer);
  assert.deepEqual(told.rows.map(({ level, function: name, share, line }) => [level, name, share, line]), [[0, 'parse', 0.75, 7], [1, 'main', 0.75, 20], [0, 'load', 0.25, 9]]);
  assert.equal(
    callersText(answer),
    `Recording e1: copy [prog] is in 40 of 80 samples with a call stack, 30 of them in itself
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
  assert.equal(inclusiveText(answer), 'Recording e1: 80 of 200 samples have a call stack\n  100%, in itself 25.0%  main [prog]\n3 more rows');
});

test('paths are blocks of functions, outermost first', async () => {
  const answer = await hottestPaths(fakeBinding({}).core, { limit: 1, depth: 2 }, new FakeCancel());
  assert.equal(pathsOut.parse(answer).othersSamples, 50);
  assert.equal(
    pathsText(answer),
    `Recording e1: the hottest paths of 80 samples with a call stack, outermost function first
37.5% (30 samples)
    … outer functions left out
    parse (calls itself) [prog] at /src/main.c:7
    copy (inlined) [prog]
2 more paths have 50 samples`,
  );
});
