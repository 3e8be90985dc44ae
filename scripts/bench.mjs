// `npm run bench [-- ITEM…]`: compares Dwell with perf and with no profiler, each pair in one run. Prints tables, leaves no
// files. Items: overhead, size, answers, unknown, hints. Every figure is a median with its range.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { median, spread, table } from './bench/figures.mjs';
import { bytesBelow } from './bench/helpers.mjs';
import { build as zstd } from './bench/loads.mjs';
import { build, dwell, main } from './build.mjs';
import { forBuilding } from './needs.mjs';
import { Stop, top } from './step.mjs';

const workload = (name) => join(top, 'test-fixtures/programs/build', name);
const rate = '5000';
const scratch = mkdtempSync(join(tmpdir(), 'dwell-bench-'));
const database = join(scratch, 'database');
const perfData = join(scratch, 'perf.data');
const dwellRecord = ['--db', database, 'record', '-a', '-F', rate, '--'];
// -B skips build IDs: perf 6.1 reads those of all images at its end and aborts on some (build-id.c:1010). It is also
// faster without.
const perfRecord = ['record', '-q', '-B', '-a', '-F', rate, '-o', perfData, '--'];

/** Runs a command. Returns its output, seconds, CPU seconds including its children, and peak resident MiB. */
function measure(command) {
  const times = join(scratch, 'times');
  const start = performance.now();
  const { status, stdout, stderr } = spawnSync('/usr/bin/time', ['-q', '-o', times, '-f', '%U %S %M', ...command], {
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    cwd: top,
  });
  const wall = (performance.now() - start) / 1000;
  if (status !== 0) throw new Stop(`${command.join(' ')}: status ${status}: ${stderr.trim().split('\n').pop()}`);
  const [user, system, peak] = readFileSync(times, 'utf8').trim().split(' ').map(Number);
  return { wall, cpu: user + system, peak: peak / 1024, stdout };
}

/**
 * Runs one copy of a workload on every CPU. It prints its wall time and CPU seconds; those of the recorder are
 * separate.
 */
function busy(name, repetitions) {
  const one = `${workload(name)} ${repetitions} >/dev/null &`;
  return ['bash', '-c', `TIMEFORMAT="%R %U %S"; time { ${one.repeat(availableParallelism())} wait; }`];
}

function ownTimes(command, work) {
  const times = join(scratch, 'work');
  const inner = [...work.slice(0, 2), `{ ${work[2]} } 2>${times}`];
  const outer = measure([...command, ...inner]);
  const [wall, user, system] = readFileSync(times, 'utf8').trim().split('\n').pop().split(' ').map(Number);
  return { wall, recorderCpu: Math.max(outer.cpu - user - system, 0), peak: outer.peak };
}

/** Measures the wall time of the same work without a profiler, under perf and under Dwell, alternating. */
function overhead() {
  const rounds = 7;
  const ways = { nothing: [], perf: ['perf', ...perfRecord], dwell: [dwell, ...dwellRecord] };
  const results = { nothing: [], perf: [], dwell: [] };
  for (let round = 0; round < rounds; round++) {
    for (const [way, command] of Object.entries(ways)) results[way].push(ownTimes(command, busy('mispredict', 500)));
  }
  const ratios = (way) => results[way].map(({ wall }, round) => (wall / results.nothing[round].wall - 1) * 100);
  const row = (way) => [
    way,
    spread(results[way].map(({ wall }) => wall), 3, 's'),
    way === 'nothing' ? '' : spread(ratios(way), 2, '%'),
    way === 'nothing' ? '' : spread(results[way].map(({ recorderCpu }) => recorderCpu), 2, 's'),
    way === 'nothing' ? '' : spread(results[way].map(({ peak }) => peak), 0, 'MiB'),
  ];
  table(`overhead: mispredict on every CPU, whole machine at ${rate} Hz, ${rounds} alternating rounds`, [
    ['', 'wall', 'over nothing', 'CPU beside the work', 'peak memory'],
    ...Object.keys(ways).map(row),
  ]);
}

const tallies = () => {
  const { epochs } = JSON.parse(measure([dwell, '--db', database, '--json', 'epoch', 'list']).stdout);
  return Object.values(epochs.at(-1).events).reduce((sum, event) => ({
    samples: sum.samples + event.samples, unknown: sum.unknown + event.unknown, lost: sum.lost + event.lost,
  }), { samples: 0, unknown: 0, lost: 0 });
};

