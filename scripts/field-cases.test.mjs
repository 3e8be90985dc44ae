// Tests cases that users have run into, here or with other profilers: each has a real program, the commands of dwell that a user
// would run, and the right answer. `DWELL=FILE node --test scripts/field-cases.test.mjs` tests another binary.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { target, top } from './step.mjs';

const dwell = process.env.DWELL ?? [join(target, 'release/dwell'), join(target, 'debug/dwell')].find(existsSync);
const sources = join(top, 'test-fixtures/field-cases');
const isRoot = process.getuid() === 0;

/** Returns whether a program is on PATH. */
const has = (program) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0;
const lacks = (...programs) => {
  const missing = programs.find((program) => !has(program));
  return missing ? `no ${missing}` : false;
};

/** Creates a folder and a database for one case. */
class Case {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'dwell-case-'));
  }

  path(name) {
    return join(this.folder, name);
  }

  /** Runs a program there; returns its output and how it ended. */
  run(program, ...words) {
    const { status, stdout, stderr } = spawnSync(program, words, { cwd: this.folder, encoding: 'utf8', maxBuffer: 1 << 28 });
    return { status, stdout, stderr };
  }

  dwell(...words) {
    return this.run(dwell, '--db', this.path('db'), ...words);
  }

  /** Runs a program that must succeed. */
  told(...words) {
    const done = this.dwell(...words);
    assert.equal(done.status, 0, `dwell ${words.join(' ')}: ${done.stderr}`);
    return done;
  }

  json(...words) {
    return JSON.parse(this.told('--json', ...words).stdout);
  }

  /** Compiles a source of this folder. */
  build(source, ...options) {
    const program = this.path(source.replace(/\.\w+$/, ''));
    execFileSync(source.endsWith('.cc') ? 'g++' : 'gcc', ['-O2', '-o', program, ...options, join(sources, source)], { cwd: this.folder });
    return program;
  }

  /** Returns shares of procedures in percent of all samples, by name. */
  shares() {
    const { rows } = this.json('top', '--limit', '0');
    return (name) => 100 * rows.filter((row) => row.procedure === name).reduce((sum, row) => sum + row.share, 0);
  }
}

/** Defines a case. Its folder is removed afterwards. */
function fieldCase(name, skip, body) {
  test(name, { skip }, () => {
    const one = new Case();
    try {
      body(one);
    } finally {
      rmSync(one.folder, { recursive: true, force: true });
    }
  });
}

const near = (value, right, tolerance, what) => assert.ok(Math.abs(value - right) <= tolerance, `${what}: ${value}, not about ${right}`);

/** Returns the samples of each event by `perf script`, which prints a line for each. */
function samplesByPerf(one, file) {
  const { stdout } = one.run('perf', 'script', '-i', file, '-G', '-F', 'event');
  const events = stdout.split('\n').map((line) => line.trim().replace(/:$/, '')).filter(Boolean);
  return events.reduce((counts, event) => ({ ...counts, [event]: (counts[event] ?? 0) + 1 }), {});
}

/** Returns the samples of each event that an import found; without events that have none, since perf prints none of them. */
function imported(one, file) {
  one.told('import', file);
  const { events } = one.json('epoch', 'list').epochs.at(-1);
  const counts = Object.entries(events).map(([event, { samples }]) => [event, samples]);
  return Object.fromEntries(counts.filter(([, samples]) => samples > 0));
}

fieldCase('system calls of a command that is followed do not fail', false, (one) => {
  const program = one.build('timeouts.c');
  assert.equal(one.run(program, '1').status, 0);
  assert.equal(one.dwell('record', '--paths', '10', '--', program, '4').status, 0);
});

fieldCase('record ends as its command does', false, (one) => {
  const status = (script) => one.dwell('record', '--', 'sh', '-c', script).status;
  assert.deepEqual([0, 1, 7].map((n) => status(`exit ${n}`)), [0, 1, 7]);
  assert.equal(status('kill -SEGV $$'), 128 + 11);
  assert.equal(one.dwell('record', '--', '/no/such/program').status, 127);
});

fieldCase('generated code of forked workers has the names of each', false, (one) => {
  const { stdout } = one.told('record', '--', one.build('prefork.c'), 'parse', '540', 'render', '180', 'query', '360');
  const used = [...stdout.matchAll(/^(\w+) (\d+)$/gm)].map(([, name, time]) => [name, Number(time)]);
  assert.deepEqual(used.map(([name]) => name).sort(), ['parse', 'query', 'render']);
  const total = used.reduce((sum, [, time]) => sum + time, 0);
  const share = one.shares();
  const found = used.map(([name]) => `${name} ${share(name).toFixed(1)} %`).join(', ');
  for (const [name, time] of used) near(share(name), (100 * time) / total, 8, `${name} (${found})`);
});

