// `npm run bench:stacks [-- --rounds N]`: call stacks against perf's, in turns: which share is complete, what recording costs, and how
// many bytes it stores. Programs that are not installed are left out, with a line that says so.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { build, dwell, main } from './build.mjs';
import { Stop, top } from './step.mjs';

/** Clock ticks of /proc/PID/stat per second. */
const TICKS = 100;

const python = `import re, json, hashlib
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
for _ in range(ROUNDS):
    fib(25)
    s = json.dumps([{'a': i, 'b': str(i) * 3} for i in range(30000)]); json.loads(s)
    re.findall(r'(\\d+)":', s); sorted(str(i) for i in range(100000))
    for i in range(30): hashlib.sha256(s.encode()).hexdigest()
`;
const go = `package main
import ("fmt"; "sort"; "strings"; "sync")
func fib(n int) int { if n < 2 { return n }; return fib(n-1) + fib(n-2) }
func work() int { m := map[string]int{}; for i := 0; i < 300000; i++ { m[strings.Repeat("a", i%7)+fmt.Sprint(i)] = i }
	ks := []string{}; for x := range m { ks = append(ks, x) }; sort.Strings(ks); return len(ks) + fib(32) }
func main() { var wg sync.WaitGroup; for k := 0; k < 4; k++ { wg.Add(1); go func() { defer wg.Done(); fmt.Println(work()) }() }; wg.Wait() }
`;
const node = `const f = (n) => n < 2 ? n : f(n - 1) + f(n - 2); f(35); const o = JSON.parse(JSON.stringify(Array.from({ length: 300000 }, (_, i) => ({ i, s: 'x' + i }))));
require('zlib').gzipSync(Buffer.from(JSON.stringify(o)))`;
const sql = `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 600000) SELECT count(DISTINCT i % 1000), sum(length(printf('%d', i * 7))) FROM c ORDER BY 1;`;

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const has = (program) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0;

/** The programs whose stacks are compared: in C, C++, Rust, Go, and interpreters with and without generated code. */
function programs(folder) {
  writeFileSync(join(folder, 'work.py'), python.replace('ROUNDS', '6'));
  writeFileSync(join(folder, 'work.go'), go);
  const all = [
    ['python3', '/usr/bin/python3', [join(folder, 'work.py')]],
    ['perl', 'perl', ['-e', 'my %h; for (1..3000000) { $h{$_ % 1000} .= "a" if $_ % 3 } print length join ",", values %h']],
    ['git', 'git', ['-C', top, 'log', '--stat', '-n', '300']],
    ['sqlite3', 'sqlite3', [':memory:', sql]],
    ['C++ (cc1plus)', 'g++', ['-O2', '-S', '-x', 'c++', '-o', '/dev/null', join(folder, 'work.cc')]],
    ['Rust (dwell)', dwell, ['--db', join(folder, 'seen'), 'top', '--json', '-n', '0']],
    ['node', process.execPath, ['-e', node]],
  ];
  writeFileSync(join(folder, 'work.cc'), '#include <algorithm>\n#include <iostream>\n#include <map>\n#include <regex>\nint main() { std::map<std::string, std::regex> m; std::cout << m.size(); }\n');
  if (has('go') && spawnSync('go', ['build', '-o', join(folder, 'go-work'), join(folder, 'work.go')]).status === 0) all.push(['Go', join(folder, 'go-work'), []]);
  return all.filter(([name, program]) => {
    const is = existsSync(program) || has(program);
    if (!is) console.log(`${name}: left out, since ${program} is not installed`);
    return is;
  });
}

function must(command, words) {
  const { status, stderr, error } = spawnSync(command, words, { encoding: 'utf8', stdio: ['ignore', 'ignore', 'pipe'], maxBuffer: 2 ** 28 });
  if (error || status !== 0) throw new Stop(`${command} ${words.join(' ')} ended with ${status}: ${error?.message ?? stderr}`);
}

