// Makes the absolute table from scores, as text and as one object. Pure.

import { bounds, widths } from './score.mjs';

const mean = (values) => {
  const some = values.filter((value) => value !== null && value !== undefined);
  return some.length > 0 ? some.reduce((sum, value) => sum + value, 0) / some.length : null;
};
const meanEach = (lists) => lists[0]?.map((_, at) => mean(lists.map((list) => list[at]))) ?? [];

/**
 * Returns the figures about claims for the claimed samples of all programs together: programs that claim little count for little.
 * @param {ReturnType<import('./score.mjs').score>[]} scores
 */
export function claimsOf(scores) {
  const all = scores.reduce((sum, { claimed_truth }) => sum + claimed_truth, 0);
  const pooled = (of) => (all > 0 ? scores.reduce((sum, score) => sum + score.claimed_truth * (of(score) ?? 0), 0) / all : null);
  return {
    absolute: bounds.map((_, at) => pooled(({ absolute }) => absolute[at])),
    covered: pooled(({ covered }) => covered),
    narrow: widths.map((_, at) => pooled(({ narrow }) => narrow[at])),
  };
}

/**
 * Returns means of one way over programs, weighted equally. Figures about claims are means over the programs with claims.
 * @param {ReturnType<import('./score.mjs').score>[]} scores
 */
export function meanOf(scores) {
  const claiming = scores.filter(({ claimed_truth }) => claimed_truth > 0);
  return {
    programs: scores.length,
    claiming: claiming.length,
    samples: mean(scores.map(({ samples }) => samples)),
    truth: mean(scores.map(({ truth }) => truth)),
    claimed: mean(scores.map(({ claimed }) => claimed)),
    absolute: claiming.length > 0 ? meanEach(claiming.map(({ absolute }) => absolute)) : bounds.map(() => null),
    covered: mean(claiming.map(({ covered }) => covered)),
    narrow: claiming.length > 0 ? meanEach(claiming.map(({ narrow }) => narrow)) : widths.map(() => null),
    unclaimed: meanEach(scores.map(({ unclaimed }) => unclaimed)),
    program: meanEach(scores.map(({ program }) => program)),
    procedure: meanEach(scores.map(({ procedure }) => procedure)),
    impossible: scores.reduce((sum, { impossible }) => sum + impossible.length, 0),
    unfounded: scores.reduce((sum, { unfounded }) => sum + unfounded, 0),
  };
}

const percent = (value) => (value === null || value === undefined ? '–' : (value * 100).toFixed(0)).padStart(3);
const percents = (values) => values.map(percent).join(' ');
const columns = [
  ['samples', 8, ({ samples }) => (samples === null ? '–' : samples.toFixed(0))],
  ['truth', 6, ({ truth }) => percent(truth)],
  ['claimed', 8, ({ claimed }) => percent(claimed)],
  ['5/10/20 %', 12, ({ absolute }) => percents(absolute)],
  ['cover', 6, ({ covered }) => percent(covered)],
  ['≤1.3 ≤1.6', 10, ({ narrow }) => percents(narrow)],
  ['program', 12, ({ program }) => percents(program)],
  ['procedure', 12, ({ procedure }) => percents(procedure)],
  ['all as is', 12, ({ unclaimed }) => percents(unclaimed)],
  ['impossible', 11, ({ impossible }) => String(Array.isArray(impossible) ? impossible.length : impossible)],
  ['unfounded', 10, ({ unfounded }) => String(unfounded)],
];

const line = (name, cells) => `${name.padEnd(14)}${cells.map((cell, at) => cell.padStart(columns[at][1])).join('')}`;
const claims = columns.slice(3, 6);
const claimsRow = (value) => line('all claims', columns.map((column) => (claims.includes(column) ? column[2](value) : '')));
const row = (name, value) => line(name, columns.map(([, , of]) => of(value)));

/** Returns the row of a kernel: estimate / truth of the hot loop, and the same for its interval. */
function hotRow(name, { hot }) {
  const number = (value) => (value === null || value === undefined ? '–' : value.toFixed(3)).padStart(7);
  return hot ? `${name.padEnd(14)}${hot.kind.padEnd(10)}${number(hot.ratio)}  [${number(hot.min)},${number(hot.max)} ]` : `${name.padEnd(14)}no samples`;
}

/**
 * @param {{ way: string, role: string, name: string, score: object }[]} results
 * @returns {string}
 */
export function tableOf(results) {
  const groups = [...new Set(results.map(({ way, role }) => `${way}, role ${role}`))];
  return groups.map((group) => {
    const own = results.filter(({ way, role }) => `${way}, role ${role}` === group);
    const scores = own.map(({ score }) => score);
    const hot = own.filter(({ role }) => role === 'kernel');
    return [
      `${group}: shares in %`,
      line('', columns.map(([title]) => title)),
      ...own.map(({ name, score }) => row(name, score)),
      row('mean', meanOf(scores)),
      claimsRow(claimsOf(scores)).trimEnd(),
      ...(hot.length > 0 ? ['', 'hot loop: scale, executions / truth [90 % interval]', ...hot.map(({ name, score }) => hotRow(name, score))] : []),
      '',
    ].join('\n');
  }).join('\n');
}

/** Returns the table as one object. */
export function objectOf(results) {
  const key = ({ way, role }) => `${way}/${role}`;
  const groups = [...new Set(results.map(key))];
  const each = (of) => Object.fromEntries(groups.map((group) => [group, of(results.filter((result) => key(result) === group).map(({ score }) => score))]));
  return { schema: 1, means: each(meanOf), claims: each(claimsOf), programs: results };
}
