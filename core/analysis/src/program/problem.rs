//! The least-squares problem of the scales of a program's procedures.
//!
//! Input: the procedures' shapes and bursts. Output: steps towards the logarithms of their factors, and their deviations.
//! Complexity: a bounded number of passes over procedures and calls for each step.
//!
//! A procedure whose own executions were counted is an *anchor*: its scale is known, so its factor stays 1 and the others are
//! found from it. Calls say less than a count, and many of them must not outweigh it.
//!
//! How often bursts went through procedures says how often these ran relative to each other, but bursts are clusters: a phase of the
//! program has a few too many or too few of them by chance, or because its bursts end early, and then all procedures of that phase are off
//! alike. So the weight of each burst is unknown, too, about 1, with a variance of 1.

use rustc_hash::FxHashMap;

use super::{
    Bursts, LOG_MAX, Shape,
    bursts::{Weights, weights},
    is_sound,
    timed::{Timing, median, median_log, timings},
};
use crate::linear::{Signs, conjugate_gradients};

/// Standard deviation of the logarithm of a procedure's own scale.
const OWN_DEVIATION: f64 = 0.6;
/// Standard deviation of the common error of all guessed scales.
const COMMON_DEVIATION: f64 = 2.0;
/// Standard deviation of entries over calls, where all calls are known.
const CALLS_DEVIATION: f64 = 0.15;
/// Least standard deviation of executions in bursts over the procedure's own estimate.
const STEPPED_DEVIATION: f64 = 0.05;
/// Number of transfers that count as one burst, since those of a burst are not independent.
const STEPPED_BURST: f64 = 40.0;
/// Relative variance of transfers of which it is unknown how they are spread over bursts.
const UNKNOWN_VARIANCE: f64 = 1.0;
/// Least standard deviation of executions counted by breakpoints over the procedure's own estimate.
const BREAKPOINTS_DEVIATION: f64 = 0.1;
/// Degrees of freedom of Student's t.
const FREEDOM: f64 = 3.0;
/// Number of observations for which an assumed error counts where errors are found from observations.
const ASSUMED: f64 = 4.0;
/// Standard deviation of the error that all bursts have in common, for each unit of that by which they differ.
const COMMON_PART: f64 = 0.4;
/// Number of draws from which deviations are estimated.
const DRAWS: usize = 64;
/// Most steps towards the solution of a linear system, and its relative residual.
const STEPS_MAX: usize = 400;
const RESIDUAL_PART: f64 = 1e-3;

/// Entries of one procedure against the calls of others.
struct Balance {
    callee: usize,
    entries_log: f64,
    calls: Vec<(usize, f64)>,
    variance: f64,
}

/// Executions in bursts or breakpoint counts against the procedure's own estimate.
struct Stepped {
    procedure: usize,
    /// The number of the shared scale: that of bursts, or of a group of counted places.
    scale: usize,
    /// Logarithm of counted over estimated executions.
    log: f64,
    stiffness: f64,
    /// This says by how much `log` grows with the weight of each burst.
    weights: Weights,
}

fn own_stiffness(shape: &Shape) -> f64 {
    let deviation = shape.own_deviation.unwrap_or(OWN_DEVIATION);
    1.0 / (deviation * deviation)
}

/// The procedures' scales and the evidence for them. Its unknowns are the logarithms of the procedures' factors, followed by those of how
/// often each burst should count.
pub struct Problem {
    balances: Vec<Balance>,
    stepped: Vec<Stepped>,
    /// The evidence of bursts and breakpoint counts.
    scales: usize,
    /// The bursts whose time is known.
    timings: Vec<Timing>,
    /// Number of bursts that have a weight.
    bursts: usize,
    /// The weight of each procedure's own scale.
    own_stiffness: Vec<f64>,
    /// Whether each procedure's own scale is a guess; otherwise the procedure is an anchor. Guesses have a common error, so
    /// they move together where others are known.
    is_guess: Vec<bool>,
}

