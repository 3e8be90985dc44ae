//! The mixture likelihood: what the samples of a class's issue points say of its frequency, though some are stalled.
//!
//! Input: issue points with samples S, least cycles M and how likely each is to stall. Output: the likelihood of any
//! frequency, the best one, and each point's part in it. Complexity: linear in points times a bounded number of
//! candidates.
//!
//! It takes the place of the clusters of DCPI §6.1.3. There the smaller ratios S/M are averaged; here every point votes.
//! Free of dynamic stalls, S is Poisson(f·M); stalled for x cycles on average, Poisson(f·(M + x)) with x log-uniform up
//! to a few misses to memory; where a stall between a producer and its consumer may hide the latency (DCPI's fourth
//! challenge), S is anywhere down to what is left; and now and then M is simply wrong. So a class whose only point may have stalled is an
//! upper bound rather than an estimate, and the flow fit can tell which.

use crate::machine::MachineModel;

/// The part of a point's expected samples by which the model errs even where nothing stalls.
const MODEL_ERROR: f64 = 0.01;
/// How far from the best frequency others are weighed, in logarithms, and how finely.
const SPREAD_BELOW: f64 = 4.0;
const SPREAD_ABOVE: f64 = 1.0;
const SPREAD_STEP: f64 = 0.25;
/// A smaller average stall is no stall.
const STALL_CYCLES_MIN: f64 = 0.02;
/// The longest average stall, in misses to memory.
const STALL_MEMORY_TIMES_MAX: f64 = 3.0;
/// The exponential of less than minus that is 0.
const EXPONENT_MAX: f64 = 746.0;
/// How often M is too large.
const TOO_LARGE: f64 = 0.004;
/// Candidates that are tried before the best is refined.
const CANDIDATES_MAX: usize = 24;
/// Steps of the refinement.
const REFINEMENTS: usize = 12;

/// An instruction with M > 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its samples.
    pub samples: f64,
    /// M.
    pub cycles: f64,
    /// M were the latencies it waits for hidden by stalls before it …
    pub cycles_floor: f64,
    /// … and the probability that something hides them.
    pub hidden_prior: f64,
    /// The probability that something stalls it.
    pub stall_prior: f64,
    /// It is its block's first instruction.
    pub is_head: bool,
}

/// What stalls can be on a machine.
#[derive(Clone, Copy, Debug)]
pub struct Stalls {
    cycles_max: f64,
    log_range: f64,
    model_error: f64,
}

impl Stalls {
    /// Of a machine's memory.
    pub fn of(model: &MachineModel) -> Stalls {
        let miss = model.memory.memory_cycles + model.memory.dtlb_miss_cycles;
        let cycles_max = STALL_MEMORY_TIMES_MAX * miss;
        Stalls { cycles_max, log_range: (cycles_max / STALL_CYCLES_MIN).ln(), model_error: MODEL_ERROR }
    }

    /// The same for a model that errs more: what is nearly free then counts as free.
    pub fn with_model_error(self, model_error: f64) -> Stalls {
        Stalls { model_error: model_error.max(MODEL_ERROR), ..self }
    }
}

/// A point's three explanations, as densities times their prior.
struct Explanations {
    free: f64,
    others: f64,
}

impl Explanations {
    fn total(&self) -> f64 {
        // Nothing is impossible: the floor keeps one wild point from deciding.
        self.free + self.others + 1e-300
    }
}

fn explain(point: &Point, f: f64, stalls: &Stalls) -> Explanations {
    let (s, mean) = (point.samples, f * point.cycles);
    let peak = density(s, mean, stalls.model_error);
    let sigma = (s.max(1.0) + (stalls.model_error * mean).powi(2)).sqrt();
    let above = s - mean;
    // ∫ Poisson(S; f·M + y) dy/y from the shortest stall to the longest: below a standard error y moves nothing, beyond
    // it the Poisson is a point at y = S − f·M.
    let (shortest, longest) = (f * STALL_CYCLES_MIN, f * stalls.cycles_max);
    let bend = shortest.max(sigma);
    let short = if peak > 0.0 { peak * (bend / shortest.max(f64::MIN_POSITIVE)).ln() } else { 0.0 };
    let long = step((above - bend) / sigma) / above.max(bend);
    let beyond = if above > longest { (longest / above).powi(3) } else { 1.0 };
    let is_below = step(-above / sigma);
    let below = is_below / (mean + 1.0);
    let hidden = if point.hidden_prior > 0.0 && is_below > 0.0 {
        let least = f * point.cycles_floor;
        is_below * step((s - least) / sigma) / (mean - least + 1.0)
    } else {
        0.0
    };
    let as_scheduled = (1.0 - TOO_LARGE) * (1.0 - point.hidden_prior);
    Explanations {
        free: (1.0 - point.stall_prior) * as_scheduled * peak,
        others: point.stall_prior * (short + long * beyond) / stalls.log_range
            + TOO_LARGE * below
            + point.hidden_prior * hidden,
    }
}

