// `npm run bench:soak [-- --minutes N] [--backend B] [--out FILE] [--budget PERCENT]`: runs a daemon with its default settings
// beside builds. With --budget 0 it samples at its full rate, whatever an interrupt costs on this machine. Prints a row every ten
// seconds: resident memory, disk, CPU, samples, lost, unknown. At the end it prints the limits beside the figures, and the size
// that perf.data would have had, from its bytes per sample, measured before on the same load.

import { appendFileSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { Dwell, Perf, scratchFolder } from './bench/collectors.mjs';
import { atLeast, atMost, table } from './bench/figures.mjs';
import { bytesBelow, cpuMs, residentBytes, sleep } from './bench/helpers.mjs';
import { build as buildLoad, Endless } from './bench/loads.mjs';
import { build, main } from './build.mjs';
import { forBuilding } from './needs.mjs';

const EVERY_MS = 10_000;
const HOUR_MS = 3600_000;

/** Measures for this time how many bytes perf.data takes for a sample. */
async function perfBytesPerSample(scratch, seconds) {
  const perf = new Perf(scratch);
  await perf.start(1000);
  await perf.turn(true);
  await sleep(seconds * 1000);
  await perf.end();
  return { bytes: perf.bytes, samples: perf.samples, each: perf.bytes / perf.samples };
}

const sums = ({ events }) =>
  Object.values(events).reduce(
    (sum, { samples, lost, unknown }) => ({ samples: sum.samples + samples, lost: sum.lost + lost, unknown: sum.unknown + unknown }),
    { samples: 0, lost: 0, unknown: 0 },
  );

/** Takes one measurement of the daemon. */
async function look(daemon, start) {
  const status = await daemon.status();
  const { all, anonymous, file, shared, peak } = residentBytes(daemon.pid);
  return {
    seconds: Math.round((performance.now() - start) / 1000),
    epoch: status.epoch,
    ...sums(status),
    resident: all,
    peak,
    anonymous,
    file,
    shared,
    disk: bytesBelow(join(daemon.database, 'epochs')),
    cpu_ms: cpuMs(daemon.pid),
    load: loadavg()[0],
    status,
  };
}

/** Returns the sum of a count over all epochs, because counts start from zero in each epoch. */
function total(rows) {
  const ended = rows.filter((row, at) => at + 1 === rows.length || rows[at + 1].epoch !== row.epoch);
  const sum = (what) => ended.reduce((all, row) => all + row[what], 0);
  return { samples: sum('samples'), lost: sum('lost'), unknown: sum('unknown') };
}

/** Prints the figures. `ended` is the size on disk after the daemon ended the epoch and merged the last segments. */
function report(rows, ended, perf, backend) {
  const [last, mb] = [rows.at(-1), (bytes) => (bytes / 1e6).toFixed(2)];
  const { samples, lost, unknown } = total(rows);
  const [seconds, peak] = [last.seconds, Math.max(...rows.map(({ resident }) => resident))];
  const diskPerHour = (ended * HOUR_MS) / 1000 / seconds;
  const [ratio, share] = [(perf.each * samples) / ended, (100 * unknown) / Math.max(samples, 1)];
  const residents = rows.map(({ resident }) => resident).toSorted((a, b) => a - b);
  table(`soak: ${(seconds / 60).toFixed(1)} minutes of builds, backend ${backend}, ${rows.length} looks`, [
    ['', 'figure', 'bar'],
    ['resident memory, most seen', `${mb(peak)} MB (median ${mb(residents[residents.length >> 1])})`, atMost(peak / 1e6, 15, 'MB')],
    ['… of it private, mapped files, shared, at the end', [last.anonymous, last.file, last.shared].map(mb).join(', '), ''],
    ['disk, at the last look', `${mb(last.disk)} MB`, ''],
    ['disk, the epoch ended', `${mb(ended)} MB, ${mb(diskPerHour)} MB in an hour`, atMost(diskPerHour / 1e6, 1, 'MB')],
    ['samples', `${samples}, ${(samples / seconds).toFixed(0)} a second`, ''],
    ['perf.data for as many', `${mb(perf.each * samples)} MB at ${perf.each.toFixed(1)} bytes a sample`, atLeast(Math.round(ratio), 200, `times: ${ratio.toFixed(0)}`)],
    ['lost', String(lost), atMost(lost, 0, '')],
    ['unknown', `${unknown}, ${share.toFixed(4)} %`, atMost(share, 0.01, '%')],
    ['CPU', `${(last.cpu_ms / seconds).toFixed(2)} ms/s`, ''],
  ]);
}

await main(async () => {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '60' },
      backend: { type: 'string', default: 'auto' },
      out: { type: 'string', default: 'soak.jsonl' },
      budget: { type: 'string' },
      'no-build': { type: 'boolean', default: false },
      'no-load': { type: 'boolean', default: false }, // the machine is busy with builds already
    },
  });
  if (!values['no-build']) {
    await forBuilding();
    await build();
  }
  const scratch = scratchFolder();
  const load = values['no-load'] ? undefined : new Endless(buildLoad(mkdtempSync(join(scratch, 'load-'))));
  const perf = await perfBytesPerSample(scratch, 20);
  const daemon = new Dwell(scratch, values.backend, values.budget ? ['--budget', values.budget] : []);
  await daemon.start();
  console.log(`${daemon.database}: backend ${daemon.took}; rows go to ${values.out}`);
  writeFileSync(values.out, '');
  const [start, rows] = [performance.now(), []];
  const end = start + Number(values.minutes) * 60_000;
  let stopped = false;
  process.on('SIGINT', () => (stopped = true)); // The report is printed early.
  while (performance.now() < end && !stopped) {
    await sleep(EVERY_MS);
    const row = await look(daemon, start);
    rows.push(row);
    appendFileSync(values.out, `${JSON.stringify(row)}\n`);
  }
  await daemon.flush();
  rows.push(await look(daemon, start));
  await daemon.end();
  await load?.stop();
  report(rows, bytesBelow(join(daemon.database, 'epochs')), perf, daemon.took);
  rmSync(scratch, { recursive: true, force: true });
});
