// The parts that know no VS Code.
import { test } from 'node:test';
import * as assert from 'node:assert/strict';
import { splitCommandLine } from '../src/commandLine.ts';
import type { DiffInstruction, LineChange, LineCost } from '@dwell/lsp-server/protocol';
import { alignedText, costLabel } from '../src/aligned.ts';
import { count, cpi, duration, magnitude, percent, when } from '../src/format.ts';
import { below, grouped } from '../src/folders.ts';
import { arranged, cpiText, inSight, type ListRow, type Sort } from '../src/hotList/model.ts';
import { launchTarget } from '../src/launchTarget.ts';
import { heatOf, lineEnds, shareBar } from '../src/lineText.ts';

test('a command line is split into words', () => {
  const cases: [string, string[] | undefined][] = [
    ['./chase 32', ['./chase', '32']],
    ['  make   -j2  ', ['make', '-j2']],
    [`run 'two words' "and 'more'" last`, ['run', 'two words', `and 'more'`, 'last']],
    ['one\\ word', ['one word']],
    ['say "a \\"quoted\\" word"', ['say', 'a "quoted" word']],
    ["glued'to 'gether", ['gluedto gether']],
    ["empty ''", ['empty', '']],
    ['', undefined],
    ['   ', undefined],
    ['an "open quote', undefined],
    ["it's", undefined],
  ];
  for (const [line, words] of cases) assert.deepEqual(splitCommandLine(line), words, line);
});

test('a command line that needs a shell gets one', () => {
  for (const line of ['a | b', 'a && b', 'a > out', 'echo $HOME', 'ls *.c', 'N=3 ./a', 'echo "$HOME"', 'a; b', '~/a']) {
    assert.deepEqual(splitCommandLine(line), ['sh', '-c', line], line);
  }
  for (const line of [`echo 'a | b'`, 'echo "a | b"', 'echo a\\|b']) assert.notEqual(splitCommandLine(line)?.[0], 'sh', line);
});

test('numbers are formatted for people', () => {
  assert.deepEqual([0, 0.0001, 0.0005, 0.412, 1].map(percent), ['0.0%', '<0.1%', '0.1%', '41.2%', '100.0%']);
  assert.deepEqual([0, 999, 1234567].map(count), ['0', '999', '1,234,567']);
  assert.deepEqual([12, 1234, 4.56e6, 7.891e9].map(magnitude), ['12', '1.23 k', '4.56 M', '7.89 G']);
  assert.deepEqual([0.5, 0.996, 31, 99.5].map(cpi), ['0.50', '1.0', '31.0', '100']);
});

test('times are relative to now', () => {
  const now = new Date('2026-11-21T12:00:00Z');
  const cases = { '2026-11-21T11:59:40Z': 'just now', '2026-11-21T11:15:00Z': '45 min ago', '2026-11-21T03:00:00Z': '9 h ago', 'no date': 'no date' };
  for (const [start, told] of Object.entries(cases)) assert.equal(when(start, now), told);
  assert.match(when('2026-11-01T12:00:00Z', now), /^2026-1[01]-\d\d$/);
});

test('folders that share a database are grouped', () => {
  assert.deepEqual(grouped([], String), [[]]);
  assert.deepEqual(grouped(['a1', 'b1', 'a2'], (folder) => folder.slice(0, 1)), [['a1', 'a2'], ['b1']]);
  assert.equal(below('/work/a[1]/'), '/work/a?1?/**');
});

test('a bar shows a share in quarters, and the smallest share is visible', () => {
  assert.deepEqual([0, 0.0001, 0.05, 0.25, 0.28, 0.86, 1, 2].map(shareBar), ['', '▏', '▎', '█', '█▏', '███▌', '████', '████']);
});

