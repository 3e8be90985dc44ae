// `npm run bench:spark [-- --host-days N --rows N --rounds N]`: what roll-ups and analyses cost on a Spark cluster of one and of two workers (one core each), by
// processes of dwell as fleet/ has them, and roll-ups by Spark's own engine over the same segments too, alternately. The recordings are simulated: those that are
// rolled up have made-up binaries, those that are analysed have binaries of this machine with made-up counts on each instruction.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { build, dwell, main } from './build.mjs';
import { forSpark } from './needs.mjs';
import { job, startCluster } from './spark.mjs';
import { top } from './step.mjs';

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const range = (values) => `${median(values).toFixed(1)} (${Math.min(...values).toFixed(1)} to ${Math.max(...values).toFixed(1)})`;

/** Rolls up as the job of fleet/ does, and sums up by image, event and offset in Spark's own engine, as a table of sums would be made without dwell. Both begin when all
 * workers are there and have run Python. */
const both = `
import json, sys, time
sys.path.insert(0, sys.argv[1])
import dwell_spark
from pyspark.sql import functions as F
workers = int(sys.argv[2])
options = dwell_spark.parse(sys.argv[3:])
spark = dwell_spark.session()
context = spark.sparkContext
context.addPyFile(dwell_spark.__file__)
while context._jsc.sc().getExecutorMemoryStatus().size() < workers + 1:
    time.sleep(0.1)
for _ in range(2):
    context.parallelize(range(4 * workers), 4 * workers).map(lambda n: time.sleep(0.2)).collect()
start = time.monotonic()
made, recordings = dwell_spark.roll_up(spark, options)
ours = time.monotonic() - start
spark.conf.set("spark.sql.shuffle.partitions", "8")
start = time.monotonic()
segments = spark.read.option("basePath", "s3a://fleet/p/epochs").parquet("s3a://fleet/p/epochs/*/*/*/segment-*.parquet")
sums = segments.groupBy("image", "event", "offset", "app").agg(F.sum("count").alias("count"))
sums.write.parquet("s3a://fleet/p/sums")
told = {"dwell": ours, "Spark": time.monotonic() - start, "recordings": recordings}
options.db, options.bucket = "s3://fleet/code", ("fleet", "code/")
dwell_spark.roll_up(spark, options)
start = time.monotonic()
told["binaries"], told["rows"] = dwell_spark.analyse(spark, options, "instructions")
told["analysis"] = time.monotonic() - start
print(json.dumps(told))
`;

/** Binaries of Debian, those that are here. */
const binaries = ['/usr/bin/perl', '/usr/bin/python3.11', '/usr/bin/git', '/usr/bin/bash', '/usr/bin/gdb', '/usr/lib/x86_64-linux-gnu/libc.so.6', '/usr/lib/x86_64-linux-gnu/libcrypto.so.3', '/usr/lib/x86_64-linux-gnu/libstdc++.so.6'].filter(existsSync);
/** Number of functions of each that have samples. */
const functionsMax = 400;

/** A table of counts with the instructions of the binaries' functions, some in every part of each. */
function counts() {
  return binaries.flatMap((binary) => {
    const text = execFileSync('objdump', ['-d', '--no-show-raw-insn', '-j', '.text', binary], { encoding: 'utf8', maxBuffer: 2 ** 30 });
    const functions = text.split(/^[0-9a-f]+ <.*>:$/m).slice(1);
    const step = Math.max(1, Math.floor(functions.length / functionsMax));
    const taken = functions.filter((_, at) => at % step === 0).slice(0, functionsMax);
    return taken.flatMap((code) => [...code.matchAll(/^ +([0-9a-f]+):/gm)].map(([, address], at) => `${binary}\t${address}\t${1 + ((at * 7919) % 23)}\n`));
  }).join('');
}

await main(async () => {
  const { values } = parseArgs({ options: { 'host-days': { type: 'string', default: '4' }, rows: { type: 'string', default: '100000' }, rounds: { type: 'string', default: '2' } } });
  if (!process.env.DWELL) await build();
  await forSpark();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-spark-'));
  try {
    const db = join(folder, 'db');
    execFileSync('cargo', ['run', '-q', '--release', '-p', 'dwell-fleet', '--example', 'host_days', '--', db, values['host-days'], values.rows], { cwd: top, stdio: 'inherit' });
    const rows = 24 * Number(values['host-days']) * Number(values.rows);
    const [code, table] = [join(folder, 'code'), join(folder, 'counts.tsv')];
    writeFileSync(table, counts());
    for (let recording = 0; recording < 4; recording++) {
      const machine = ['--machine', 'amd-zen4', '--event', 'cycles', '--period', '1000', '--unit', 'cycles'];
      execFileSync(dwell, ['import', '--db', code, '--counts', table, ...binaries.flatMap((binary) => ['--image', binary]), ...machine], { stdio: ['ignore', 'ignore', 'inherit'] });
    }
    const driver = join(folder, 'both.py');
    writeFileSync(driver, both);
    const [results, analysed] = [{}, {}];
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const workers of [1, 2]) {
        const cluster = await startCluster({ folder: join(folder, `cluster-${round}-${workers}`), workers });
        try {
          execFileSync(dwell, ['push', '--db', db, '--to', 's3://fleet/p'], { env: cluster.env });
          execFileSync(dwell, ['push', '--db', code, '--to', 's3://fleet/code', '--binaries'], { env: cluster.env });
          const run = async (program, words) => {
            const { status, stdout, stderr } = await cluster.submit(program, words);
            if (status !== 0) throw new Error(stdout + stderr);
            return JSON.parse(stdout.trim().split('\n').at(-1));
          };
          const took = await run(driver, [dirname(job), String(workers), '--db', 's3://fleet/p', '--dwell', dwell, '--today', '--recordings', '12', '--share', '1']);
          for (const work of ['dwell', 'Spark', 'analysis']) (results[`${work}, ${workers}`] ??= []).push(took[work]);
          [analysed.binaries, analysed.rows] = [took.binaries, took.rows];
          console.log(`round ${round + 1}, ${workers} workers: dwell ${took.dwell.toFixed(1)} s, Spark ${took.Spark.toFixed(1)} s; analysis ${took.analysis.toFixed(1)} s`);
        } finally {
          cluster.stop();
        }
      }
    }
    console.log(`${rows} rows in ${24 * Number(values['host-days'])} recordings`);
    console.log(`analysis: ${analysed.rows} instructions of ${analysed.binaries} binaries`);
    for (const [name, seconds] of Object.entries(results)) {
      const [amount, unit] = name.startsWith('analysis') ? [analysed.rows / 1e3, 'k instructions/s'] : [rows / 1e6, 'M rows/s'];
      console.log(`${name} workers: ${range(seconds)} s, ${(amount / median(seconds)).toFixed(2)} ${unit}`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
