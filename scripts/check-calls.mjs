// `npm run check:calls [-- NAME…]`: the calls that `dwell callpaths` counts are the executions of the functions' first instruction that
// callgrind counts, exactly, for the functions that real programs call most. Programs do the same in each run. Functions that
// cannot be patched are named. Needs valgrind.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { table } from './bench/figures.mjs';
import { build, dwell, main } from './build.mjs';

const { positionals: chosen } = parseArgs({ allowPositionals: true });
const scratch = mkdtempSync(join(tmpdir(), 'dwell-calls-'));
/** Number of functions of a program. */
const functionsMax = 8;

const text = join(scratch, 'text');
const source = join(scratch, 'unit.c');
const own = (name) => join(import.meta.dirname, '..', 'core', 'probe', 'tests', name);

/** Name, pattern of the image's path, command. */
const programs = [
  ['python3', /python3\.11$/, ['/usr/bin/python3.11', '-SIc', 'print(sum(len(str(i)) for i in range(30000)), sorted({i * 7 % 1000 for i in range(5000)})[5])']],
  ['perl', /bin\/perl$/, ['perl', '-e', 'my %h; $h{$_ % 97} .= "x" for 1..20000; print scalar(keys %h), length($h{5}), "\n"']],
  ['bash', /bin\/bash$/, ['bash', '-c', 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); a[$i]=$i; done; echo ${#a[@]}']],
  ['sqlite3', /libsqlite3/, ['sqlite3', ':memory:', 'create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 3000) insert into t select x, x % 7 from c; select b, count(*), sum(a) from t group by b;']],
  ['jq', /libjq/, ['jq', '-n', '[range(2000) | {a: ., b: (. * . | tostring)}] | map(.b | length) | add']],
  ['xz', /liblzma/, ['xz', '-kc6', text]],
  ['zlib', /libz\.so/, ['/usr/bin/python3.11', '-SIc', `import zlib; d = open('${text}', 'rb').read(); print(zlib.decompress(zlib.compress(d, 6)) == d)`]],
  ['bzip2', /libbz2/, ['bzip2', '-kc', text]],
  ['cc1', /\/cc1$/, ['/usr/lib/gcc/x86_64-linux-gnu/12/cc1', '-quiet', '-O1', source, '-o', '/dev/null']],
  ['objdump', /libbfd|libopcodes/, ['objdump', '-d', '/usr/bin/env']],
  ['openssl', /libcrypto/, ['openssl', 'asn1parse', '-genstr', 'UTF8:dwell']],
  ['make', /bin\/make$/, ['make', '-n', '-f', join(scratch, 'Makefile')]],
  ['exceptions (C++)', /exceptions$/, [join(scratch, 'exceptions'), '3000']],
  ['dwell (Rust)', /\/dwell$/, [dwell, 'completions', 'bash']],
];

/** Runs a command and returns it. Its environment is that of callgrind's programs, which programs read. */
function run(command) {
  const own = { PATH: '/usr/bin:/bin', PWD: process.cwd(), LC_ALL: 'C', PYTHONHASHSEED: '0', PERL_HASH_SEED: '0' };
  const callgrinds = {
    LD_LIBRARY_PATH: '/usr/lib/debug',
    LD_PRELOAD: '/usr/libexec/valgrind/vgpreload_core-amd64-linux.so',
    GLIBCPP_FORCE_NEW: '1',
    GLIBCXX_FORCE_NEW: '1',
  };
  return spawnSync(command[0], command.slice(1), {
    encoding: 'latin1',
    maxBuffer: 1 << 30,
    input: 'x',
    env: command[0] === 'valgrind' ? own : { ...own, ...callgrinds },
  });
}

/** Returns the image's functions that are called most, and the executions of its instructions. */
function counted(image, command) {
  const file = join(scratch, 'callgrind.out');
  const options = ['--dump-instr=yes', '--skip-plt=no', '--compress-strings=no', '--compress-pos=no', '--demangle=no', `--callgrind-out-file=${file}`];
  const ended = run(['valgrind', '--tool=callgrind', ...options, ...command]);
  if (ended.status !== 0) throw new Error(`callgrind ${command[0]}: status ${ended.status}: ${ended.stderr.slice(-400)}`);
  const calls = new Map();
  const executions = new Map();
  let [object, called, name, isCall] = ['', '', '', false];
  for (const line of readFileSync(file, 'latin1').split('\n')) {
    if (line.startsWith('0x')) {
      // The costs of a call follow it; they are not the instruction's.
      const [address, , count] = line.split(' ');
      if (!isCall && image.test(object)) executions.set(Number(address), (executions.get(Number(address)) ?? 0) + Number(count));
      isCall = false;
    } else if (line.startsWith('ob=')) object = line.slice(3);
    else if (line.startsWith('cob=')) called = line.slice(4);
    else if (line.startsWith('cfn=')) name = line.slice(4);
    else if (line.startsWith('calls=')) {
      isCall = true;
      if (image.test(called || object) && !/^0x|['@(]|\.cold/.test(name)) calls.set(name, (calls.get(name) ?? 0) + Number.parseInt(line.slice(6), 10));
      called = '';
    }
  }
  const names = [...calls].sort((a, b) => b[1] - a[1]).slice(0, functionsMax).map(([each]) => each);
  return { names, executions };
}

/** Returns what Dwell counts of the functions of one name, or why it cannot. */
function probed(image, name, command) {
  const ended = run([dwell, 'callpaths', '-m', 'calls', '--json', name, '--', 'setarch', '-R', ...command]);
  const at = ended.stdout.lastIndexOf('{"schema"');
  const refusals = ended.stderr.split('\n').filter((line) => line.startsWith('dwell: ') && !line.includes('setarch'));
  if (at < 0) return { functions: [], refusals: refusals.slice(0, 1) };
  return { functions: JSON.parse(ended.stdout.slice(at)).functions.filter((each) => image.test(each.image)), refusals };
}

main(async () => {
  await build();
  try {
    writeFileSync(text, Array.from({ length: 6000 }, (_, i) => `line ${i} ${(i * 7919) % 1000} of a text\n`).join(''));
    writeFileSync(source, Array.from({ length: 40 }, (_, i) => `int f${i}(int a, int b) { int s = 0; for (int i = a; i < b; i++) s += i * ${i + 3} ^ (s >> 2); return s; }\n`).join(''));
    writeFileSync(join(scratch, 'Makefile'), `all: ${Array.from({ length: 200 }, (_, i) => `t${i}`).join(' ')}\nt%:\n\techo $@ $(words $(filter t1%,$@))\n`);
    const compiled = run(['g++', '-O2', '-o', join(scratch, 'exceptions'), own('exceptions.cc')]);
    if (compiled.status !== 0) throw new Error(compiled.stderr);
    const rows = [];
    let wrong = 0;
    for (const [program, image, command] of programs) {
      if (chosen.length > 0 && !chosen.includes(program)) continue;
      let [equal, calls] = [0, 0];
      const others = [];
      const { names, executions } = counted(image, command);
      for (const name of names) {
        const { functions, refusals } = probed(image, name, command);
        others.push(...refusals);
        for (const each of functions) {
          const expected = executions.get(each.address) ?? 0;
          if (each.calls === expected && each.missed === 0) [equal, calls] = [equal + 1, calls + expected];
          else {
            wrong++;
            others.push(`${name}: ${each.calls} calls, ${each.missed} missed; callgrind: ${expected}`);
          }
        }
      }
      rows.push([program, String(equal), calls.toLocaleString('en'), String(others.length)]);
      for (const other of others) console.log(`${program}: ${other}`);
      if (equal === 0) wrong++;
    }
    table('calls, dwell callpaths and callgrind', [['program', 'functions equal', 'calls', 'others'], ...rows]);
    if (wrong > 0) throw new Error(`${wrong} counts differ`);
  } finally {
    rmSync(scratch, { recursive: true });
  }
});