fieldCase('events that differ in their modifiers stay apart', lacks('perf'), (one) => {
  const program = one.build('functions.c');
  const recorded = one.run('perf', 'record', '-q', '-o', 'p.data', '-e', 'cpu-clock', '-e', 'cpu-clock:u', '--', program, '2000');
  assert.equal(recorded.status, 0, recorded.stderr);
  const right = samplesByPerf(one, 'p.data');
  assert.equal(Object.keys(right).length, 2, JSON.stringify(right));
  assert.deepEqual(imported(one, 'p.data'), right);
});

fieldCase('groups of events have all their samples', lacks('perf'), (one) => {
  const program = one.build('functions.c');
  const recorded = one.run('perf', 'record', '-q', '-g', '-o', 'p.data', '-e', '{cpu-clock,page-faults}:S', '--', program, '2000');
  assert.equal(recorded.status, 0, recorded.stderr);
  const right = samplesByPerf(one, 'p.data');
  const found = imported(one, 'p.data');
  assert.ok(right['cpu-clock'] > 100, JSON.stringify(right));
  assert.equal(found['cpu-clock'], right['cpu-clock']);
});

fieldCase('a stream with tracepoints has all its samples', isRoot ? lacks('perf') : 'tracepoints need root', (one) => {
  const program = one.build('functions.c');
  const recorded = one.run('sh', '-c', `perf record -q -e cpu-clock,sched:sched_switch -o - -- ${program} 2000 >p.data`);
  if (recorded.status !== 0) return assert.match(recorded.stderr, /tracefs|sched_switch/);
  assert.deepEqual(imported(one, 'p.data'), samplesByPerf(one, 'p.data'));
});

for (const [tool, ending] of [['gzip', 'gz'], ['xz', 'xz'], ['zstd', 'zst']]) {
  fieldCase(`a file packed by ${tool} is read`, lacks('perf', tool), (one) => {
    one.run('perf', 'record', '-q', '-o', 'p.data', '-e', 'cpu-clock', '--', one.build('functions.c'), '2000');
    assert.equal(one.run(tool, '-k', 'p.data').status, 0);
    const plain = imported(one, 'p.data');
    assert.deepEqual(imported(one, `p.data.${ending}`), plain);
  });
}

fieldCase('32-bit programs have their names', lacks('perf'), (one) => {
  const program = 'void _start(void) { for (volatile unsigned i = 0; i < 200000000; i++) ; __asm__("mov $1,%eax; xor %ebx,%ebx; int $0x80"); }\n';
  writeFileSync(one.path('small.c'), program);
  const words = ['-m32', '-g', '-O1', '-nostdlib', '-static', '-fno-pie', '-no-pie', '-Wl,--build-id', 'small.c', '-o', 'small'];
  const built = one.run('gcc', ...words);
  assert.equal(built.status, 0, built.stderr);
  one.run('perf', 'record', '-q', '-o', 'p.data', '-e', 'cpu-clock', '--', './small');
  const imported = one.told('import', 'p.data');
  assert.doesNotMatch(imported.stderr, /another build/);
  near(one.shares()('_start'), 100, 10, '_start');
});

const varint = (n) => (n < 128 ? [n] : [(n % 128) | 128, ...varint(Math.floor(n / 128))]);

/** Returns a field of a protocol buffer: a number, or bytes (a text, a message, packed numbers). */
function field(number, value) {
  if (typeof value === 'number') return [...varint(number * 8), ...varint(value)];
  const bytes = typeof value === 'string' ? [...Buffer.from(value)] : value.flat(Infinity);
  return [...varint(number * 8 + 2), ...varint(bytes.length), ...bytes];
}

