/** The words: numbers, labels, listings. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { listingText } from '../src/listingText';
import { render } from '../src/listing';
import { code, count, cpi, cyclesRange, escapeMarkdown, hintLengthMax, lensTitle, percent, quantity, shortLabel, type Cost } from '../src/text';
import { listing } from './fake';

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

const cost: Cost = { share: 0.123, cycles: 4.2e9, cpi: 3.1, bestCaseCpi: 0.5, confidence: 'high' };
test('a short label fits, the most useful parts first', () => {
  const label = (more: Partial<Cost>): string => shortLabel({ ...cost, ...more });
  assert.equal(label({}), '12.3% · 4.2 G cy · CPI 3.1/0.50');
  assert.equal(label({ confidence: 'low' }), '12.3% · 4.2 G cy · CPI ~3.1/0.50');
  assert.equal(label({ cycles: null, cpi: null }), '12.3%');
  assert.equal(label({ culprits: [{ cause: 'divider', place: null }] }), '12.3% · 4.2 G cy · CPI 3.1/0.50 · divider');
  assert.equal(label({ culprits: [{ cause: 'd-cache-miss', place: ':41' }] }), '12.3% · CPI 3.1/0.50 · D-cache miss ← :41');
  assert.equal(label({ culprits: [{ cause: 'd-cache-miss', place: 'a_long_name.h:1234' }] }), '12.3% · CPI 3.1/0.50 · D-cache miss');
  const causes = ['slotting', 'functional-unit', 'branch-mispredict', 'synchronization', 'a-cause-that-nobody-has-heard-of-yet'];
  for (const cause of causes) {
    const long = label({ share: 1, cycles: 999e12, cpi: 1234, bestCaseCpi: 99.4, culprits: [{ cause, place: ':123456' }] });
    assert.ok(long.length <= hintLengthMax, long);
  }
});

test('a lens says what the procedure costs', () => {
  assert.equal(lensTitle({ share: 0.312, cycles: 4.1e9, cpi: 10.8, bestCaseCpi: 0.6 }), '31.2% · 4.1 G cycles · CPI 10.8 (best 0.60)');
  assert.equal(lensTitle({ share: 0.312, cycles: null, cpi: null, bestCaseCpi: null }), '31.2%');
});

test('names are no markup', () => {
  assert.equal(escapeMarkdown('a_b*c[d]<e>'), 'a\\_b\\*c\\[d\\]\\<e\\>');
  assert.equal(code('x`y'), '`xˋy`');
});

test('a listing reads as in DCPI’s Figure 2', () => {
  const text = listingText(listing()).map((line) => line.text);
  assert.deepEqual(text, [
    'copy  /bin/copy',
    '31.2% of epoch e1: 32,618 cycles samples, 2.0 G cycles',
    'machine model alpha-21164, a sample every 62,000 cycles',
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

test('time in the kernel stands above the instruction that entered it', () => {
  const copy = listing();
  const first = copy.instructions[0];
  assert.ok(first);
  first.kernel = { cause: 'page-fault', samples: 40, cycles: 1523.4 };
  const text = listingText(copy).map((line) => line.text);
  const at = text.indexOf('          g 1.5 k cy in the kernel, 40 samples   (page fault)');
  assert.ok(at > 0 && text[at + 1]?.startsWith('9810 '), text.join('\n'));
  first.confidence = 'low';
  assert.ok(listingText(copy).some((line) => line.text.includes('g ~1.5 k cy in the kernel, 40 samples')));
});

test('each line of a listing says what it is about', () => {
  const { title, lines } = render(listing());
  assert.equal(title, 'copy · copy');
  assert.deepEqual(lines[8], { address: 0x9810, target: null, source: { uri: 'file:///src/copy.c', line: 2 }, culpritLines: [], operands: [] });
  assert.deepEqual(lines[10], { address: null, target: null, source: { uri: 'file:///src/copy.c', line: 3 }, culpritLines: [], operands: [] });
  assert.deepEqual(lines[12]?.culpritLines, [8]);
  assert.deepEqual(lines[13]?.culpritLines, [8]);
});
