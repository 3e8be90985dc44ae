import assert from 'node:assert/strict';
import { test } from 'node:test';
import { closingLine, count, failures } from './counts.mjs';

const check = (kinds, output, status, passed, failed, skipped) => {
  const counts = count({ kinds, output, status });
  assert.deepEqual([counts.passed, counts.failed, counts.skipped], [passed, failed, skipped]);
};

const running = '     Running tests/a.rs (target/debug/deps/a-0123)\n\n';
const cargoOk = running + 'running 3 tests\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n';

test('cargo: the binaries are summed', () => check(['cargo'], cargoOk + cargoOk, 0, 6, 0, 0));
test('cargo: ignored tests are skips', () =>
  check(['cargo'], running + 'running 2 tests\ntest result: ok. 1 passed; 0 failed; 1 ignored; 0 measured', 0, 1, 0, 1));
test('cargo: failures', () =>
  check(['cargo'], cargoOk + running + 'running 2 tests\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured', 101, 4, 1, 0));
test('cargo: a binary that dies before its summary', () => check(['cargo'], cargoOk + running + 'running 4 tests\n', 101, 3, 1, 0));
test('cargo: a test that starts itself again counts once', () =>
  check(['cargo'], running + 'running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored;\nrunning 1 test\n' + cargoOk.replace(running, ''), 0, 3, 0, 0));
test('cargo: nothing compiled', () => check(['cargo'], 'error: could not compile', 101, 0, 1, 0));
test('cargo: a test that prints SKIPPED did not pass', () =>
  check(['cargo'], cargoOk + 'SKIPPED pmu: this machine has no PMU\n', 0, 2, 0, 1));
test('a skip that is printed twice is one', () =>
  check(['cargo'], cargoOk + 'SKIPPED pmu: none\nSKIPPED pmu: none\n', 0, 2, 0, 1));
test('node: both reporters', () => {
  check(['node'], 'ℹ tests 4\nℹ pass 2\nℹ fail 1\nℹ cancelled 1\nℹ skipped 0\nℹ todo 0\n', 1, 2, 2, 0);
  check(['node'], '# pass 2\n# fail 0\n# cancelled 0\n# skipped 1\n# todo 1\n', 0, 2, 0, 2);
});
test('node: coloured', () => check(['node'], '\x1b[34mℹ pass 7\x1b[39m\n\x1b[34mℹ fail 0\x1b[39m\n', 0, 7, 0, 0));
test('node: a skip is counted once, by the runner or by its line', () =>
  check(['node'], 'SKIPPED chromium: not there\nℹ pass 2\nℹ fail 0\nℹ skipped 1\n', 0, 2, 0, 1));
test('ert: both forms', () => {
  check(['ert'], 'Ran 5 tests, 4 results as expected, 0 unexpected, 1 skipped (2026-11-21, 0.1 sec)', 0, 4, 0, 1);
  check(['ert'], 'Ran 5 tests, 4 results as expected, 1 unexpected (2026-11-21)', 1, 4, 1, 0);
});
test('tap: results against the plan', () => {
  check(['tap'], 'ok 1 - a\nnot ok 2 - b: why\nok 3 - c # SKIP no PMU\n1..3\n', 1, 1, 1, 1);
  check(['tap'], '1..4\nok 1 - a\nok 2 - b\n', 0, 2, 2, 0);
  check(['tap'], 'ok 1 - a\n', 0, 1, 1, 0);
});
test('our own line', () => check(['line'], '11 passed, 0 failed, 2 skipped\n', 0, 11, 0, 2));
test('several runners in a step', () => check(['node', 'line'], 'ℹ pass 2\nℹ fail 0\n11 passed, 0 failed\n', 0, 13, 0, 0));
test('one of several runners is silent', () => check(['node', 'line'], 'ℹ pass 2\nℹ fail 0\n', 0, 2, 1, 0));
test('a runner without a summary failed', () => {
  check(['node'], 'nothing', 0, 0, 1, 0);
  check(['ert'], '', null, 0, 1, 0);
});
test('a whole suite that is skipped', () => check(['ert'], 'SKIPPED emacs 30: no network\n', 0, 0, 0, 1));
test('a step without a runner', () => {
  check([], '', 0, 1, 0, 0);
  check([], '', 1, 0, 1, 0);
  check([], 'SKIPPED lint: no tool\n', 0, 0, 0, 1);
});
test('the closing line', () =>
  assert.equal(closingLine([{ passed: 1, failed: 0, skipped: 2 }, { passed: 3, failed: 1, skipped: 0 }]), '4 passed, 1 failed, 2 skipped'));

test('failures: of node, without passing tests', () => {
  const output = '    not ok 2 - bad\n      ---\n      error: |-\n        in vain\n      ...\n    # Subtest: good\n    ok 3 - good\n1..3\n';
  assert.deepEqual(failures(output), ['    not ok 2 - bad', '      ---', '      error: |-', '        in vain']);
});
test('failures: of cargo, without the panics of tests that passed', () => {
  const panic = (name) => `---- ${name} stdout ----\nthread '${name}' (7) panicked at a.rs:1:2:\nwhy\n`;
  const output = `successes:\n\n${panic('meant')}\nfailures:\n\n${panic('bad')}\nfailures:\n    bad\ntest result: FAILED.`;
  assert.deepEqual(failures(output).slice(0, 2), ["thread 'bad' (7) panicked at a.rs:1:2:", 'why']);
  assert.ok(!failures(output).join().includes('meant'));
});
test('failures: of ERT', () => {
  const output = 'Test a condition:\n\n    (error "x")\n\n   FAILED  1/2  a\n   passed  2/2  b\n';
  assert.deepEqual(failures(output).slice(0, 3), ['Test a condition:', '', '    (error "x")']);
});
test('failures: each test is cut to the requested number of lines', () =>
  assert.equal(failures(`not ok 1 - a\n${'  x\n'.repeat(50)}`, 5).length, 5));
