// A Trino server on this machine, which reads a store through its Hive connector, for the test of what docs/fleet.md says of it.
import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { trino } from './needs.mjs';
import { freePort } from './spark.mjs';

/**
 * Starts a server and waits for it.
 * @param {{ folder: string, store: string }} options `folder` gets all that it writes, `store` is the URL of a store that takes any credentials
 */
export async function startTrino({ folder, store }) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  mkdirSync(join(folder, 'etc/catalog'), { recursive: true });
  const settings = {
    'etc/config.properties': ['coordinator=true', 'node-scheduler.include-coordinator=true', `http-server.http.port=${port}`, `discovery.uri=${url}`, `catalog.config-dir=${join(folder, 'etc/catalog')}`, `plugin.dir=${join(trino, 'plugin')}`],
    'etc/catalog/hive.properties': ['connector.name=hive', 'hive.metastore=file', `hive.metastore.catalog.dir=file://${join(folder, 'metastore')}`, `hive.s3.endpoint=${store}`, 'hive.s3.path-style-access=true', 'hive.s3.ssl.enabled=false', 'hive.s3.aws-access-key=key', 'hive.s3.aws-secret-key=secret'],
  };
  for (const [name, lines] of Object.entries(settings)) writeFileSync(join(folder, name), `${lines.join('\n')}\n`);
  const properties = { 'node.environment': 'test', 'node.id': 'one', 'node.data-dir': join(folder, 'data'), config: join(folder, 'etc/config.properties') };
  const words = ['-Xmx1500m', '-cp', join(trino, 'lib/*'), ...Object.entries(properties).map(([name, value]) => `-D${name}=${value}`), 'io.trino.server.TrinoServer'];
  const child = spawn('java', words, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
  let told = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes) => (told += bytes));
  for (let tries = 0; !told.includes('SERVER STARTED'); tries++) {
    if (tries > 1200 || child.exitCode !== null) throw new Error(`Trino does not start: ${told.slice(-2000)}`);
    await pause(100);
  }
  /** Runs a statement; returns its rows. */
  const ask = async (statement) => {
    const headers = { 'X-Trino-User': 'dwell', 'X-Trino-Catalog': 'hive', 'X-Trino-Schema': 'default' };
    let answer = await (await fetch(`${url}/v1/statement`, { method: 'POST', headers, body: statement })).json();
    const rows = [];
    for (;;) {
      if (answer.error) throw new Error(answer.error.message);
      rows.push(...(answer.data ?? []));
      if (!answer.nextUri) return rows;
      await pause(50);
      answer = await (await fetch(answer.nextUri)).json();
    }
  };
  // It has started before it knows itself as a node that runs queries.
  const isReady = () => ask('SELECT count(*) FROM hive.information_schema.schemata').then(() => true, () => false);
  for (let tries = 0; !(await isReady()); tries++) {
    if (tries > 100) throw new Error(`Trino runs no query: ${told.slice(-2000)}`);
    await pause(200);
  }
  return { ask, stop: () => child.kill('SIGKILL') };
}
