// Compares estimates with the truth and returns shares. Pure: it reads no files and runs no programs. The cost is
// O(instructions) for each procedure, except for the factors (see `bestFactor`).
//
// An estimate is within x % if estimate / truth − 1 lies in ±x %. Weights are the time samples of the instructions that have a
// truth. The truth of a `rep` instruction is that of its neighbour in the block, because callgrind counts its repetitions.

/** @typedef {import('./answers.mjs').Answer} Answer */
/** @typedef {{ weight: number, estimate: number | null, truth: number }} Point */

export const bounds = [0.05, 0.1, 0.2];
/** Largest ratios of the ends of narrow intervals. */
export const widths = [1.3, 1.6];
/**
 * Least share of a procedure's samples in the judged application. With less, its truth is not that of this program
 * alone.
 */
const own_share_min = 0.98;
/**
 * As in core/accuracy: of the factors that bring nearly as much within 10 % as the best one does (less this share of
 * all), the one with most within 5 % is used.
 */
const fitted_tolerance = 0.005;
/**
 * A figure below this share of the least possible one is impossible. The margin allows for rounding in the text of an
 * answer.
 */
const rounding = 0.995;

const share = (part, whole) => (whole > 0 ? part / whole : null);
const sum = (list, of) => list.reduce((total, each) => total + of(each), 0);
// An error of exactly 10 % counts as within 10 %, whatever the last bit of the quotient is.
const within = ({ estimate, truth }, bound, factor = 1) => estimate !== null && truth > 0 && Math.abs((estimate * factor) / truth - 1) <= bound + 1e-9;
const shares = (points, factor = 1) => bounds.map((bound) => share(sum(points.filter((point) => within(point, bound, factor)), ({ weight }) => weight), sum(points, ({ weight }) => weight)));

/** Returns the factor that suits most of the points, in O(n log n). */
export function bestFactor(points) {
  const usable = points.filter(({ estimate, truth }) => estimate > 0 && truth > 0).map(({ weight, estimate, truth }) => ({ weight, log: Math.log(truth / estimate) }));
  if (usable.length === 0) return 1;
  // A point is within x % for all factors whose logarithm lies in an interval around the point's own. The sums change
  // only at the ends of intervals.
  const ends = (bound, index) => usable.flatMap(({ weight, log }) => [{ at: log + Math.log(1 - bound), change: weight, index }, { at: log + Math.log(1 + bound), change: -weight, index }]);
  const all = [...ends(0.05, 0), ...ends(0.1, 1)].toSorted((a, b) => a.at - b.at || b.change - a.change);
  const now = [0, 0];
  const ranges = all.map(({ change, index, at }, i) => {
    now[index] += change;
    return { middle: (at + (all[i + 1]?.at ?? at)) / 2, five: now[0], ten: now[1] };
  });
  const enough = Math.max(...ranges.map(({ ten }) => ten)) - fitted_tolerance * sum(points, ({ weight }) => weight) - 1e-9;
  const best = ranges.filter(({ ten }) => ten >= enough).reduce((most, range) => (range.five > most.five + 1e-9 ? range : most));
  return Math.exp(best.middle);
}

/** Adds the truth to a procedure's instructions and removes those without one. */
function judged(procedure, truthAt) {
  const { instructions } = procedure;
  const plain = instructions.map(({ repeats, address }) => (repeats ? null : truthAt(procedure.image, address)));
  const ofBlock = new Map();
  instructions.forEach(({ block }, i) => plain[i] !== null && !ofBlock.has(block) && ofBlock.set(block, plain[i]));
  return instructions
    .map((each, i) => ({ ...each, truth: each.repeats ? (ofBlock.get(each.block) ?? null) : plain[i] }))
    .filter(({ truth, samples }) => truth !== null && samples > 0);
}

/** Returns the least possible figures of instructions (see `impossible`). */
const least = (instructions, width) => share(sum(instructions, ({ slots }) => slots), instructions.length * width) ?? 0;

/** Returns a line if this many places at retirement are more than there are in the time of this many samples. */
function exceeded(name, places, samples, { width, period_cycles }) {
  // Time is measured by a number of samples, so three standard deviations are allowed.
  const time = (samples + 3 * Math.sqrt(samples) + 3) * period_cycles;
  return places / width > time ? [`${name}: ${(places / width).toExponential(2)} cycles at least, ${time.toExponential(2)} sampled`] : [];
}

/** Returns the places at retirement that the claimed executions of a procedure take. */
const placesOf = ({ instructions }) => sum(instructions, ({ executions, slots }) => (executions ?? 0) * slots);

/**
 * Returns figures that no core with this width can have, each as a line: of blocks, of procedures, and of all procedures together
 * where each alone is possible. The bound is the number of places at retirement, `width` in each cycle. An instruction takes one
 * place; a flag-setting one and the branch after it take one together, padding takes none. If in doubt, the bound is too small
 * rather than too large.
 * @param {Answer} answer
 * @returns {string[]}
 */
