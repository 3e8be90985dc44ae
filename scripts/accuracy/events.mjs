// Simulates samples of retired instructions from executions, as a counter without skid would take them: a Poisson number at each
// instruction, from a seed. `meta.json` of the capture says that they are simulated.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { poisson, randomFrom, seedOf } from './random.mjs';

/**
 * Writes `events.tsv`: the event `instructions` with about `wanted` samples over `runs` runs that all execute the same.
 * @returns {{ event: string, period: number, samples: number, seed: string }}
 */
export function simulateInstructions(folder, name, executions, { runs, wanted }) {
  const retired = [...executions.values()].reduce((sum, count) => sum + count, 0) * runs;
  const period = Math.max(1, Math.round(retired / wanted));
  const seed = `instructions of ${name}`;
  const random = randomFrom(seedOf(seed));
  let samples = 0;
  const rows = [];
  for (const [address, count] of [...executions].toSorted(([a], [b]) => a - b)) {
    const drawn = poisson(random, (count * runs) / period);
    if (drawn > 0) rows.push(`instructions\t${period}\t${address.toString(16)}\t${drawn}\n`);
    samples += drawn;
  }
  writeFileSync(join(folder, 'events.tsv'), rows.join(''));
  return { event: 'instructions', period, samples, seed };
}
