// `npm run bench:fleet [-- --host-days N --rows N --recordings N --rounds N]`: what it costs to send recordings to a store on this machine (moto) and to read them
// there, beside the same question to the folder. The recordings are simulated (core/fleet/examples/host_days.rs).
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { build, dwell, main } from './build.mjs';
import { target, top } from './step.mjs';

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const range = (values, digits) => `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)} to ${Math.max(...values).toFixed(digits)})`;

await main(async () => {
  const { values } = parseArgs({ options: { 'host-days': { type: 'string', default: '1' }, rows: { type: 'string', default: '130000' }, recordings: { type: 'string', default: '24' }, rounds: { type: 'string', default: '5' } } });
  if (!process.env.DWELL) await build();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-fleet-'));
  const free = createServer();
  const port = await new Promise((done) => free.listen(0, '127.0.0.1', () => done(free.address().port)));
  await new Promise((done) => free.close(done));
  const store = spawn(join(target, 'moto/bin/moto_server'), ['-H', '127.0.0.1', '-p', String(port)], { stdio: 'ignore' });
  try {
    const db = join(folder, 'db');
    execFileSync('cargo', ['run', '-q', '--release', '-p', 'dwell-fleet', '--example', 'host_days', '--', db, values['host-days'], values.rows, values.recordings], { cwd: top, stdio: 'inherit' });
    const env = { ...process.env, AWS_ENDPOINT_URL: `http://127.0.0.1:${port}`, AWS_ACCESS_KEY_ID: 'a', AWS_SECRET_ACCESS_KEY: 'b', AWS_REGION: 'us-east-1', XDG_CACHE_HOME: join(folder, 'cache'), XDG_STATE_HOME: join(folder, 'state') };
    /** Runs dwell; returns its wall and CPU time in seconds and its greatest memory in MiB, which Python can see of a child. */
    const run = (...words) => {
      const timed = 'import resource,subprocess,sys,time\nb=resource.getrusage(resource.RUSAGE_CHILDREN)\nt=time.time()\ns=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE)\nr=resource.getrusage(resource.RUSAGE_CHILDREN)\nsys.stdout.buffer.write(s.stdout)\nprint("\\n%f %f %f"%(time.time()-t,r.ru_utime+r.ru_stime-b.ru_utime-b.ru_stime,r.ru_maxrss/1024))\nsys.exit(s.returncode)';
      const { status, stdout, stderr } = spawnSync('python3', ['-c', timed, dwell, ...words], { env, encoding: 'utf8', maxBuffer: 2 ** 28 });
      if (status !== 0) throw new Error(stderr);
      const [wall, cpu, mib] = stdout.trim().split('\n').at(-1).split(' ').map(Number);
      return { wall, cpu, mib };
    };
    while (await fetch(`http://127.0.0.1:${port}/fleet`, { method: 'PUT' }).then(({ ok }) => !ok, () => true)) await pause(100);
    const results = { push: [], again: [], cold: [], warm: [], folder: [], 'roll-up': [], 'images, cold': [], 'images, warm': [], 'functions, cold': [], 'functions, warm': [], 'totals, cold': [], 'totals, warm': [] };
    const totals = ['sql', 'SELECT path, sum(count) AS n FROM totals GROUP BY path ORDER BY n DESC LIMIT 20'];
    /** Runs a question with an empty cache, and again. */
    const twice = (name, place, words) => {
      rmSync(env.XDG_CACHE_HOME, { recursive: true, force: true });
      for (const state of ['cold', 'warm']) results[`${name}, ${state}`].push(run(...words, '--db', place));
    };
    const question = ['--by', 'image', '--epoch', 'all'];
    for (let round = 0; round < Number(values.rounds); round++) {
      const place = `s3://fleet/round-${round}`;
      results.push.push(run('push', '--db', db, '--to', place));
      results.again.push(run('push', '--db', db, '--to', place));
      results.cold.push(run('top', '--db', place, ...question));
      results.warm.push(run('top', '--db', place, ...question));
      results.folder.push(run('top', '--db', db, ...question));
      results['roll-up'].push(run('roll-up', '--db', place, '--today'));
      twice('images', place, ['top', ...question]);
      twice('functions', place, ['top', '--epoch', 'all']);
      twice('totals', place, totals);
    }
    const bytes = Number(execFileSync('du', ['-sb', join(db, 'epochs')], { encoding: 'utf8' }).split('\t')[0]);
    console.log(`${values['host-days']} host-days, ${Number(values.recordings) * Number(values['host-days'])} recordings, ${(bytes / 1e6).toFixed(1)} MB`);
    for (const [name, runs] of Object.entries(results)) console.log(`${name}: ${range(runs.map(({ wall }) => wall), 3)} s, CPU ${range(runs.map(({ cpu }) => cpu), 3)} s, ${median(runs.map(({ mib }) => mib)).toFixed(0)} MiB`);
  } finally {
    store.kill();
    rmSync(folder, { recursive: true, force: true });
  }
});