/// Poisson's density, widened by the model's own error; Stirling's formula is good to 2% at S = 0 and better above.
fn density(s: f64, mean: f64, model_error: f64) -> f64 {
    let spread = 1.0 + model_error * model_error * s;
    // Never more than the deviance: far from the mean its logarithm need not be taken.
    let least_deviance = (mean - s) * (mean - s) / (2.0 * mean.max(s).max(f64::MIN_POSITIVE));
    if least_deviance > EXPONENT_MAX * spread {
        return 0.0;
    }
    let deviance = if s > 0.0 { s * excess((mean - s) / s) } else { mean };
    (-deviance / spread).exp() / (std::f64::consts::TAU * (s + 1.0 / 6.0) * spread).sqrt()
}

/// `d − ln(1 + d)`, exact for small d, where counts are huge.
fn excess(d: f64) -> f64 {
    if d.abs() < 1e-3 { d * d * (0.5 - d / 3.0 + d * d / 4.0) } else { d - d.ln_1p() }
}

/// A normal distribution's cumulative function, near enough. Far out, where most calls are, it is as good as 0 or 1.
fn step(x: f64) -> f64 {
    const FAR: f64 = 24.0;
    if x.abs() > FAR {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    1.0 / (1.0 + (-1.702 * x).exp())
}

/// The logarithm of the likelihood of frequency `f`.
pub fn log_likelihood(points: &[Point], f: f64, stalls: &Stalls) -> f64 {
    points.iter().map(|p| explain(p, f, stalls).total().ln()).sum()
}

/// Samples and cycles of the points that are free of stalls at frequency `f`, as far as each is, and as many of them as
/// the model's own error leaves worth.
pub fn free_part<'a>(points: impl IntoIterator<Item = &'a Point>, f: f64, stalls: &Stalls) -> (f64, f64) {
    points.into_iter().fold((0.0, 0.0), |(samples, cycles), p| {
        let explanations = explain(p, f, stalls);
        let worth = 1.0 / (1.0 + stalls.model_error * stalls.model_error * p.samples);
        let part = worth * explanations.free / explanations.total();
        (samples + part * p.samples, cycles + part * p.cycles)
    })
}

/// The most likely frequency; `None` without points or samples.
pub fn most_likely(points: &[Point], stalls: &Stalls) -> Option<f64> {
    let candidates = candidates(points);
    let score = |f: f64| log_likelihood(points, f, stalls);
    let scores: Vec<f64> = candidates.iter().map(|&f| score(f)).collect();
    let best = (0..scores.len()).reduce(|a, b| if scores[b] > scores[a] { b } else { a })?;
    // Between its neighbours, and no further than a standard error of all.
    let low = candidates[best.saturating_sub(1)].max(candidates[best] * 0.7);
    let high = candidates[(best + 1).min(candidates.len() - 1)].min(candidates[best] * 1.4);
    let found = golden_section(low.ln(), high.ln(), |log_f| score(log_f.exp())).exp();
    debug_assert_eq!(verify_found(found, low, high), Ok(()));
    Some(found)
}

/// Checks that the refined frequency stayed between the candidates around it.
fn verify_found(found: f64, low: f64, high: f64) -> Result<(), String> {
    let is_within = low * (1.0 - 1e-9) <= found && found <= high * (1.0 + 1e-9);
    if is_within && found > 0.0 { Ok(()) } else { Err(format!("{found} is not between {low} and {high}")) }
}

/// The variance of the logarithm of the frequency about the most likely one: that of a narrow peak where points agree,
/// more where all of them may have stalled, as then lower frequencies are as likely.
pub fn log_variance(points: &[Point], best: f64, stalls: &Stalls) -> f64 {
    let top = log_likelihood(points, best, stalls);
    let narrow = 1.0 / (free_part(points, best, stalls).0 + 0.5);
    let peak = (std::f64::consts::TAU * narrow).sqrt();
    let reach = 2.0 * narrow.sqrt();
    let steps = ((SPREAD_BELOW + SPREAD_ABOVE) / SPREAD_STEP) as usize;
    let (mut mass, mut moment) = (peak, peak * narrow);
    for k in 0..=steps {
        let shift = SPREAD_ABOVE - k as f64 * SPREAD_STEP;
        if shift.abs() > reach {
            let likely = (log_likelihood(points, best * shift.exp(), stalls) - top).min(0.0).exp();
            mass += likely * SPREAD_STEP;
            moment += likely * SPREAD_STEP * shift * shift;
        }
    }
    moment / mass
}

/// Ratios S/M: the likelihood peaks near some of them. A point without samples stands for half a sample.
fn candidates(points: &[Point]) -> Vec<f64> {
    let mut ratios: Vec<f64> = points.iter().map(|p| p.samples.max(0.5) / p.cycles).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();
    let every = ratios.len().div_ceil(CANDIDATES_MAX).max(1);
    let mut picked: Vec<f64> = ratios.iter().copied().step_by(every).collect();
    if let (Some(&first), Some(&last)) = (picked.first(), picked.last()) {
        picked.insert(0, first * 0.9);
        picked.push(last * 1.1);
    }
    picked
}

fn golden_section(mut low: f64, mut high: f64, score: impl Fn(f64) -> f64) -> f64 {
    const PART: f64 = 0.618_033_988_749_894_9;
    let (mut a, mut b) = (high - PART * (high - low), low + PART * (high - low));
    let (mut at_a, mut at_b) = (score(a), score(b));
    for _ in 0..REFINEMENTS {
        if at_a >= at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - PART * (high - low);
            at_a = score(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + PART * (high - low);
            at_b = score(b);
        }
    }
    0.5 * (low + high)
}
