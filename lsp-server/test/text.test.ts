/** The words: numbers, labels, listings. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressColumn, addressOf, hex } from '../src/address';
import { drawCfg } from '../src/cfg';
import { listingText } from '../src/listingText';
import { render } from '../src/listing';
import {
  count, cpi, cyclesRange, duration, eitherCause, hintLengthMax, lensTitle, lineEnd, percent, quantity, shortLabel, shortShare, sourcesText, type Cost,
} from '../src/text';
import { markdown } from '../src/markup';
import { kernelListing, listing, unscaledListing } from './fake';

test('numbers are short', () => {
  assert.deepEqual([0, 0.0004, 0.0005, 0.123, 0.9994, 0.9996, 1].map(percent), ['0.0%', '<0.1%', '0.1%', '12.3%', '99.9%', '100%', '100%']);
  assert.deepEqual(
    [0, 12, 999, 999.6, 1000, 9940, 12_345, 850e6, 4.2e9, 999.9e9, 3e18].map((n) => quantity(n)),
    ['0', '12', '999', '1.0 k', '1.0 k', '9.9 k', '12 k', '850 M', '4.2 G', '1.0 T', '3000 P'],
  );
  assert.equal(quantity(12, 'cycles'), '12 cycles');
  assert.deepEqual([0, 0.25, 0.999, 1, 10.77, 174.2].map(cpi), ['0.00', '0.25', '1.0', '1.0', '10.8', '174']);
  assert.deepEqual([0, 999, 1000, 1234567].map(count), ['0', '999', '1,000', '1,234,567']);
  assert.equal(cyclesRange(0, 3e9), 'up to 3.0 G cycles');
  assert.equal(cyclesRange(1e9, 3e9), '1.0 G cycles to 3.0 G cycles');
  assert.equal(cyclesRange(null, null), '');
});

const cost: Cost = { share: 0.28, seconds: 3, cpi: 66, cpiMin: 60, bestCaseCpi: 1.3 };
const memory = 'waits for memory (D-cache or DTLB miss)';
const unscaled: Partial<Cost> = { cpi: null, cpiMin: 4, perEntry: { executions: 2, of: 'loop' } };

test('times and shares are short', () => {
  assert.deepEqual([0, 0.0004, 0.0312, 0.0996, 0.28, 1].map(shortShare), ['0.0 %', '<0.1 %', '3.1 %', '10 %', '28 %', '100 %']);
  assert.deepEqual([0, 0.0001, 0.012, 0.41, 0.9996, 3, 41.2, 480, 9000].map(duration), ['0 ms', '<1 ms', '12 ms', '410 ms', '1.0 s', '3.0 s', '41 s', '480 s', '9,000 s']);
});

test('the end of a line has its time, then the cause, then estimates', () => {
  const end = (more: Partial<Cost>): string => lineEnd({ ...cost, ...more });
  assert.equal(end({ ties: [{ text: memory, place: ':41' }] }), '28 % · 3.0 s · waits for memory (D-cache or DTLB miss) ← :41 · 66 cycles/instr (ideal 1.3)');
  assert.equal(end({ seconds: null, ties: [{ text: memory, place: null }] }), '28 % · waits for memory (D-cache or DTLB miss) · 66 cycles/instr (ideal 1.3)');
  assert.equal(end({ bestCaseCpi: null }), '28 % · 3.0 s · 66 cycles/instr');
  // A ratio is told where no number is.
  assert.equal(end({ perEntry: { executions: 2, of: 'loop' } }), '28 % · 3.0 s · 66 cycles/instr (ideal 1.3)');
});

test('without a scale there are informative bounds and ratios, but no absolute numbers', () => {
  const end = (more: Partial<Cost>): string => lineEnd({ ...cost, ...unscaled, ...more });
  assert.equal(end({}), '28 % · 3.0 s · ≥ 4.0 cycles/instr (ideal 1.3) · 2.0 per entry of the loop');
  assert.equal(end({ perEntry: { executions: 1200, of: 'procedure' } }), '28 % · 3.0 s · ≥ 4.0 cycles/instr (ideal 1.3) · 1.2 k per entry of the procedure');
  assert.equal(end({ cpiMin: 0.9, bestCaseCpi: 0.1 }), '28 % · 3.0 s · 2.0 per entry of the loop', 'less than a cycle is no wait');
  assert.equal(end({ cpiMin: 1.5, perEntry: { executions: 1, of: 'loop' } }), '28 % · 3.0 s');
  assert.equal(end({ cpiMin: null, perEntry: null }), '28 % · 3.0 s');
});

test('a short label drops estimates first and never the cause', () => {
  const label = (text: string, place: string | null, more: Partial<Cost> = {}): string => shortLabel({ ...cost, ...more, ties: [{ text, place }] });
  assert.equal(shortLabel(cost), '28 % · 3.0 s · 66 cycles/instr (ideal 1.3)');
  assert.equal(shortLabel({ ...cost, ...unscaled }), '28 % · 3.0 s');
  assert.equal(shortLabel({ ...cost, ...unscaled, bestCaseCpi: null }), '28 % · 3.0 s · ≥ 4.0 cycles/instr');
  assert.equal(label('slotting', null, { cpi: 6, bestCaseCpi: null }), '28 % · 3.0 s · slotting · 6.0 cycles/instr');
  assert.equal(label('slotting', null), '28 % · 3.0 s · slotting');
  assert.equal(label('waits for the divider', ':41'), '28 % · 3.0 s · waits for the divider ← :41');
  assert.equal(label('waits for the divider', ':12345'), '28 % · 3.0 s · the divider ← :12345');
  assert.equal(label(memory, ':41'), '28 % · memory (D-cache or DTLB miss) ← :41');
  assert.equal(label(memory, ':411'), '28 % · memory (D-cache or DTLB miss)');
  assert.equal(label(memory, 'a_long_name.h:1234'), '28 % · memory (D-cache or DTLB miss)');
  assert.equal(label('waits for memory (D-cache or DTLB miss) or a mispredicted branch', ':41'), '28 % · memory or a mispredicted branch');
  for (const text of ['waits for something (of many causes that nobody has heard of)', 'a cause that has a name of far more than forty characters']) {
    const long = label(text, ':123456', { share: 1, seconds: 999e6 });
    assert.ok(long.length <= hintLengthMax, long);
    assert.match(long, /^100 % · (waits|something|a cause)/);
  }
});

test('a lens shows the cost of the procedure', () => {
  assert.equal(lensTitle({ ...cost, share: 0.312, cpi: 10.8, bestCaseCpi: 0.6 }), '31 % · 3.0 s · 11 cycles/instr (ideal 0.60)');
  assert.equal(lensTitle({ ...cost, ...unscaled, cpiMin: 0.5 }), '28 % · 3.0 s · 2.0 per entry of the loop');
  assert.equal(lensTitle({ share: 0.312, seconds: null, cpi: null, cpiMin: null, bestCaseCpi: null }), '31 %');
});

test('causes of one stall are alternatives', () => {
  assert.equal(eitherCause(['D-cache miss', 'write buffer full', 'DTLB miss', 'D-cache miss']), 'D-cache or DTLB miss or write buffer full');
  assert.equal(eitherCause(['divider busy', 'DTLB miss']), 'divider busy or DTLB miss');
  assert.equal(eitherCause(['a new cause']), 'a new cause');
});

test('the levels that served a miss are named', () => {
  assert.equal(sourcesText([{ level: 'l2', part: 0.92 }, { level: 'memory', part: 0.1 }]), 'from L2 (92.0% of executions) or memory (10.0%)');
  assert.equal(sourcesText([{ level: 'l2', part: null }, { level: 'last-level', part: null }, { level: 'memory', part: null }]), 'from L2, LLC or memory');
  assert.equal(sourcesText([{ level: 'memory', part: null }]), 'from memory');
  assert.equal(sourcesText([]), '');
});

test('names are not interpreted as markup', () => {
  const { plain, code } = markdown(() => '');
  assert.equal(plain('a_b*c[d]<e>'), 'a\\_b\\*c\\[d\\]\\<e\\>');
  assert.equal(code('x`y'), '`xˋy`');
});

test('a listing reads as in DCPI’s Figure 2', () => {
  const text = listingText(listing()).map((line) => line.text);
  assert.deepEqual(text, [
    'copy  /bin/copy',
    '31.2% of recording e1: 32,618 cycles samples, 2.0 G cycles',
    'machine model alpha-21164, a sample every 62,000 cycles',
    'executions are absolute numbers (time alone, in order)',
    '',
    'Address   Instruction                Samples      CPI  Culprit',
    '',
    '*** best case 2.5/4 = 0.62 CPI, actual 43.1/4 = 10.77 CPI, executed 96 M times (high confidence)',
    '  copy.c:3  for (i = 0; i < n; i++)',
    '9810      ldq t4, 0(t1)                3,126    2.0cy',
    '9814      addq t0, 0x4, t0                          ·',
    '  copy.c:4  c[i] = a[i];',
    '          s • 1.0cy   (s = slotting)',
    '          dw ••••••••• 18.0cy from memory (18.0% of executions)   (d = D-cache miss, w = write buffer full)',
    '9828      stq t4, 0(t2)               27,766   18.0cy  9810',
    '982c      bne t4, 0x9810               1,586',
  ]);
});

test('time in the kernel is shown above the instruction that entered it', () => {
  const copy = listing();
  const first = copy.instructions[0];
  assert.ok(first);
  first.kernel = { cause: 'page-fault', label: 'page fault', letter: 'g', samples: 40, cycles: 1523.4 };
  const text = listingText(copy).map((line) => line.text);
  const at = text.indexOf('          g 1.5 k cy in the kernel, 40 samples   (page fault)');
  assert.ok(at > 0 && text[at + 1]?.startsWith('9810 '), text.join('\n'));
  first.kernel.cycles = null;
  assert.ok(listingText(copy).some((line) => line.text === '          g in the kernel, 40 samples, as much as 0.1% of the function   (page fault)'));
});

test('without a scale a listing has shares, ratios and bounds for CPI and executions', () => {
  assert.deepEqual(listingText(unscaledListing()).map((line) => line.text), [
    'copy  /bin/copy',
    '31.2% of recording e1: 32,618 cycles samples, 2.0 G cycles',
    'machine model alpha-21164, a sample every 62,000 cycles',
    'executions are known as ratios within the function; CPI has lower bounds only',
    '',
    'Address   Instruction                Samples   Share    CPI ≥  Culprit',
    '',
    '*** best case 2.5/4 = 0.62 CPI, actual at least 8.0/4 = 2.00 CPI, 2.0 per entry of the loop, 100% of the function',
    '  copy.c:3  for (i = 0; i < n; i++)',
    '9810      ldq t4, 0(t1)                3,126    9.6%  ≥0.67cy',
    '9814      addq t0, 0x4, t0                                  ·',
    '  copy.c:4  c[i] = a[i];',
    '          s • 1.0cy   (s = slotting)',
    '          dw •••••••••••••••••••••• up to 90% of its time from L2, LLC or memory   (d = D-cache miss, w = write buffer full)',
    '9828      stq t4, 0(t2)               27,766   85.5%   ≥6.0cy  9810',
    '982c      bne t4, 0x9810               1,586    4.9%',
  ]);
});

test('each line of a listing has a type', () => {
  const { title, lines } = render(listing());
  assert.equal(title, 'copy · copy');
  assert.deepEqual(lines[9], { address: 0x9810, target: null, source: { uri: 'file:///src/copy.c', line: 2 }, culpritLines: [], operands: [] });
  assert.deepEqual(lines[11], { address: null, target: null, source: { uri: 'file:///src/copy.c', line: 3 }, culpritLines: [], operands: [] });
  assert.deepEqual(lines[13]?.culpritLines, [9]);
  assert.deepEqual(lines[14]?.culpritLines, [9]);
});

test('addresses of kernel code are exact', () => {
  const kernel = ['ffffffff81000010', 'ffff800080010004', 'fff0000080000004'];
  assert.deepEqual(['0', '1150', '7fffffffffff', ...kernel].map((digits) => hex(addressOf(digits))), ['0', '1150', '7fffffffffff', ...kernel]);
  assert.deepEqual(JSON.parse(JSON.stringify(kernel.map(addressOf))), kernel.map(addressOf));
  assert.equal(hex(addressOf('ffffffff81000010') + 1), 'ffffffff81000011');
  assert.deepEqual([addressOf('1150'), addressOf('ffffffff81000010')].map(addressColumn), ['1150      ', 'ffffffff81000010  ']);
});

test('a listing of kernel code leads to the same lines', () => {
  const { text, lines } = render(kernelListing());
  assert.deepEqual(text.split('\n').slice(5), [
    'Address           Instruction                   Samples      CPI  Culprit',
    '',
    '*** best case 2.5/4 = 0.62 CPI, actual 43.1/4 = 10.77 CPI, executed 96 M times (high confidence)',
    '  copy.c:3  for (i = 0; i < n; i++)',
    'ffffffff81009810  ldq t4, 0(t1)                   3,126    2.0cy',
    'ffffffff81009814  addq t0, 0x4, t0                             ·',
    '  copy.c:4  c[i] = a[i];',
    '                  s • 1.0cy   (s = slotting)',
    '                  dw ••••••••• 18.0cy from memory (18.0% of executions)   (d = D-cache miss, w = write buffer full)',
    'ffffffff81009828  stq t4, 0(t2)                  27,766   18.0cy  ffffffff81009810',
    'ffffffff8100982c  bne t4, 0xffffffff81009810      1,586',
    '',
  ]);
  assert.deepEqual([13, 14].map((line) => lines[line]?.culpritLines), [[9], [9]]);
  assert.equal(lines[15]?.target, lines[9]?.address);
  const { svg, blocks } = drawCfg(kernelListing());
  assert.deepEqual(blocks[0]?.successors.map(({ to }) => hex(to)), ['ffffffff81009810']);
  assert.ok(svg.includes('<title>ffffffff81009810 → ffffffff81009810: 100% of the times</title>') && svg.includes('>ffffffff81009810  ldq t4'), svg);
});