/** Which part of a program's stacks is complete, by us. */
function completeness(folder, [name, program, words]) {
  const database = join(folder, 'complete');
  rmSync(database, { recursive: true, force: true });
  must(dwell, ['--db', database, 'record', '--', program, ...words]);
  const [epoch] = readdirSync(join(database, 'epochs'));
  const { samples, incomplete } = JSON.parse(readFileSync(join(database, 'epochs', epoch, 'epoch.json'), 'utf8')).call_stacks;
  const broken = Object.values(incomplete).reduce((sum, n) => sum + n, 0);
  const causes = Object.entries(incomplete).map(([cause, n]) => `${n} ${cause}`);
  console.log(`${name.padEnd(14)} ${(100 * (1 - broken / Math.max(samples, 1))).toFixed(1).padStart(5)} % of ${samples} stacks complete${causes.length > 0 ? ` (${causes.join(', ')})` : ''}`);
}

function bytes(path) {
  if (!existsSync(path)) return 0;
  return statSync(path).isDirectory() ? readdirSync(path).reduce((sum, name) => sum + bytes(join(path, name)), 0) : statSync(path).size;
}

/** CPU time of a running process in seconds. */
function cpuSeconds(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/.*\) /, '').split(' ');
    return (Number(fields[11]) + Number(fields[12])) / TICKS;
  } catch {
    return 0;
  }
}

/** Records a running program for some seconds. Returns the recorder's CPU time on the way, without its start and end, and the bytes stored. */
async function cost(folder, words, stored) {
  rmSync(stored, { recursive: true, force: true });
  const target = spawn('/usr/bin/python3', ['-c', python.replace('ROUNDS', '10000')], { stdio: 'ignore' });
  await new Promise((resolve) => setTimeout(resolve, 500));
  const [command, ...rest] = words.map((word) => (word === 'PID' ? String(target.pid) : word));
  const recorder = spawn(command, rest, { stdio: 'ignore' });
  const ended = new Promise((resolve) => recorder.once('exit', resolve));
  await new Promise((resolve) => setTimeout(resolve, 2000));
  const before = cpuSeconds(recorder.pid);
  await new Promise((resolve) => setTimeout(resolve, 10_000));
  const spent = cpuSeconds(recorder.pid) - before;
  target.kill('SIGKILL');
  await ended;
  return { spent: spent / 10, bytes: bytes(stored) };
}

await main(async () => {
  const { values } = parseArgs({ options: { rounds: { type: 'string', default: '3' } } });
  await build();
  const folder = mkdtempSync(join(tmpdir(), 'dwell-bench-stacks-'));
  try {
    must(dwell, ['--db', join(folder, 'seen'), 'record', '--', '/usr/bin/python3', '-c', python.replace('ROUNDS', '2')]);
    for (const program of programs(folder)) completeness(folder, program);
    const [database, perfData] = [join(folder, 'db'), join(folder, 'perf.data')];
    const ours = (hz) => [dwell, '--db', database, 'record', '--no-odometers', '-F', '500', '--stacks', hz, '-p', 'PID'];
    const perf = (...more) => ['perf', 'record', '-q', '-e', 'cpu-clock', '-F', '500', ...more, '-o', perfData, '-p', 'PID'];
    const ways = {
      'dwell --stacks 0': [ours('0'), database],
      'dwell --stacks 500': [ours('500'), database],
      perf: [perf(), perfData],
      'perf --call-graph dwarf': [perf('--call-graph', 'dwarf,8192'), perfData],
    };
    const known = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const [way, [words, stored]] of Object.entries(ways)) known[way].push(await cost(folder, words, stored));
    }
    for (const [way, runs] of Object.entries(known)) {
      const spent = runs.map((run) => 1000 * run.spent);
      const of = `${median(spent).toFixed(1)} ms of CPU time a second (${Math.min(...spent).toFixed(1)} to ${Math.max(...spent).toFixed(1)})`;
      console.log(`${way.padEnd(24)} ${of}, ${(median(runs.map((run) => run.bytes)) / 1024).toFixed(0)} KiB stored in some 12 s`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