const lineCost = (line: number, share: number): LineCost => ({
  line, share, label: '', lineEnd: `of line ${line}`, details: '', samples: {}, seconds: 1, cycles: null, scale: 'procedure', executions: null, executionsMin: null, executionsMax: null, perEntry: null, cpi: null,
  cpiMin: null, cpiMax: null, bestCaseCpi: null, confidence: 'low', culprits: [], ties: [], procedures: [],
});

test('a line ends with its bar and the server\'s words, an edited one says so', () => {
  const marks = { lines: [lineCost(1, 0.28), lineCost(2, 0.001)], stale: [{ line: 4, share: 0.2 }, { line: 5, share: 0.001 }], changes: null };
  const told = (all: boolean) => lineEnds(marks, { hotShare: 0.01, all }).map(({ line, bar, text, tone }) => [line, `${bar} ${text}`, tone]);
  assert.deepEqual(told(false), [[1, '█▏ of line 1', 'cost'], [4, ' edited · was 20 %', 'stale']]);
  assert.deepEqual(told(true).slice(1), [[2, '▏ of line 2', 'cost'], [4, ' edited · was 20 %', 'stale'], [5, ' edited · was 0.1 %', 'stale']]);
});

test('while runs are compared, lines show changes, and noise only if all lines are shown', () => {
  const change = (line: number, grew: number, significant: boolean): LineChange => ({ ...unchanged, line, change: grew, changeShare: grew / 1000, significant, label: `${grew}` });
  const marks = { lines: [lineCost(1, 0.28)], stale: [], changes: [change(1, 50, true), change(2, -40, true), change(3, 2, false), change(4, 1, true)] };
  const told = (all: boolean) => lineEnds(marks, { hotShare: 0.01, all }).map(({ line, text, tone }) => [line, text, tone]);
  assert.deepEqual(told(false), [[1, '50', 'slower'], [2, '-40', 'faster']]);
  assert.deepEqual(told(true).slice(2), [[3, '2', 'cost'], [4, '1', 'slower']]);
});

test('a procedure has a CPI or a marked bound', () => {
  assert.deepEqual([undefined, { cpi: 31, cpiMin: 29, split: null }, { cpi: null, cpiMin: 4, split: null }, { cpi: null, cpiMin: 0.9, split: null }, { cpi: null, cpiMin: null, split: null }].map(cpiText),
    ['', 'CPI 31.0', 'CPI ≥ 4.0', '', '']);
});

const listRows: ListRow[] = [
  { id: 'a', label: 'chase', image: '/work/chase', share: 0.8, cumulativeShare: 0.8, detail: { cpi: 3, cpiMin: 2, split: null } },
  { id: 'b', label: 'link_cycle', image: '/work/chase', share: 0.1, cumulativeShare: 0.9 },
  { id: 'c', label: 'clear_page', image: 'kernel', share: 0.05, cumulativeShare: 0.95, detail: { cpi: null, cpiMin: 9, split: null } },
];

test('the hot list is filtered by words of name and image, and sorted', () => {
  const ids = (filter: string, sort: Sort) => arranged(listRows, filter, sort).map((at) => listRows[at]?.id).join('');
  const cases: [string, Sort, string][] = [
    ['', 'share', 'abc'], ['', 'cpi', 'cab'], ['', 'label', 'acb'], ['CHASE', 'share', 'ab'], ['chase link', 'share', 'b'], ['kernel', 'cpi', 'c'], ['none', 'share', ''],
  ];
  for (const [filter, sort, shown] of cases) assert.equal(ids(filter, sort), shown, `${filter} ${sort}`);
});

test('of ten thousand rows only the visible ones and a few others are drawn', () => {
  assert.deepEqual(inSight(0, 380, 38, 10_000), [0, 20]);
  assert.deepEqual(inSight(38 * 5000, 380, 38, 10_000), [4990, 5020]);
  assert.deepEqual(inSight(38 * 9990, 380, 38, 10_000), [9980, 10_000]);
  assert.deepEqual(inSight(5000, 380, 38, 3), [3, 3]);
});

