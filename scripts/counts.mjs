// Counts how many tests passed, failed and were skipped, from the output of a test runner and its exit status. Pure: it runs
// nothing.
//
// Skipped tests are counted by lines `SKIPPED <name>: <reason>` or by the runner's own tally, whichever is more. A Rust test that
// cannot run here prints such a line and returns, which cargo counts as passed, so it is moved from passed to skipped.

/** @typedef {{ passed: number, failed: number, skipped: number, skips: string[] }} Counts */

const sum = (output, pattern) => [...output.matchAll(pattern)].reduce((total, match) => total + Number(match[1]), 0);

const plain = (output) => output.replace(/\x1b\[[0-9;]*[A-Za-z]/g, '').replace(/\r/g, '\n');

/**
 * The tally of each runner. `summaries` counts its closing lines, `unfinished` the test binaries that started and
 * printed none.
 */
const runners = {
  cargo: (output) => {
    // There is one part for each test binary, and its last result is its own: tests that start themselves again print
    // their results before.
    const parts = output.split(/^ +(?:Running|Doc-tests) .*$/m).slice(1);
    const last = (part) => [...part.matchAll(/^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored/gm)].at(-1);
    const results = parts.map(last).filter((result) => result !== undefined);
    const add = (index) => results.reduce((total, match) => total + Number(match[index]), 0);
    return { passed: add(1), failed: add(2), skipped: add(3), summaries: results.length, unfinished: parts.length - results.length };
  },
  node: (output) => ({
    passed: sum(output, /^(?:ℹ|#) pass (\d+)$/gm),
    failed: sum(output, /^(?:ℹ|#) (?:fail|cancelled) (\d+)$/gm),
    skipped: sum(output, /^(?:ℹ|#) (?:skipped|todo) (\d+)$/gm),
    summaries: [...output.matchAll(/^(?:ℹ|#) pass \d+$/gm)].length,
  }),
  ert: (output) => ({
    passed: sum(output, /^Ran \d+ tests?, (\d+) results? as expected/gm),
    failed: sum(output, /^Ran \d+ tests?, .*?(\d+) unexpected/gm),
    skipped: sum(output, /^Ran \d+ tests?, .*?(\d+) skipped/gm),
    summaries: [...output.matchAll(/^Ran \d+ tests?, /gm)].length,
  }),
  // The Test Anything Protocol: results that are planned but missing count as failed.
  tap: (output) => {
    const lines = (pattern) => [...output.matchAll(pattern)].length;
    const skipped = lines(/^ok \d+\b.*# SKIP\b/gm);
    const [passed, failed] = [lines(/^ok \d+\b/gm) - skipped, lines(/^not ok \d+\b/gm)];
    const missing = Math.max(sum(output, /^1\.\.(\d+)$/gm) - passed - failed - skipped, 0);
    return { passed, failed: failed + missing, skipped, summaries: lines(/^1\.\.\d+$/gm) };
  },
  // Our own harnesses close with the same line as `npm test`.
  line: (output) => ({
    passed: sum(output, /^(\d+) passed, \d+ failed/gm),
    failed: sum(output, /^\d+ passed, (\d+) failed/gm),
    skipped: sum(output, /^\d+ passed, \d+ failed, (\d+) skipped/gm),
    summaries: [...output.matchAll(/^\d+ passed, \d+ failed/gm)].length,
  }),
};

/**
 * Counts the tests of one step. A step without a runner (a lint, a build) counts as one test.
 * @param {{ kinds: string[], output: string, status: number | null }} step `kinds`: which of the runners it has; `status`: null when it died of a signal
 * @returns {Counts}
 */
export function count({ kinds, output, status }) {
  const text = plain(output);
  const skips = [...new Set([...text.matchAll(/^\s*(?:[#ℹ]\s*)?SKIPPED (.+)$/gm)].map((match) => match[1].trim()))];
  if (kinds.length === 0) {
    const failed = status === 0 ? 0 : 1;
    return { passed: failed || skips.length ? 0 : 1, failed, skipped: skips.length, skips };
  }
  const total = { passed: 0, failed: 0, skipped: 0, skips };
  let complete = true;
  for (const kind of kinds) {
    const tally = runners[kind](text);
    const silent = Math.max(tally.unfinished ?? 0, 0);
    total.passed += tally.passed;
    total.failed += tally.failed + silent;
    total.skipped += tally.skipped;
    complete &&= tally.summaries > 0;
  }
  const unseen = Math.max(skips.length - total.skipped, 0);
  total.skipped += unseen;
  if (kinds.includes('cargo')) total.passed = Math.max(total.passed - unseen, 0);
  // The step failed or did not reach its tests, and its tally does not show that.
  if (total.failed === 0 && (status !== 0 || !(complete || skips.length))) total.failed = 1;
  return total;
}

/** The line with which each kind of runner begins its report of a failed test, and the line that ends it. */
const reports = [
  // node and TAP: the line, and the YAML block below it.
  { begin: /^\s*not ok \d+\b/, end: /^\s*(?:\.\.\.|(?:not )?ok \d+\b.*|1\.\.\d+|# Subtest:.*)$/ },
  { begin: /^\s*✖ /, end: /^\s*(?:[✔✖ℹ▶] .*)?$/ },
  // cargo prints panics of passing tests under another heading.
  { begin: /^thread '.*' .*panicked at /, end: /^(?:---- .* stdout ----|failures:|successes:)$/ },
  { begin: /^error(?:\[E\d+\])?: /, end: /^$/ },
  // ERT: the condition, and then the verdict.
  { begin: /^Test \S+ (?:condition|backtrace):$/, end: /^\s+FAILED\b/ },
];

/**
 * Returns the output of a step's runners about failed tests, at most `lines` for each test. The end of the output alone is often
 * only about tests that passed.
 */
export function failures(output, lines = 12) {
  const found = [];
  let open;
  for (const line of plain(output).replace(/^successes:$[^]*?^(?=failures:$|test result:)/gm, '').split('\n')) {
    if (open && (open.end.test(line) || open.left === 0)) open = undefined;
    const report = open ? undefined : reports.find(({ begin }) => begin.test(line));
    if (report) open = { end: report.end, left: lines };
    if (!open) continue;
    found.push(line);
    open.left--;
  }
  return found;
}

/** Returns the last line of `npm test`. */
export function closingLine(all) {
  const add = (key) => all.reduce((total, counts) => total + counts[key], 0);
  return `${add('passed')} passed, ${add('failed')} failed, ${add('skipped')} skipped`;
}
