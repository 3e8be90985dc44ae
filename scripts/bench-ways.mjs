// `npm run bench:ways`: measures how well the table of samples aggregates with 4 and with 6 ways (DCPI, section 5.4). It first
// records a trace of a C project's build with perf. Addresses are not randomized, so that the executables of thousands of
// processes are at the same addresses. It leaves no files, except the trace with `-- --out FILE [--samples N]`
// (core/collect/src/sys/bpf/build.trace was recorded in this way).

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { main } from './build.mjs';
import { build } from './bench/loads.mjs';
import { readPerfData } from './bench/perf-data.mjs';
import { Stop, top } from './step.mjs';

const HZ = 5200;
/** Number of samples after which tables are emptied: one minute of one CPU, as in the daemon. */
const FLUSH = HZ * 60;
const KERNEL = 1;

function must(program, args) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8', maxBuffer: 1 << 30 });
  if (status !== 0) throw new Stop(`${program}: ${error?.message ?? stderr.trim().split('\n').pop()}`);
  return stdout;
}

/** Records samples of a load, each with the program that its process executes: struct dwell_trace_record. */
function record(folder) {
  const data = join(folder, 'perf.data');
  const objects = join(folder, 'objects');
  mkdirSync(objects);
  must('perf', ['record', '-q', '-B', '-N', '-e', 'cpu-clock', '-F', String(HZ), '--sample-cpu', '-o', data, '--', 'setarch', '-R', 'bash', '-c', build(objects)]);
  const programs = new Map();
  const records = [];
  for (const event of readPerfData(data)) {
    const { kind, pid } = event;
    const program = programs.get(pid);
    // Only the first program of each process counts.
    if (kind === 'exec') programs.set(pid, programs.has(pid) ? null : 'awaited');
    if (kind === 'map' && program === 'awaited') programs.set(pid, event); // The kernel maps the program itself first.
    if (kind === 'sample' && program?.inode) records.push(traceRecord(event, program));
  }
  return records;
}

function traceRecord({ pc, pid, cpu }, { start, end, inode, device }) {
  const bytes = Buffer.alloc(48);
  [pc, start, end, inode].forEach((word, at) => bytes.writeBigUInt64LE(word, at * 8));
  bytes.writeUInt32LE(device, 32);
  bytes.writeUInt32LE(pid, 40);
  bytes.writeUInt8(pc >> 63n === 1n ? KERNEL : 0, 45);
  bytes.writeUInt16LE(cpu, 46);
  return bytes;
}

/** Selects this many of them at equal distances. */
const spread = (all, count) => Array.from({ length: count }, (_, i) => all[Math.floor((i * all.length) / count)]);

/** Replays a trace into a table with this many ways and 2^bits buckets. Returns its counts. */
function replay(folder, trace, ways, bits) {
  const program = join(folder, `ways-${ways}`);
  must('gcc', ['-std=gnu11', '-O2', `-DDWELL_WAYS=${ways}`, '-o', program, join(top, 'kmod/test/ways.c'), join(top, 'kmod/sample_table.c')]);
  const { stdout, status } = spawnSync('bash', ['-c', `${program} ${bits} ${FLUSH} < ${trace}`], { encoding: 'utf8' });
  if (status !== 0) throw new Stop(`${program} ended with status ${status}`);
  const [samples, found, evicted, handedOut] = stdout.trim().split(' ').map(Number);
  return { ways, KiB: (ways * 16 << bits) / 1024, samples, 'found %': (found * 100 / samples).toFixed(2), 'evicted %': (evicted * 100 / samples).toFixed(3), 'samples per entry read': (samples / handedOut).toFixed(2) };
}

await main(async () => {
  const { values } = parseArgs({ options: { out: { type: 'string' }, samples: { type: 'string', default: '3000' } } });
  const folder = mkdtempSync(join(tmpdir(), 'dwell-ways-'));
  try {
    const trace = join(folder, 'trace');
    const records = record(folder);
    writeFileSync(trace, Buffer.concat(records));
    if (values.out) return writeFileSync(values.out, Buffer.concat(spread(records, Number(values.samples))));
    console.log(`${records.length} samples of a build at ${HZ} Hz; tables emptied every ${FLUSH} samples`);
    console.table([10, 12, 14].flatMap((bits) => [4, 6].map((ways) => replay(folder, trace, ways, bits))));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