test('the heat of a line follows its share', () => {
  assert.deepEqual([0, 0.009, 0.01, 0.05, 0.2, 1].map((share) => heatOf(share, 0.01)), [undefined, undefined, 'warm', 'hot', 'hottest', 'hottest']);
  assert.deepEqual([0, 0.0001].map((share) => heatOf(share, 0)), [undefined, 'warm']);
});

const place = (address: number, text: string) => ({ address, text, uri: null, line: null });
const unchanged = {
  verdict: 'noise', label: 'no change', details: '', samplesBefore: 5, samplesAfter: 1234, change: 0, changeShare: 0, changeCycles: null, ratio: 1, executionsBefore: null,
  executionsAfter: null, countRatio: null, cpiBefore: null, cpiAfter: 2.5, costRatio: null, p: 1, falseDiscoveryRate: 1, significant: false,
} as const;

test('two listings are aligned by line as the core aligned them', () => {
  const rows: DiffInstruction[] = [
    { ...unchanged, kind: 'same', before: place(1, 'jne 0x10'), after: place(101, 'jne 0x110') },
    { ...unchanged, kind: 'removed', before: place(2, 'nop'), after: null },
    { ...unchanged, kind: 'added', before: null, after: place(102, 'nop') },
    { ...unchanged, kind: 'edited', before: place(3, 'add eax, 1'), after: place(103, 'add eax, 2') },
  ];
  assert.deepEqual(alignedText(rows, 'before'), ['1  jne 0x10', '2  nop', '4  add eax, 1']);
  assert.deepEqual(alignedText(rows, 'after'), ['1  jne 0x10', '3  nop', '4  add eax, 2']);
  const [row] = rows;
  assert.ok(row);
  assert.equal(costLabel(row, 'before'), '1  5 samples');
  assert.equal(costLabel({ ...row, before: place(-0x7efffff0, 'nop') }, 'before'), 'ffffffff81000010  5 samples', 'kernel code');
  assert.equal(costLabel({ ...row, significant: true, label: '+3% · slower' }, 'after'), '65  1,234 samples  2.5cy  +3% · slower');
});

test('a launch configuration is run exactly, or not at all', () => {
  const target = (configuration: unknown) => launchTarget(configuration, '/w')?.command;
  assert.deepEqual(target({ name: 'a', program: '${workspaceFolder}/a', args: ['-n', '3'] }), ['/w/a', '-n', '3']);
  for (const none of [null, {}, { program: 7 }, { program: '/a', request: 'attach' }, { program: '${command:pick}' }]) assert.equal(target(none), undefined);
  assert.equal(launchTarget({ program: '/a', cwd: '${workspaceFolder}/b' }, '/w')?.cwd, '/w/b');
  const full = launchTarget({ program: '/a', env: { A: '${workspaceFolder}/x', N: 3, none: null }, environment: [{ name: 'B', value: 'y' }, 7], envFile: '${workspaceFolder}/.env', preLaunchTask: 'build' }, '/w');
  assert.deepEqual([full?.env, full?.envFile, full?.preLaunchTask], [{ A: '/w/x', N: '3', B: 'y' }, '/w/.env', 'build']);
  assert.equal(launchTarget({ program: '/a', env: { A: '${command:pick}' } }, '/w'), undefined);
});

test('durations are short', () => {
  const epoch = (end: string | null) => ({ id: 'e', name: null, start: '2026-11-21T12:00:00Z', end, host: '', cpu: '', backend: '', scope: '', events: {}, notes: [], shown: false, pinned: false });
  const cases: [string | null, string][] = [
    ['2026-11-21T12:00:03Z', '3.0 s'], ['2026-11-21T12:01:00Z', '60 s'], ['2026-11-21T12:30:00Z', '30 min'], ['2026-11-21T15:12:00Z', '3.2 h'], [null, 'collecting'],
  ];
  for (const [end, told] of cases) assert.equal(duration(epoch(end)), told);
});
