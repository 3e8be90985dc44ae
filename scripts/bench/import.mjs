// Shared parts of the import benches: a recording of compilers, and commands measured in pairs.

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Stop, target, top } from '../step.mjs';
import { median, spread, table } from './figures.mjs';
import { makeLargeProgram } from './large.mjs';

const folder = join(target, 'bench');
export const samplesMin = 1_000_000;

/**
 * Returns seconds, CPU seconds, peak MiB and the output of a command. perf stat measures nanoseconds from the start of the
 * command to its end, while time has hundredths of a second, and the time that this process takes to start another one is not
 * included.
 */
export function measure(command, scratch) {
  const [times, peaks] = [join(scratch, 'times'), join(scratch, 'peaks')];
  const events = 'duration_time,user_time,system_time';
  const stat = ['stat', '-x,', '-o', times, '-e', events, '--', '/usr/bin/time', '-q', '-o', peaks, '-f', '%M'];
  const { status, stdout, stderr } = spawnSync('perf', [...stat, ...command], { encoding: 'utf8', maxBuffer: 1 << 30, cwd: top });
  if (status !== 0) throw new Stop(`${command.join(' ')}: status ${status}: ${stderr.trim().split('\n').pop()}`);
  const told = readFileSync(times, 'utf8');
  // A missing count means that the time was too short for the system's clock.
  const seconds = (event) => Number(told.match(new RegExp(`^(\\d+),ns,${event},`, 'm'))?.[1] ?? 0) / 1e9;
  const [wall, user, system] = events.split(',').map(seconds);
  return { wall, cpu: user + system, peak: Number(readFileSync(peaks, 'utf8')) / 1024, stdout };
}

/** Returns the number of samples in a perf.data file. */
export function samplesOf(file) {
  const { stdout } = spawnSync('perf', ['report', '-i', file, '--stats', '--stdio'], { encoding: 'utf8', maxBuffer: 1 << 28 });
  return Number(stdout.match(/SAMPLE events:\s+(\d+)/)?.[1] ?? 0);
}

/** Returns a recording of compilers on every CPU with a million samples. It is made once and kept below target/. */
export function recording() {
  const file = join(folder, 'compilers.data');
  if (existsSync(file)) return file;
  mkdirSync(folder, { recursive: true });
  const build = 'while :; do cargo build -q -p dwell-query -p dwell-exchange; rm -rf "$CARGO_TARGET_DIR"; done';
  const env = { ...process.env, CARGO_TARGET_DIR: join(folder, 'compilers') };
  const made = `${file}.new`;
  console.log('recording compilers until there are a million samples: about three minutes …');
  // The rate gives 10,000 samples per second on two CPUs.
  const record = ['record', '-q', '-B', '-a', '-e', 'cpu-clock', '-F', '4999', '-o', made, '--', 'timeout', '-k', '1', '125', 'bash', '-c', build];
  spawnSync('perf', record, { env, cwd: top, stdio: 'ignore' });
  const found = samplesOf(made);
  if (found < samplesMin) throw new Stop(`perf record left ${found} samples in ${made}`);
  renameSync(made, file);
  return file;
}

/** Returns the program with more than 100 MB of debug information. It is made once and kept below target/. */
export function largeProgram() {
  const made = join(folder, 'large');
  const program = join(made, 'large');
  if (existsSync(program)) return program;
  rmSync(made, { recursive: true, force: true });
  mkdirSync(made, { recursive: true });
  console.log('making a program with more than 100 MB of debug information: about half a minute …');
  return makeLargeProgram(made).program;
}

/** Returns a source with one function of more than 5,000 instructions and a short one. */
function longSource() {
  const steps = Array.from({ length: 700 }, (_, n) => `    if (x & ${1 << (n % 20)})\n      x = x * ${2 * n + 3} + p[(x + ${n}) & 1023];\n    else\n      x ^= p[(x >> 3) & 1023] + ${n};`);
  return `__attribute__((noinline)) unsigned long lengthy(const unsigned long *p, unsigned long x, long n) {\n  while (n-- > 0) {\n${steps.join('\n')}\n  }\n  return x;\n}\n
__attribute__((noinline)) unsigned long short_one(const unsigned long *p, unsigned long x, long n) {\n  while (n-- > 0)\n    x = x * 5 + p[x & 1023];\n  return x;\n}\n
int main(void) {\n  unsigned long p[1024] = {1, 7, 9};\n  return (int)(lengthy(p, 3, 200000) + short_one(p, 3, 100000000)) & 1;\n}\n`;
}

/** Records a suite of programs (Debian's compiler, interpreters and tools) and a long procedure. */
export function suite(scratch) {
  const path = (name) => join(scratch, name);
  writeFileSync(path('long.c'), longSource());
  execFileSync('gcc', ['-O1', '-g', '-o', path('long'), path('long.c')]);
  const python = 'import json,re;d=[{"a":i,"b":str(i)} for i in range(60000)];s=json.dumps(d);json.loads(s);len(re.findall("[0-9]+",s))';
  const perl = 'my %h; for my $i (1..400000) { $h{$i % 977} .= chr(65 + $i % 26) } print length(join("", sort values %h)), "\n"';
  const lines = [
    `gcc -O2 -S -o ${path('long.s')} ${path('long.c')}`,
    `python3 -c '${python}'`,
    `perl -e '${perl}'`,
    `git -C ${top} log --stat -n 200`,
    `seq 1 300000 | sort -R | gzip -9 | xz -2 | wc -c`,
    `seq 1 300000 | awk '{ s[$1 % 97] += $1 } END { for (k in s) print k, s[k] }'`,
    `objdump -d ${path('long')}`,
    path('long'),
  ];
  const file = path('suite.data');
  const record = ['record', '-q', '-B', '-e', 'cpu-clock:u', '-F', '4999', '-o', file, '--', 'bash', '-c', lines.join('\n')];
  execFileSync('perf', record, { stdio: ['ignore', 'ignore', 'inherit'] });
  return { file, long: { name: 'lengthy', other: 'short_one' } };
}

/** Measures our commands, whose times are added, against the other tool's, alternating. */
export function beside({ title, ours, theirs, rounds, scratch, faster, smaller }) {
  const results = { ours: [], theirs: [] };
  for (let round = 0; round < rounds; round++) {
    const all = ours(round).map((command) => measure(command, scratch));
    const sum = (key) => all.reduce((total, one) => total + one[key], 0);
    results.ours.push({ wall: sum('wall'), cpu: sum('cpu'), peak: Math.max(...all.map((one) => one.peak)) });
    results.theirs.push(measure(theirs, scratch));
  }
  const ratio = (key) => median(results.theirs.map((one, round) => one[key] / results.ours[round][key]));
  const row = (name, of) => [name, ...[['wall', 3, 's'], ['cpu', 3, 's'], ['peak', 1, 'MiB']].map(([key, digits, unit]) => spread(of.map((one) => one[key]), digits, unit))];
  const mark = (value, bar) => `${value.toFixed(1)}× ${bar === undefined ? '' : value >= bar ? `✓ ≥ ${bar}` : `✗ ≥ ${bar}`}`;
  table(title, [
    ['', 'wall', 'CPU', 'peak memory'],
    row('dwell', results.ours),
    row(theirs.slice(0, 2).join(' '), results.theirs),
    ['ratio', mark(ratio('wall'), faster), mark(ratio('cpu'), faster), mark(ratio('peak'), smaller)],
  ]);
}
