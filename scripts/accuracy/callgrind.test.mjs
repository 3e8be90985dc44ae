import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readCallgrind } from './callgrind.mjs';
import { readDisassembly } from './disassembly.mjs';
import { imbalance, truthOf } from './truth.mjs';

// A loop of three turns that calls a procedure of its own image and one of another image, in the output of callgrind
// 3.19.
const dump = `# callgrind format
version: 1
creator: callgrind-3.19.0

positions: instr line
events: Ir
summary: 22

ob=(1) /bin/loop
fl=(1) loop.c
fn=(1) main
0x401000 3 1
+5 4 3
cfn=(2) leaf
calls=3 0x401020 9
* * 6
+5 5 3
cob=(2) /lib/libc.so
cfi=(3) ???
cfn=(3) puts
calls=3 0x401020 0
* * 300
fi=(2) loop.h
+5 +1 3
jcnd=2/3 -10 -2
* *
+2 -1 1

fn=(2)
0x401020 9 3
+2 10 3

ob=(2)
fl=(3)
fn=(3)
0x401000 0 99
jump=9 +4 0
* 0
`;

const listing = `
/bin/loop:	file format elf64-x86-64

  401000: b9 03 00 00 00               	movl	$3, %ecx
  401005: e8 16 00 00 00               	callq	0x401020 <leaf>
  40100a: e8 11 00 00 00               	callq	0x400e00 <puts@plt>
  40100f: 75 f4                        	jne	0x401005 <main+0x5>
  401011: c3                           	retq
  401020: f3 a4                        	rep		movsb	(%rsi), %es:(%rdi)
  401022: c3                           	retq
`;

const inLoop = (object) => object === '/bin/loop';
const hex = (map) => Object.fromEntries([...map].map(([address, count]) => [address.toString(16), count]));

test('executions and transfers of one object, positions and names being compressed', () => {
  const { executions, transfers } = readCallgrind(dump, inLoop);
  assert.deepEqual(hex(executions), { 401000: 1, 401005: 3, '40100a': 3, '40100f': 3, 401011: 1, 401020: 3, 401022: 3 });
  assert.deepEqual(hex(transfers.get(0x401005)), { 401020: 3 });
  assert.deepEqual(hex(transfers.get(0x40100f)), { 401005: 2 });
  assert.equal(transfers.size, 2, 'calls of other objects are none of this one');
});

test('code without an object in callgrind\'s output may belong to the program', () => {
  const stubs = dump.replace('ob=(2)\nfl=(3)\nfn=(3)\n0x401000 0 99', 'ob=(4) ???\nfl=(3)\nfn=(3)\n0x400e00 0 3');
  const ours = (object, address) => object === '/bin/loop' || (object === '???' && address >= 0x400000);
  assert.equal(readCallgrind(stubs, ours).executions.get(0x400e00), 3);
  assert.equal(readCallgrind(stubs, inLoop).executions.get(0x400e00), undefined);
});

test('a branch falls through when it is not taken, and every instruction runs as often as it is entered', () => {
  const instructions = readDisassembly(listing);
  const truth = truthOf(readCallgrind(dump, inLoop), instructions);
  assert.deepEqual(truth.edges, [
    [0x401005, 0x401020, 3],
    [0x40100f, 0x401005, 2],
    [0x40100f, 0x401011, 1],
  ]);
  const { share, worst } = imbalance(truth, instructions);
  assert.deepEqual(worst, [{ address: 0x401000, executions: 1, entered: 0 }], 'only main comes from outside');
  assert.equal(share, 1 / 17);
});

test('a repeated instruction runs as often as control comes to it', () => {
  const turns = dump.replace('0x401020 9 3\n', '0x401020 9 30\njump=27 0x401020 9\n* *\n');
  const truth = truthOf(readCallgrind(turns, inLoop), readDisassembly(listing));
  assert.equal(truth.executions.get(0x401020), 3);
});

test('impossible output of callgrind is refused', () => {
  assert.throws(() => readCallgrind('positions: line\n', inLoop), /--dump-instr=yes/);
  assert.throws(() => readCallgrind('0x10 1 1\n', inLoop), /--dump-instr=yes/);
  assert.throws(() => readCallgrind('positions: instr line\nob=(7)\n', inLoop), /has not named/);
  assert.throws(() => readCallgrind('positions: instr line\nwhat=1\n', inLoop), /not understood/);
  assert.throws(() => readCallgrind('positions: instr line\nzz 1 1\n', inLoop), /not understood/);
});

test('instructions by kind, sizes from their bytes', () => {
  const kinds = [...readDisassembly(listing).values()].map(({ kind, next }) => [kind, next.toString(16)]);
  assert.deepEqual(kinds, [['plain', '401005'], ['call', '40100a'], ['call', '40100f'], ['conditional', '401011'], ['return', '401012'],
    ['plain', '401022'], ['return', '401023']]);
  const locked = [...readDisassembly('  10: f0                  \tlock\n  11: 48 ff 06            \tincq\t(%rsi)\n').values()];
  assert.deepEqual(locked.map(({ address, next, text }) => [address, next, text]), [[0x10, 0x14, 'lock incq (%rsi)']]);
  const arm = readDisassembly('p:\tfile format elf64-littleaarch64\n  10: 54000041     \tb.ne\t0x18 <x>\n  14: d2800540     \tmov\tx0, #0x2a\n');
  assert.deepEqual([...arm.values()].map(({ kind, next }) => [kind, next]), [['conditional', 0x14], ['plain', 0x18]]);
});