fieldCase('a profile of pprof keeps its names without the program', false, (one) => {
  // The form in which Go's runtime writes it (profile.proto): samples, a mapping, locations, functions; texts by
  // number.
  const texts = ['', 'samples', 'count', 'cpu', 'nanoseconds', '/nowhere/service', 'main.burn', 'main.rest', '/src/main.go'];
  const type = (kind, unit) => [field(1, kind), field(2, unit)];
  const sample = (location, count) => [field(1, [location]), field(2, [...varint(count), ...varint(count * 10000000)])];
  const place = (id, address, line) => [field(1, id), field(2, 1), field(3, address), field(4, [field(1, id), field(2, line)])];
  const procedure = (id, name) => [field(1, id), field(2, name), field(3, name), field(4, 8)];
  const profile = [
    field(1, type(1, 2)), field(1, type(3, 4)),
    field(2, sample(1, 90)), field(2, sample(2, 10)),
    field(3, [field(1, 1), field(2, 0x400000), field(3, 0x500000), field(5, 5)]),
    field(4, place(1, 0x401010, 12)), field(4, place(2, 0x402020, 30)),
    field(5, procedure(1, 6)), field(5, procedure(2, 7)),
    ...texts.map((text) => field(6, text)),
    field(11, type(3, 4)), field(12, 10000000),
  ];
  writeFileSync(one.path('cpu.pprof'), gzipSync(Buffer.from(profile.flat(Infinity))));
  one.told('import', 'cpu.pprof');
  const share = one.shares();
  near(share('main.burn'), 90, 1, 'main.burn');
  near(share('main.rest'), 10, 1, 'main.rest');
  assert.match(one.told('top', '--by', 'line').stdout, /main\.go/);
});

fieldCase('a program under a root of its own has its names', isRoot ? false : 'chroot needs root', (one) => {
  const program = one.build('functions.c', '-static', '-fno-ipa-cp');
  mkdirSync(one.path('root'));
  copyFileSync(program, one.path('root/app'));
  execFileSync('chmod', ['755', one.path('root/app')]);
  one.told('record', '--', 'chroot', one.path('root'), '/app', '40000');
  const share = one.shares();
  near(share('eight'), 53, 8, 'eight');
  near(share('four'), 27, 8, 'four');
});

fieldCase('names of static functions come from .gnu_debugdata', lacks('xz', 'objcopy'), (one) => {
  const full = one.build('functions.c', '-g', '-fno-ipa-cp');
  const script = `nm -D "$1" --format=posix --defined-only | cut -d' ' -f1 | sort >dynamic
    nm "$1" --format=posix --defined-only | awk '$2 ~ /[TtD]/ { print $1 }' | sort >code
    comm -13 dynamic code >keep
    objcopy --only-keep-debug "$1" debug && objcopy -S --remove-section .comment --keep-symbols=keep debug small && xz small
    cp "$1" stripped && strip --strip-all stripped && objcopy --add-section .gnu_debugdata=small.xz stripped`;
  const made = one.run('sh', '-ec', script, 'sh', full);
  assert.equal(made.status, 0, made.stderr);
  one.told('record', '--', one.path('stripped'), '40000');
  near(one.shares()('four'), 27, 8, 'four');
});

fieldCase('inlined calls come from split debug information', false, (one) => {
  const object = one.path('inlined.o');
  execFileSync('g++', ['-g', '-O2', '-gsplit-dwarf', '-c', '-o', object, join(sources, 'inlined.cc')], { cwd: one.folder });
  execFileSync('g++', [object, '-o', one.path('inlined')]);
  assert.ok(existsSync(one.path('inlined.dwo')));
  one.told('record', '--', one.path('inlined'), '10');
  assert.match(one.told('export', '-f', 'folded').stdout, /hash_all\(unsigned int\);Hash::add/);
  const listing = one.told('annotate', 'hash_all');
  assert.doesNotMatch(listing.stdout + listing.stderr, /split debug information is missing/);
});

fieldCase('advice names what would help', isRoot ? false : 'asks as root', (one) => {
  const paranoid = Number(readFileSync('/proc/sys/kernel/perf_event_paranoid', 'utf8'));
  const refused = one.run(one.build('no-perf-events.c'), dwell, '--db', one.path('db'), 'record', '--', 'true');
  if (refused.status === 99) return;
  assert.equal(refused.status, 125, refused.stderr);
  assert.match(refused.stderr, /seccomp/);
  assert.doesNotMatch(refused.stderr, new RegExp(`run as root|perf_event_paranoid ?<?= ?${paranoid}\\b`));
});

fieldCase("callgrind's reader reads our export", lacks('callgrind_annotate'), (one) => {
  one.told('record', '--', one.build('functions.c'), '2000');
  one.told('export', '-f', 'callgrind', '-o', 'p.callgrind');
  const read = one.run('callgrind_annotate', 'p.callgrind');
  assert.equal(read.status, 0, read.stderr);
  assert.doesNotMatch(read.stdout + read.stderr, /WARNING|malformed/);
  assert.match(read.stdout, /eight/);
});