impl Problem {
    /// Builds the problem of these procedures.
    pub fn new(shapes: &[Shape], bursts: &Bursts) -> Problem {
        let mut calls: Vec<FxHashMap<usize, f64>> = vec![FxHashMap::default(); shapes.len()];
        for (caller, shape) in shapes.iter().enumerate() {
            for &(callee, count) in shape.calls.iter().filter(|c| is_sound(c.1)) {
                *calls[callee].entry(caller).or_default() += count;
            }
        }
        let balance = |(callee, calls): (usize, FxHashMap<usize, f64>)| {
            let entries = shapes[callee].entries;
            let mut calls: Vec<(usize, f64)> = calls.into_iter().collect();
            calls.sort_unstable_by_key(|c| c.0);
            let is_known = is_sound(entries) && !calls.is_empty();
            is_known.then(|| Balance {
                callee,
                entries_log: entries.ln(),
                calls,
                variance: CALLS_DEVIATION * CALLS_DEVIATION,
            })
        };
        let stepped = |((procedure, shape), weights): ((usize, &Shape), Option<Weights>)| {
            let uneven = if weights.is_none() { UNKNOWN_VARIANCE } else { 0.0 };
            let variance = STEPPED_DEVIATION * STEPPED_DEVIATION + STEPPED_BURST / shape.stepped + uneven;
            let is_known = is_sound(shape.stepped) && is_sound(shape.transfers);
            let log = (shape.stepped / shape.transfers).ln();
            let weights = weights.unwrap_or_default();
            is_known.then_some(Stepped { procedure, scale: 0, log, stiffness: 1.0 / variance, weights })
        };
        let mut stepped: Vec<Stepped> =
            shapes.iter().enumerate().zip(weights(shapes, bursts)).filter_map(stepped).collect();
        let mut groups = FxHashMap::default();
        for (procedure, shape) in shapes.iter().enumerate() {
            for counts in &shape.counted {
                let next = groups.len() + 1;
                let scale = *groups.entry(counts.group).or_insert(next);
                let stiffness = 1.0 / (BREAKPOINTS_DEVIATION * BREAKPOINTS_DEVIATION + counts.variance);
                stepped.push(Stepped { procedure, scale, log: counts.log, stiffness, weights: Vec::new() });
            }
        }
        Problem {
            scales: groups.len() + 1,
            stepped,
            timings: timings(shapes, bursts),
            bursts: bursts.all.len(),
            balances: calls.into_iter().enumerate().filter_map(balance).collect(),
            own_stiffness: shapes.iter().map(own_stiffness).collect(),
            is_guess: shapes.iter().map(|s| s.own_deviation.is_none()).collect(),
        }
    }

    /// Returns the number of bursts whose time is known, of those that are used.
    pub fn timed_bursts(&self) -> usize {
        self.timings.len()
    }

    /// Returns whether anything fixes a scale: an anchor, or timed bursts.
    pub fn is_fixed(&self) -> bool {
        self.is_guess.contains(&false) || !self.timings.is_empty()
    }

    /// Returns the number of procedures.
    fn procedures(&self) -> usize {
        self.is_guess.len()
    }

    /// Returns the unknowns to begin with: 0 for anchors, and what most timed bursts agree with for guesses if there are no
    /// anchors. Far from there Student's t has many minima.
    pub fn start(&self) -> Vec<f64> {
        let start = if self.is_guess.contains(&false) { 0.0 } else { median_log(&self.timings) };
        let mut logs = vec![start.clamp(-LOG_MAX, LOG_MAX); self.procedures()];
        logs.resize(self.procedures() + self.bursts, 0.0);
        logs
    }

    /// Fits the errors of timed bursts to how much most of them differ from what these logarithms say of them: what was assumed counts
    /// as much as a few of them. Where the same code takes now more and now less time after a stop, all of them may be slower than the
    /// rest of the run.
    pub fn fit_errors(&mut self, logs: &[f64]) {
        /// Standard deviation of a normal distribution over its median absolute deviation.
        const DEVIATION: f64 = 1.4826;
        let residuals: Vec<f64> = self.timings.iter().map(|t| self.timed_row(t, logs).residual).collect();
        let middle = median(residuals.iter().copied());
        let squares = residuals.iter().zip(&self.timings).map(|(r, t)| (r - middle).powi(2) / t.variance);
        let found = DEVIATION * DEVIATION * median(squares);
        let apart = DEVIATION * median(residuals.iter().map(|r| (r - middle).abs()));
        let freedom = self.timings.len().saturating_sub(1) as f64;
        let times = (ASSUMED + freedom * found) / (ASSUMED + freedom);
        for timing in self.timings.iter_mut().filter(|_| times.is_finite()) {
            timing.variance *= times;
            timing.common_deviation = timing.common_deviation.hypot(COMMON_PART * apart);
        }
    }

