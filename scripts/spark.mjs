// A Spark cluster on this machine – a master and workers, each a process of its own – beside an object store, for the test and the bench of fleet/.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { target, top } from './step.mjs';

const venv = join(target, 'spark');
/** Hadoop's client of S3, of the version that this Spark is built with. */
const packages = 'org.apache.hadoop:hadoop-aws:3.5.0';

/** Returns a port that nothing listens on. */
export async function freePort() {
  const server = createServer();
  const port = await new Promise((done) => server.listen(0, '127.0.0.1', () => done(server.address().port)));
  await new Promise((done) => server.close(done));
  return port;
}

/** Waits until something listens on a port. */
async function answered(port, what) {
  for (let tries = 0; tries < 300; tries++) {
    if (await fetch(`http://127.0.0.1:${port}/`).then(() => true, () => false)) return;
    await pause(100);
  }
  throw new Error(`${what} does not answer`);
}

/**
 * Starts a store with an empty bucket `fleet`, and a cluster.
 * @param {{ folder: string, workers: number }} options `folder` gets all that they write; each worker has one core
 */
export async function startCluster({ folder, workers }) {
  const home = spawnSync(join(venv, 'bin/python'), ['-c', 'import os, pyspark; print(os.path.dirname(pyspark.__file__))'], { encoding: 'utf8' }).stdout.trim();
  const [storePort, port, page] = [await freePort(), await freePort(), await freePort()];
  const env = {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    SPARK_HOME: home,
    SPARK_LOCAL_IP: '127.0.0.1',
    PYSPARK_PYTHON: join(venv, 'bin/python'),
    AWS_ENDPOINT_URL: `http://127.0.0.1:${storePort}`,
    AWS_ACCESS_KEY_ID: 'key',
    AWS_SECRET_ACCESS_KEY: 'secret',
    AWS_REGION: 'us-east-1',
    XDG_CACHE_HOME: join(folder, 'cache'),
    XDG_STATE_HOME: join(folder, 'state'),
  };
  const children = [spawn(join(target, 'moto/bin/moto_server'), ['-H', '127.0.0.1', '-p', String(storePort)], { stdio: 'ignore' })];
  const start = (name, words) => {
    const at = join(folder, name);
    mkdirSync(at, { recursive: true });
    const child = spawn(join(home, 'bin/spark-class'), words, { env, cwd: at, stdio: 'ignore' });
    children.push(child);
    return child;
  };
  start('master', ['org.apache.spark.deploy.master.Master', '--host', '127.0.0.1', '--port', String(port), '--webui-port', String(page)]);
  await answered(page, 'the master');
  const pages = [];
  const nodes = [];
  for (let number = 1; number <= workers; number++) {
    const own = await freePort();
    pages.push(own);
    nodes.push(start(`worker-${number}`, ['org.apache.spark.deploy.worker.Worker', '--cores', '1', '--memory', '1500m', '--host', '127.0.0.1', '--webui-port', String(own), '-d', join(folder, `work-${number}`), `spark://127.0.0.1:${port}`]));
  }
  for (const own of pages) await answered(own, 'a worker');
  await answered(storePort, 'the store');
  const made = await fetch(`http://127.0.0.1:${storePort}/fleet`, { method: 'PUT' });
  if (!made.ok) throw new Error(`the store makes no bucket: ${made.status}`);
  /** Submits a program; returns its status and outputs. It does not block, since others may be needed meanwhile. */
  const submit = (program, words) => {
    const child = spawn(join(home, 'bin/spark-submit'), ['--master', `spark://127.0.0.1:${port}`, '--packages', packages, '--conf', 'spark.executor.memory=1g', '--conf', 'spark.ui.enabled=false', program, ...words], { env, cwd: folder });
    const told = { stdout: '', stderr: '' };
    for (const stream of ['stdout', 'stderr']) child[stream].on('data', (bytes) => (told[stream] += bytes));
    return new Promise((done) => child.on('close', (status) => done({ status, ...told })));
  };
  const stop = () => {
    children.forEach((child) => child.kill('SIGKILL'));
    // Each worker has a copy of all packages for each program, 600 MB.
    for (let number = 1; number <= workers; number++) rmSync(join(folder, `work-${number}`), { recursive: true, force: true });
  };
  return { env, nodes, submit, stop };
}

/** The job of fleet/. */
export const job = join(top, 'fleet/dwell_spark.py');