export function impossible(answer) {
  const { procedures, width } = answer;
  const each = procedures.flatMap((procedure) => {
    const { name, instructions, blocks, samples, cpi, cpi_min } = procedure;
    const found = [];
    const below = (what, value, bound) => value !== null && value < bound * rounding && found.push(`${name}: ${what} ${value.toFixed(4)} < ${bound.toFixed(4)}`);
    const counts = instructions.map((each) => ({ ...each, count: each.executions ?? 0 }));
    const retired = sum(counts, ({ count }) => count);
    const places = placesOf(procedure);
    const procedureBound = retired > 0 ? places / (retired * width) : Math.min(1 / (2 * width), least(instructions, width));
    below('CPI in top', cpi, procedureBound);
    below('least CPI in top', cpi_min, procedureBound);
    blocks.forEach(({ address, cpi: each, cpi_min: lowest }, index) => {
      const bound = least(instructions.filter(({ block }) => block === index), width);
      below(`CPI of the block ${address.toString(16)}`, each, bound);
      below(`least CPI of the block ${address.toString(16)}`, lowest, bound);
    });
    return [...found, ...exceeded(name, places, samples, answer)];
  });
  const claimed = procedures.filter((procedure) => placesOf(procedure) > 0);
  return each.length > 0 ? each : exceeded('all procedures', sum(claimed, placesOf), sum(claimed, ({ samples }) => samples), answer);
}

/** Returns absolute numbers that appear although their scale is not known. */
const unfounded = ({ procedures, knows_scale }) =>
  !knows_scale ? 0 : procedures.filter(({ kind, cpi, instructions, blocks }) => kind !== 'absolute' && (cpi !== null || [...instructions, ...blocks].some(({ executions }) => executions !== null))).length;

/**
 * Judges one answer.
 * @param {Answer} answer
 * @param {(image: string, address: number) => number | null} truthAt executions in what was recorded; null: not known
 * @param {{ hot?: string }} options a kernel's function whose hot loop is judged by itself
 */
export function score(answer, truthAt, { hot } = {}) {
  const procedures = answer.procedures.filter(({ own, samples }) => own >= own_share_min * samples).map((procedure) => ({ ...procedure, points: judged(procedure, truthAt) }));
  const points = procedures.flatMap((procedure) => procedure.points.map((point) => ({ ...point, kind: procedure.kind })));
  const weighted = (list) => list.map(({ samples, truth, ...others }) => ({ weight: samples, truth, ...others }));
  const all = weighted(points);
  const claimed = all.filter(({ kind }) => kind === 'absolute').map((point) => ({ ...point, estimate: point.executions }));
  const ranged = claimed.filter(({ min, max }) => min !== null && max !== null);
  const weightOf = (list) => sum(list, ({ weight }) => weight);
  const relative = all.map((point) => ({ ...point, estimate: point.relative }));
  const scaled = relative.map((point) => (point.kind === 'procedure' ? { ...point, estimate: null } : point));
  const programFactor = bestFactor(scaled);
  const eachProcedure = procedures.flatMap((procedure) => {
    const own = weighted(procedure.points).map((point) => ({ ...point, estimate: point.relative }));
    const factor = bestFactor(own);
    return own.map((point) => ({ ...point, estimate: point.estimate === null ? null : point.estimate * factor }));
  });
  return {
    samples: answer.samples,
    truth: share(weightOf(all), answer.samples),
    claimed: share(sum(answer.procedures.filter(({ kind }) => kind === 'absolute'), ({ own }) => own), answer.samples),
    claimed_truth: weightOf(claimed),
    absolute: shares(claimed),
    covered: share(weightOf(ranged.filter(({ min, max, truth }) => truth >= min && truth <= max)), weightOf(claimed)),
    narrow: widths.map((width) => share(weightOf(ranged.filter(({ min, max }) => max <= width * min)), weightOf(claimed))),
    program: shares(scaled, programFactor),
    procedure: shares(eachProcedure),
    // These scores treat all numbers as claims, to show the state of today's dwell.
    unclaimed: shares(all.map((point) => ({ ...point, estimate: point.executions ?? null }))),
    impossible: impossible(answer),
    unfounded: unfounded(answer),
    ...(hot && { hot: hotLoop(procedures, hot) }),
  };
}

/** Returns estimate / truth of a kernel's hot loop: the block with the most samples of the function with this name. */
function hotLoop(procedures, hot) {
  const procedure = procedures.find(({ name }) => name === hot);
  if (!procedure || procedure.points.length === 0) return null;
  const bySamples = groupBy(procedure.points);
  const loop = [...bySamples.values()].toSorted((a, b) => sum(b, ({ samples }) => samples) - sum(a, ({ samples }) => samples))[0];
  const { executions, min, max, truth, relative } = loop[0];
  const ratio = (value) => (value === null ? null : value / truth);
  return { kind: procedure.kind, ratio: ratio(executions), min: ratio(min), max: ratio(max), relative: ratio(relative) };
}

function groupBy(points) {
  const groups = new Map();
  for (const point of points) groups.set(point.block, [...(groups.get(point.block) ?? []), point]);
  return groups;
}