    /// Returns the weighted mean for each shared scale of these values, one for each of `stepped`: the scales move along with
    /// the procedures.
    fn means(&self, values: &[f64]) -> Vec<f64> {
        let mut sums = vec![(0.0, f64::MIN_POSITIVE); self.scales];
        for (s, value) in self.stepped.iter().zip(values) {
            let (sum, total) = &mut sums[s.scale];
            *sum += s.stiffness * value;
            *total += s.stiffness;
        }
        sums.into_iter().map(|(sum, total)| sum / total).collect()
    }

    /// Returns the common error of all guesses; 0 if no scale is known, since nothing determines it then.
    fn common_error(&self, x: &[f64]) -> f64 {
        if !self.is_fixed() {
            return 0.0;
        }
        let (mut sum, mut total) = (0.0, 1.0 / (COMMON_DEVIATION * COMMON_DEVIATION));
        for p in (0..self.procedures()).filter(|&p| self.is_guess[p]) {
            sum += self.own_stiffness[p] * x[p];
            total += self.own_stiffness[p];
        }
        sum / total
    }

    /// Returns the force of each procedure's own scale, and of each burst's weight of 1, for these changes of unknowns. Guesses move along
    /// with their common error.
    fn own(&self, x: &[f64]) -> Vec<f64> {
        let error = self.common_error(x);
        let of =
            |(p, x): (usize, &f64)| self.own_stiffness[p] * (x - if self.is_guess[p] { error } else { 0.0 });
        let (procedures, bursts) = x.split_at(self.procedures());
        procedures.iter().enumerate().map(of).chain(bursts.iter().copied()).collect()
    }

    /// Adds the forces of bursts and breakpoint counts to those on guesses and weights, for these values, one for each of `stepped`.
    fn add_stepped(&self, forces: &mut [f64], values: &[f64]) {
        let means = self.means(values);
        let (procedures, bursts) = forces.split_at_mut(self.procedures());
        for (s, value) in self.stepped.iter().zip(values) {
            let force = s.stiffness * (value - means[s.scale]);
            if self.is_guess[s.procedure] {
                procedures[s.procedure] += force;
            }
            s.weights.iter().for_each(|&(burst, part)| bursts[burst] += part * force);
        }
    }

    /// Returns what `stepped` says of the procedure's logarithm and the bursts' weights together.
    fn of_stepped(&self, s: &Stepped, x: &[f64]) -> f64 {
        let bursts = &x[self.procedures()..];
        x[s.procedure] + s.weights.iter().map(|&(burst, part)| part * bursts[burst]).sum::<f64>()
    }

    /// Returns for each of `stepped` the logarithm of counted over estimated executions.
    fn stepped_logs(&self, logs: &[f64]) -> Vec<f64> {
        self.stepped.iter().map(|s| s.log - self.of_stepped(s, logs)).collect()
    }

    /// Returns the step from these unknowns towards better ones. Those of anchors stay.
    pub fn step(&self, logs: &[f64]) -> Vec<f64> {
        let system = self.linearized(logs);
        system.solve(&system.force(logs))
    }

    /// Returns the standard deviation of the logarithm of each procedure, from draws as [`likely_flow`](crate::frequency) does
    /// for blocks; it is larger if the evidence contradicts itself.
    pub fn deviations(&self, logs: &[f64]) -> Vec<f64> {
        if !self.is_fixed() {
            return vec![f64::INFINITY; self.procedures()];
        }
        let system = self.linearized(logs);
        let mut signs = Signs::new();
        let mut squares = vec![0.0; self.procedures()];
        for _ in 0..DRAWS {
            let moved = system.solve(&system.draw(&mut signs));
            squares.iter_mut().zip(&moved).for_each(|(s, m)| *s += m * m);
        }
        let times = system.disagreement(logs) * self.times_of_few();
        let of = |(p, squares): (usize, f64)| match self.is_guess[p] {
            true => times * (squares / DRAWS as f64).sqrt(),
            false => self.own_stiffness[p].sqrt().recip(),
        };
        squares.into_iter().enumerate().map(of).collect()
    }

    /// Returns the factor by which deviations are larger since they are themselves estimated from few timed bursts, if
    /// nothing else fixes the scale. It is about that of the 90 % intervals of Student's t and of the normal distribution.
    fn times_of_few(&self) -> f64 {
        match self.is_guess.contains(&false) {
            true => 1.0,
            false => 1.0 + 1.0 / self.timings.len().saturating_sub(1).max(1) as f64,
        }
    }

