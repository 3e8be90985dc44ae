// `npm run bench:ways`: how well the table of samples aggregates with 4 and with 6 ways (DCPI, section 5.4), on a trace that
// it records first: a C project's build. perf records, with addresses not randomized, so that the executables of
// thousands of processes lie where they did before. Leaves no files.

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { main } from './build.mjs';
import { build } from './bench/loads.mjs';
import { Stop, top } from './step.mjs';

const HZ = 5200;
/** Tables are emptied so often, in samples: a minute of one CPU, as the daemon does. */
const FLUSH = HZ * 60;
const KERNEL = 1;

function must(program, args) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8', maxBuffer: 1 << 30 });
  if (status !== 0) throw new Stop(`${program}: ${error?.message ?? stderr.trim().split('\n').pop()}`);
  return stdout;
}

/** The samples of a load, one a line. */
function record(folder) {
  const data = join(folder, 'perf.data');
  const objects = join(folder, 'objects');
  mkdirSync(objects);
  must('perf', ['record', '-q', '-e', 'cpu-clock', '-F', String(HZ), '--sample-cpu', '-o', data, '--', 'setarch', '-R', 'bash', '-c', build(objects)]);
  return must('perf', ['script', '-i', data, '-F', 'comm,pid,cpu,ip,dso', '--ns']);
}

/** A name in place of the inode, which perf does not tell. */
const numbers = new Map();
const inodeOf = (name) => numbers.get(name) ?? numbers.set(name, numbers.size + 1).get(name);

/** struct dwell_trace_record. A process's executable is the image that is called as the process is. */
function traceRecord(line) {
  const found = line.match(/^\s*(.*?)\s+(\d+)\s+\[(\d+)\]\s+([0-9a-f]+)\s+\((.*)\)\s*$/);
  if (!found) return null;
  const [, comm, pid, cpu, ip, dso] = found;
  const pc = BigInt(`0x${ip}`);
  const isKernel = pc >> 63n === 1n;
  const isExecutable = !isKernel && basename(dso).replace(/^x86_64-linux-gnu-|-\d+$/g, '').startsWith(comm.slice(0, 15));
  const bytes = Buffer.alloc(48);
  bytes.writeBigUInt64LE(pc, 0);
  bytes.writeBigUInt64LE(isExecutable ? 1n : 0n, 8);
  bytes.writeBigUInt64LE(isExecutable ? 1n << 62n : 0n, 16);
  bytes.writeBigUInt64LE(BigInt(inodeOf(comm)), 24);
  bytes.writeUInt32LE(Number(pid), 40);
  bytes.writeUInt8(isKernel ? KERNEL : 0, 45);
  bytes.writeUInt16LE(Number(cpu), 46);
  return bytes;
}

/** Counts of one table: ways, base-2 logarithm of its buckets. */
function replay(folder, trace, ways, bits) {
  const program = join(folder, `ways-${ways}`);
  must('gcc', ['-std=gnu11', '-O2', `-DDWELL_WAYS=${ways}`, '-o', program, join(top, 'kmod/test/ways.c'), join(top, 'kmod/sample_table.c')]);
  const { stdout, status } = spawnSync('bash', ['-c', `${program} ${bits} ${FLUSH} < ${trace}`], { encoding: 'utf8' });
  if (status !== 0) throw new Stop(`${program} ended with status ${status}`);
  const [samples, found, evicted, handedOut] = stdout.trim().split(' ').map(Number);
  return { ways, KiB: (ways * 16 << bits) / 1024, samples, 'found %': (found * 100 / samples).toFixed(2), 'evicted %': (evicted * 100 / samples).toFixed(3), 'samples per entry read': (samples / handedOut).toFixed(2) };
}

await main(async () => {
  const folder = mkdtempSync(join(tmpdir(), 'dwell-ways-'));
  try {
    const trace = join(folder, 'trace');
    const records = record(folder).split('\n').map(traceRecord).filter(Boolean);
    writeFileSync(trace, Buffer.concat(records));
    console.log(`${records.length} samples of a build at ${HZ} Hz; tables emptied every ${FLUSH} samples`);
    console.table([10, 12, 14].flatMap((bits) => [4, 6].map((ways) => replay(folder, trace, ways, bits))));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
