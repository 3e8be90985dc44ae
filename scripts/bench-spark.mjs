// `npm run bench:spark [-- --host-days N --rows N --rounds N]`: what roll-ups cost on a Spark cluster of one and of two workers (one core each), by processes of
// dwell as fleet/ has them, and by Spark's own engine over the same segments, alternately. The recordings are simulated.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { build, dwell, main } from './build.mjs';
import { forSpark } from './needs.mjs';
import { job, startCluster } from './spark.mjs';
import { top } from './step.mjs';

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const range = (values) => `${median(values).toFixed(1)} (${Math.min(...values).toFixed(1)} to ${Math.max(...values).toFixed(1)})`;

/** Sums up by image, event and offset, and writes the result, as a table of sums would be made without dwell. */
const ownSums = `
import json, sys, time
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.config("spark.hadoop.fs.s3a.endpoint", sys.argv[1]).config("spark.hadoop.fs.s3a.path.style.access", "true").config("spark.sql.shuffle.partitions", "8").getOrCreate()
spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
spark.range(10).count()
start = time.monotonic()
segments = spark.read.option("basePath", f"s3a://fleet/{sys.argv[2]}/epochs").parquet(f"s3a://fleet/{sys.argv[2]}/epochs/*/*/*/segment-*.parquet")
sums = segments.groupBy("image", "event", "offset", "app").agg(F.sum("count").alias("count"))
sums.write.parquet(f"s3a://fleet/{sys.argv[2]}/sums")
print(json.dumps({"seconds": time.monotonic() - start}))
`;

await main(async () => {
  const { values } = parseArgs({ options: { 'host-days': { type: 'string', default: '4' }, rows: { type: 'string', default: '100000' }, rounds: { type: 'string', default: '3' } } });
  if (!process.env.DWELL) await build();
  await forSpark();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-spark-'));
  try {
    const db = join(folder, 'db');
    execFileSync('cargo', ['run', '-q', '--release', '-p', 'dwell-fleet', '--example', 'host_days', '--', db, values['host-days'], values.rows], { cwd: top, stdio: 'inherit' });
    const rows = 24 * Number(values['host-days']) * Number(values.rows);
    const sums = join(folder, 'sums.py');
    writeFileSync(sums, ownSums);
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
          const ours = await run(job, ['--db', 's3://fleet/p', '--dwell', dwell, '--today', '--tables', '', '--recordings', '24']);
          const own = await run(sums, [cluster.env.AWS_ENDPOINT_URL, 'p']);
          (results[`dwell, ${workers}`] ??= []).push(ours.roll_ups.seconds);
          (results[`Spark, ${workers}`] ??= []).push(own.seconds);
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