    fn linearized(&self, logs: &[f64]) -> System<'_> {
        let row = |balance: &Balance| {
            let counts: Vec<f64> = balance.calls.iter().map(|&(p, count)| count * logs[p].exp()).collect();
            let total: f64 = counts.iter().sum();
            let residual = logs[balance.callee] + balance.entries_log - total.max(f64::MIN_POSITIVE).ln();
            let stiffness = (FREEDOM + 1.0) / (FREEDOM * balance.variance + residual * residual);
            let callers = balance.calls.iter().zip(&counts).map(|(&(p, _), count)| (p, -count / total));
            let all = std::iter::once((balance.callee, 1.0)).chain(callers);
            let (changes, anchored) = all.partition(|&(p, _)| self.is_guess[p]);
            Row { stiffness, residual, changes, anchored }
        };
        System {
            problem: self,
            rows: self.balances.iter().map(row).collect(),
            timed: self.timings.iter().map(|timing| self.timed_row(timing, logs)).collect(),
        }
    }

    /// Returns the row of a timed burst: the logarithm of the time by the estimates over the known time.
    fn timed_row(&self, timing: &Timing, logs: &[f64]) -> Row {
        let cycles: Vec<f64> = timing.cycles.iter().map(|&(p, cycles)| cycles * (-logs[p]).exp()).collect();
        let total = cycles.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let residual = total.ln() - timing.cycles_log;
        let stiffness = (FREEDOM + 1.0) / (FREEDOM * timing.variance + residual * residual);
        let all = timing.cycles.iter().zip(&cycles).map(|(&(p, _), cycles)| (p, -cycles / total));
        let (changes, anchored) = all.partition(|&(p, _)| self.is_guess[p]);
        Row { stiffness, residual, changes, anchored }
    }
}

/// A balance or timed burst near a point: how its residual changes with the logarithms of guesses, and of anchors.
struct Row {
    stiffness: f64,
    residual: f64,
    changes: Vec<(usize, f64)>,
    anchored: Vec<(usize, f64)>,
}

/// The problem near a point.
struct System<'a> {
    problem: &'a Problem,
    rows: Vec<Row>,
    /// The rows of timed bursts, whose errors are partly in common.
    timed: Vec<Row>,
}

