/** The keys of answers as the protocol spells them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { camel } from '../src/camel';

test('keys of an object are spelled as in the protocol, names of events within it stay', () => {
  const part = { schema: 1, best_case_cpi: null, samples_a: 2, share: 0.5, samples: { some_event: 7 } };
  assert.deepEqual(camel(part), { bestCaseCpi: null, samplesA: 2, share: 0.5, samples: { some_event: 7 } });
});
