// `npm run bench:collect [-- ITEM…] [--seconds N] [--backends perf,bpf]`: measures what continuous collection costs, finds and
// keeps, compared with `perf record -a` and with the bare interrupt, each pair in one run. Prints tables with the limit beside
// each figure; leaves no files. Items: cost, handler, reader, lost, hits, unknown, disk, week.

import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, setPriority } from 'node:os';
import { parseArgs } from 'node:util';
import { Dwell, Perf, scratchFolder, unavailable } from './bench/collectors.mjs';
import { cost } from './bench/cost.mjs';
import { disk, handler, hits, lost, reader, unknown } from './bench/drain.mjs';
import { week } from './bench/week.mjs';
import { build, main } from './build.mjs';
import { forBuilding } from './needs.mjs';
import { must, Stop } from './step.mjs';

const scratch = scratchFolder();

/** Returns the requested backends that work here. */
async function backends(wanted) {
  const all = [];
  for (const backend of wanted) {
    const why = await unavailable(scratch, backend);
    if (why === undefined) all.push(backend);
    else console.log(`SKIPPED backend ${backend}: ${why}`);
  }
  return all;
}

async function costOf({ dwells, seconds, hz }) {
  const begin = async () => {
    const collectors = [new Perf(scratch), ...dwells()];
    for (const collector of collectors) await collector.start(hz);
    return collectors;
  };
  await cost({ begin, scratch, hz, seconds });
}

const items = {
  cost: costOf,
  handler,
  reader,
  lost,
  hits,
  unknown,
  disk,
  week,
};

/** Reserves the CPUs for this process and its children as far as possible: all other processes wait meanwhile. */
function preferUs() {
  setPriority(-20);
  const autogroup = '/proc/self/autogroup'; // If autogroups exist, priorities are compared only within them.
  if (existsSync(autogroup)) writeFileSync(autogroup, '-20');
}

function checkTools() {
  if (!existsSync('/usr/bin/perf')) throw new Stop('/usr/bin/perf is missing: apt-get install linux-perf');
  if (process.getuid() !== 0) throw new Stop('this samples the whole machine: run it as root');
}

await main(async () => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      seconds: { type: 'string', default: '30' },
      hz: { type: 'string', default: '5200' },
      backends: { type: 'string', default: 'perf,bpf,kmod' },
      'no-build': { type: 'boolean', default: false },
      alone: { type: 'boolean', default: false }, // on a busy machine: runs before all other processes
    },
  });
  const wanted = positionals.length > 0 ? positionals : Object.keys(items);
  const strange = wanted.filter((item) => !(item in items));
  if (strange.length > 0) throw new Stop(`no such item: ${strange.join(', ')}; there are ${Object.keys(items).join(', ')}`);
  checkTools();
  if (!values['no-build']) {
    await forBuilding();
    await build();
  }
  if (values.alone) preferUs();
  console.log(`${cpus()[0].model}, ${availableParallelism()} CPUs, Linux ${release()}, load ${loadavg()[0].toFixed(1)} before`);
  const found = await backends(values.backends.split(','));
  const dwells = (...options) => found.map((backend) => new Dwell(scratch, backend, options));
  for (const item of wanted) {
    await items[item]({ scratch, dwells, seconds: Number(values.seconds), hz: Number(values.hz), must });
  }
});
rmSync(scratch, { recursive: true, force: true });