impl System<'_> {
    fn solve(&self, force: &[f64]) -> Vec<f64> {
        conjugate_gradients(|x| self.apply(x), force, &self.diagonal(), RESIDUAL_PART, STEPS_MAX)
    }

    /// Returns the force on each logarithm at the point.
    fn force(&self, logs: &[f64]) -> Vec<f64> {
        let mut force: Vec<f64> = self.problem.own(logs).iter().map(|own| -own).collect();
        for Row { stiffness, residual, changes, .. } in &self.rows {
            changes.iter().for_each(|&(p, d)| force[p] -= stiffness * residual * d);
        }
        self.problem.add_stepped(&mut force, &self.problem.stepped_logs(logs));
        let residuals: Vec<f64> = self.timed.iter().map(|row| -row.residual).collect();
        self.add_timed(&mut force, &residuals);
        force
    }

    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let mut product = self.problem.own(x);
        let moved: Vec<f64> = self.problem.stepped.iter().map(|s| self.problem.of_stepped(s, x)).collect();
        self.problem.add_stepped(&mut product, &moved);
        for Row { stiffness, changes, .. } in &self.rows {
            let change: f64 = changes.iter().map(|&(p, d)| x[p] * d).sum();
            changes.iter().for_each(|&(p, d)| product[p] += stiffness * change * d);
        }
        let change = |row: &Row| row.changes.iter().map(|&(p, d)| x[p] * d).sum();
        let changes: Vec<f64> = self.timed.iter().map(change).collect();
        self.add_timed(&mut product, &changes);
        product
    }

    /// Returns the part of these values, one for each timed burst, that is most likely the error they have in common.
    /// It is in units of its standard deviation.
    fn common_of_timed(&self, values: &[f64]) -> f64 {
        let (mut sum, mut total) = (0.0, 1.0);
        for ((row, timing), value) in self.timed.iter().zip(&self.problem.timings).zip(values) {
            sum += row.stiffness * timing.common_deviation * value;
            total += row.stiffness * timing.common_deviation * timing.common_deviation;
        }
        sum / total
    }

    /// Adds the forces of timed bursts to those on guesses, for these values, one for each of them.
    fn add_timed(&self, forces: &mut [f64], values: &[f64]) {
        let common = self.common_of_timed(values);
        for ((row, timing), value) in self.timed.iter().zip(&self.problem.timings).zip(values) {
            let force = row.stiffness * (value - timing.common_deviation * common);
            row.changes.iter().for_each(|&(p, d)| forces[p] += force * d);
        }
    }

    fn diagonal(&self) -> Vec<f64> {
        let procedures = self.problem.procedures();
        let mut diagonal = self.problem.own_stiffness.clone();
        diagonal.resize(procedures + self.problem.bursts, 1.0);
        for s in &self.problem.stepped {
            diagonal[s.procedure] += s.stiffness;
            s.weights
                .iter()
                .for_each(|&(burst, part)| diagonal[procedures + burst] += s.stiffness * part * part);
        }
        for Row { stiffness, changes, .. } in self.rows.iter().chain(&self.timed) {
            changes.iter().for_each(|&(p, d)| diagonal[p] += stiffness * d * d);
        }
        diagonal
    }

    /// Returns random errors of all evidence, as a force on each logarithm. The errors of anchors reach others through the
    /// evidence that joins them.
    fn draw(&self, signs: &mut Signs) -> Vec<f64> {
        let problem = self.problem;
        let mut own: Vec<f64> = problem.own_stiffness.iter().map(|w| signs.next() / w.sqrt()).collect();
        own.extend((0..problem.bursts).map(|_| signs.next()));
        let of_anchor = |p: usize| if problem.is_guess[p] { 0.0 } else { own[p] };
        let mut force = problem.own(&own);
        force
            .iter_mut()
            .zip(&problem.is_guess)
            .for_each(|(f, is_guess)| *f *= f64::from(u8::from(*is_guess)));
        let error = |s: &Stepped| signs.next() / s.stiffness.sqrt() - of_anchor(s.procedure);
        let errors: Vec<f64> = problem.stepped.iter().map(error).collect();
        problem.add_stepped(&mut force, &errors);
        for Row { stiffness, changes, anchored, .. } in &self.rows {
            let known: f64 = anchored.iter().map(|&(p, d)| d * of_anchor(p)).sum();
            let error = signs.next() * stiffness.sqrt() - stiffness * known;
            changes.iter().for_each(|&(p, d)| force[p] += error * d);
        }
        let common = signs.next();
        let error = |(Row { stiffness, anchored, .. }, timing): (&Row, &Timing)| {
            let known: f64 = anchored.iter().map(|&(p, d)| d * of_anchor(p)).sum();
            signs.next() / stiffness.sqrt() + common * timing.common_deviation - known
        };
        let errors: Vec<f64> = self.timed.iter().zip(&problem.timings).map(error).collect();
        self.add_timed(&mut force, &errors);
        force
    }

    /// Returns the factor, at least 1, by which calls, bursts and breakpoint counts contradict each other, or timed bursts
    /// do, in units of their own errors.
    fn disagreement(&self, logs: &[f64]) -> f64 {
        let problem = self.problem;
        let stepped_logs = problem.stepped_logs(logs);
        let means = problem.means(&stepped_logs);
        let stepped = problem.stepped.iter().zip(stepped_logs).map(|(s, log)| {
            let residual = log - means[s.scale];
            s.stiffness * residual * residual
        });
        let balances = self.rows.iter().map(|r| r.stiffness * r.residual * r.residual);
        let data = problem.stepped.len() + self.rows.len();
        let unknowns = problem.is_guess.iter().filter(|is_guess| **is_guess).count() + problem.scales;
        let freedom = data.saturating_sub(unknowns).max(1) as f64;
        let weights = logs[problem.procedures()..].iter().map(|weight| weight * weight);
        let sum: f64 = stepped.chain(balances).chain(weights).sum();
        ((ASSUMED + sum) / (ASSUMED + freedom)).sqrt().max(1.0).max(self.disagreement_of_timed())
    }

    /// Returns the factor, at least 1, by which the times of bursts differ more than they should.
    fn disagreement_of_timed(&self) -> f64 {
        let residuals: Vec<f64> = self.timed.iter().map(|row| row.residual).collect();
        let common = self.common_of_timed(&residuals);
        let square = |(row, timing): (&Row, &Timing)| {
            row.stiffness * (row.residual - timing.common_deviation * common).powi(2)
        };
        let sum: f64 = self.timed.iter().zip(&self.problem.timings).map(square).sum();
        let freedom = self.timed.len().saturating_sub(1) as f64;
        ((ASSUMED + sum) / (ASSUMED + freedom)).sqrt().max(1.0)
    }
}