/** Lets both tools record the same seconds of the machine, one inside the other. */
const recordBoth = (work) => measure([dwell, ...dwellRecord, 'perf', ...perfRecord, ...work]);

function perfSamples() {
  const { stdout } = measure(['perf', 'report', '-i', perfData, '--stats', '--stdio']);
  return stdout.match(/SAMPLE events:\s+(\d+)/)?.[1] ?? '?';
}

function size() {
  const before = existsSync(database) ? bytesBelow(database) : 0;
  recordBoth(busy('sort', 50));
  const [ours, theirs, { samples, lost }] = [bytesBelow(database) - before, bytesBelow(perfData), tallies()];
  table(`size: sort on every CPU, whole machine at ${rate} Hz, the same seconds`, [
    ['', 'bytes', 'samples', 'lost', 'bytes of perf.data over bytes of it'],
    ['perf.data', String(theirs), perfSamples(), '', ''],
    ['dwell', String(ours), String(samples), String(lost), (theirs / ours).toFixed(0)],
  ]);
}

function answers() {
  if (!existsSync(perfData)) recordBoth(busy('sort', 50));
  const perf = (verb, ...options) => ['perf', verb, '-i', perfData, '--stdio', ...options];
  const { rows: hottest } = JSON.parse(measure([dwell, '--db', database, '--json', 'top', '--image', 'programs/build/sort']).stdout);
  const procedure = `${basename(hottest[0].image)}:${hottest[0].procedure}`;
  const rows = Object.entries({
    'dwell top': [[dwell, '--db', database, 'top'], perf('report')],
    'dwell annotate': [[dwell, '--db', database, 'annotate', procedure], perf('annotate', '-s', hottest[0].demangled)],
  }).map(([name, commands]) => {
    const times = commands.map(() => []);
    const peaks = commands.map(() => []);
    for (let round = 0; round < 5; round++) {
      commands.forEach((command, way) => {
        const { wall, peak } = measure(command);
        times[way].push(wall);
        peaks[way].push(peak);
      });
    }
    return [name, spread(times[0], 3, 's'), `perf ${commands[1][1]} ${commands[1].slice(5).join(' ')}`.trim(), spread(times[1], 3, 's'),
      (median(times[1]) / median(times[0])).toFixed(1), `${median(peaks[0]).toFixed(0)} / ${median(peaks[1]).toFixed(0)} MiB`];
  });
  table('answers: the same seconds of sort on every CPU, 5 alternating rounds', [
    ['', 'time', 'beside', 'time', 'ratio', 'peak memory'],
    ...rows,
  ]);
}

function unknown() {
  recordBoth(['bash', '-c', zstd(scratch)]);
  const { samples, unknown: none, lost } = tallies();
  const report = measure(['perf', 'report', '-i', perfData, '--stdio', '-s', 'dso', '--percent-limit', '0']).stdout;
  const perfShare = Number(report.match(/([\d.]+)%\s+\[unknown\]/)?.[1] ?? 0);
  table('unknown: building zstd with gcc -O2 -g, whole machine, the same seconds', [
    ['', 'samples', 'unknown', 'share', 'lost'],
    ['perf', perfSamples(), '', `${perfShare.toFixed(3)} %`, ''],
    ['dwell', String(samples), String(none), `${((100 * none) / samples).toFixed(3)} %`, String(lost)],
  ]);
}

function hints() {
  console.log('\nhints: from opening a file to its hints, in the server');
  const { stdout } = measure(['npm', 'run', '-s', 'bench:open', '-w', '@dwell/lsp-server']);
  process.stdout.write(stdout.replace(/^/gm, '  ').trimEnd() + '\n');
}

const items = { overhead, size, answers, unknown, hints };

function checkTools() {
  for (const [program, debian] of Object.entries({ '/usr/bin/time': 'time', '/usr/bin/perf': 'linux-perf' })) {
    if (!existsSync(program)) throw new Stop(`${program} is missing: apt-get install ${debian}`);
  }
  if (process.getuid() !== 0) throw new Stop('this samples the whole machine: run it as root');
}

await main(async () => {
  const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(items);
  const strange = wanted.filter((item) => !(item in items));
  if (strange.length > 0) throw new Stop(`no such item: ${strange.join(', ')}; there are ${Object.keys(items).join(', ')}`);
  checkTools();
  await forBuilding();
  await build();
  console.log(`${cpus()[0].model}, ${availableParallelism()} CPUs, Linux ${release()}, load ${loadavg()[0].toFixed(1)} before`);
  for (const item of wanted) items[item]();
});
rmSync(scratch, { recursive: true, force: true });
