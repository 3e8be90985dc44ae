// `npm run bench:spark [-- --host-days N --rows N --rounds N]`: what roll-ups cost on a Spark cluster of one and of two workers (one core each), by processes of
// dwell as fleet/ has them, and by Spark's own engine over the same segments, alternately. The recordings are simulated.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
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
print(json.dumps({"dwell": ours, "Spark": time.monotonic() - start, "recordings": recordings}))
`;

await main(async () => {
  const { values } = parseArgs({ options: { 'host-days': { type: 'string', default: '4' }, rows: { type: 'string', default: '100000' }, rounds: { type: 'string', default: '2' } } });
  if (!process.env.DWELL) await build();
  await forSpark();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-spark-'));
  try {
    const db = join(folder, 'db');
    execFileSync('cargo', ['run', '-q', '--release', '-p', 'dwell-fleet', '--example', 'host_days', '--', db, values['host-days'], values.rows], { cwd: top, stdio: 'inherit' });
    const rows = 24 * Number(values['host-days']) * Number(values.rows);
    const driver = join(folder, 'both.py');
    writeFileSync(driver, both);
    const results = {};
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const workers of [1, 2]) {
        const cluster = await startCluster({ folder: join(folder, `cluster-${round}-${workers}`), workers });
        try {
          execFileSync(dwell, ['push', '--db', db, '--to', 's3://fleet/p'], { env: cluster.env });
          const run = async (program, words) => {
            const { status, stdout, stderr } = await cluster.submit(program, words);
            if (status !== 0) throw new Error(stdout + stderr);
            return JSON.parse(stdout.trim().split('\n').at(-1));
          };
          const took = await run(driver, [dirname(job), String(workers), '--db', 's3://fleet/p', '--dwell', dwell, '--today', '--recordings', '12']);
          for (const engine of ['dwell', 'Spark']) (results[`${engine}, ${workers}`] ??= []).push(took[engine]);
          console.log(`round ${round + 1}, ${workers} workers: dwell ${took.dwell.toFixed(1)} s, Spark ${took.Spark.toFixed(1)} s`);
        } finally {
          cluster.stop();
        }
      }
    }
    console.log(`${rows} rows in ${24 * Number(values['host-days'])} recordings`);
    for (const [name, seconds] of Object.entries(results)) console.log(`${name} workers: ${range(seconds)} s, ${(rows / median(seconds) / 1e6).toFixed(2)} M rows/s`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
