// Figures and tables. Pure, except for printing.

export const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

export const quantile = (values, share) => values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(share * values.length))];

export const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

export const spread = (values, digits, unit) =>
  `${median(values).toFixed(digits)} ${unit} (${Math.min(...values).toFixed(digits)}–${Math.max(...values).toFixed(digits)})`;

/**
 * Returns the median (or another `middle`) and its 95% interval by resampling, of values, or of groups of values that were
 * disturbed together. The resampling is seeded, so the same values give the same interval.
 */
export function interval(values, middle = median) {
  let state = 1;
  const random = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const middles = Array.from({ length: 500 }, () => middle(Array.from(values, () => values[Math.floor(random() * values.length)]).flat()));
  return { middle: middle(values.flat()), low: quantile(middles, 0.025), high: quantile(middles, 0.975), count: values.length };
}

export const percent = ({ middle, low, high }, digits = 2) =>
  `${middle.toFixed(digits)} % (${low.toFixed(digits)}–${high.toFixed(digits)})`;

/** Returns a limit with a mark that shows whether the figure keeps it. */
export const atMost = (value, limit, unit) => `${value <= limit ? '✓' : '✗'} ≤ ${limit} ${unit}`;
export const atLeast = (value, limit, unit) => `${value >= limit ? '✓' : '✗'} ≥ ${limit} ${unit}`;

export function table(title, rows) {
  console.log(`\n${title}`);
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  for (const row of rows) console.log(`  ${row.map((cell, column) => cell.padEnd(widths[column])).join('  ').trimEnd()}`);
}

/** Shuffles the ways, so that no way always follows the same one. */
export const shuffled = (values) =>
  values.map((value) => ({ value, at: Math.random() })).toSorted((a, b) => a.at - b.at).map(({ value }) => value);
