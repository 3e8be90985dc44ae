//! The mixture likelihood: what the samples of a class's issue points say of its frequency, though some points are
//! stalled.
//!
//! Input: issue points with samples S, least cycles M and the probability that each stalls. Output: the likelihood of any
//! frequency, the most likely one, and each point's part in it. Complexity: linear in points times a bounded number of
//! candidates.
//!
//! It replaces the clusters of DCPI §6.1.3, where the smaller ratios S/M are averaged: here every point contributes. Free
//! of dynamic stalls, S is Poisson(f·M); stalled for x cycles on average, Poisson(f·(M + x)) with x log-uniform up to a
//! few misses to memory; where a stall between a producer and its consumer may hide the latency (DCPI's fourth
//! challenge), S is anywhere down to the remainder; and sometimes M is wrong. So a class whose only point may have
//! stalled gives an upper bound rather than an estimate, and the flow fit can distinguish the two.

use crate::machine::MachineModel;

/// The relative error of a point's expected samples where nothing stalls, from the model.
const MODEL_ERROR: f64 = 0.01;
/// Other frequencies that are weighed beside the best: their distance from it, in logarithms, and the width that each
/// stands for. Farther below, where points have long been stalled, the likelihood is smooth.
const SPREAD: [(f64, f64); 14] = [
    (1.0, 0.25),
    (0.75, 0.25),
    (0.5, 0.25),
    (0.25, 0.25),
    (-0.25, 0.25),
    (-0.5, 0.25),
    (-0.75, 0.25),
    (-1.0, 0.375),
    (-1.5, 0.5),
    (-2.0, 0.5),
    (-2.5, 0.5),
    (-3.0, 0.5),
    (-3.5, 0.5),
    (-4.0, 0.375),
];
/// The shortest average stall, in cycles; a shorter one is none.
const STALL_CYCLES_MIN: f64 = 0.02;
/// The longest average stall, in misses to memory.
const STALL_MEMORY_TIMES_MAX: f64 = 3.0;
/// A point is not free of stalls where its density is below e to minus this, beside its other explanations.
const EXPONENT_MAX: f64 = 32.0;
/// Least sum of a point's explanations, and least product of several that stays a normal number when multiplied by one
/// more.
const TOTAL_MIN: f64 = 1e-150;
const PRODUCT_MIN: f64 = 1e-150;
/// The probability that M is too large.
const TOO_LARGE: f64 = 0.004;
/// Number of candidates that are tried before the best is refined.
const CANDIDATES_MAX: usize = 24;
/// The least distance of candidates as a ratio: half of the model's error.
const CANDIDATE_TIMES: f64 = 1.005;
/// Greatest number of steps of the refinement, and the tolerance in logarithms.
const REFINEMENTS: usize = 12;
const NEAR: f64 = 0.001;

/// An issue point: an instruction with M > 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its samples.
    pub samples: f64,
    /// M: its least cycles.
    pub cycles: f64,
    /// M if the latencies that it waits for were hidden by stalls before it.
    pub cycles_floor: f64,
    /// The probability that such a stall hides them.
    pub hidden_prior: f64,
    /// The probability that the point stalls.
    pub stall_prior: f64,
    /// Whether it is its block's first instruction.
    pub is_head: bool,
}

/// The stalls that are possible on a machine.
#[derive(Clone, Copy, Debug)]
pub struct Stalls {
    cycles_max: f64,
    log_range: f64,
    model_error: f64,
}

impl Stalls {
    /// Derives the stalls from a machine's memory latencies.
    pub fn new(model: &MachineModel) -> Stalls {
        let miss = model.memory.memory_cycles + model.memory.dtlb_miss_cycles;
        let cycles_max = STALL_MEMORY_TIMES_MAX * miss;
        Stalls { cycles_max, log_range: (cycles_max / STALL_CYCLES_MIN).ln(), model_error: MODEL_ERROR }
    }

    /// Returns the same stalls for a model with a greater error, for which more points count as free.
    pub fn with_model_error(self, model_error: f64) -> Stalls {
        Stalls { model_error: model_error.max(MODEL_ERROR), ..self }
    }
}

/// The three explanations of a point, as densities times their priors.
struct Explanations {
    free: f64,
    others: f64,
}

impl Explanations {
    fn total(&self) -> f64 {
        // A floor keeps one outlier from deciding.
        self.free + self.others + TOTAL_MIN
    }
}

/// A point with everything that does not depend on the frequency, since many frequencies are tried on it.
struct Prepared {
    samples: f64,
    cycles: f64,
    cycles_floor: f64,
    hidden_prior: f64,
    /// The prior of each explanation; that of a stall is per unit of its logarithm.
    free_part: f64,
    stalled_part: f64,
    /// The logarithm of samples over cycles.
    log_ratio: f64,
    /// The factor that widens Poisson's deviance, and the density at its peak.
    spread: f64,
    peak: f64,
}

impl Prepared {
    fn new(point: &Point, stalls: &Stalls) -> Prepared {
        let Point { samples, cycles, cycles_floor, hidden_prior, stall_prior, .. } = *point;
        let spread = 1.0 + stalls.model_error * stalls.model_error * samples;
        Prepared {
            samples,
            cycles,
            cycles_floor,
            hidden_prior,
            free_part: (1.0 - stall_prior) * (1.0 - TOO_LARGE) * (1.0 - hidden_prior),
            stalled_part: stall_prior / stalls.log_range,
            log_ratio: (samples / cycles).ln(),
            spread,
            // Stirling's formula is good to 2% at S = 0 and better above.
            peak: (std::f64::consts::TAU * (samples + 1.0 / 6.0) * spread).sqrt().recip(),
        }
    }

    fn explain(&self, trial: &Trial) -> Explanations {
        let (s, mean) = (self.samples, trial.f * self.cycles);
        let density = self.density(mean, trial.log_f);
        let error = trial.model_error * mean;
        let sigma = (s.max(1.0) + error * error).sqrt();
        let above = s - mean;
        // ∫ Poisson(S; f·M + y) dy/y from the shortest stall to the longest: up to a standard error y changes nothing,
        // beyond it the Poisson is a point at y = S − f·M.
        let bend = trial.shortest.max(sigma);
        let short = if density > 0.0 { density * (bend / trial.shortest).ln() } else { 0.0 };
        let is_beyond = step((above - bend) / sigma);
        let mut long = if is_beyond > 0.0 { is_beyond / above.max(bend) } else { 0.0 };
        if above > trial.longest {
            long *= (trial.longest / above).powi(3);
        }
        let mut others = self.stalled_part * (short + long);
        let is_below = step(-above / sigma);
        if is_below > 0.0 {
            others += TOO_LARGE * is_below / (mean + 1.0);
            if self.hidden_prior > 0.0 {
                let least = trial.f * self.cycles_floor;
                let hidden = is_below * step((s - least) / sigma) / (mean - least + 1.0);
                others += self.hidden_prior * hidden;
            }
        }
        Explanations { free: self.free_part * density, others }
    }

    /// Returns Poisson's density, widened by the model's own error.
    fn density(&self, mean: f64, log_f: f64) -> f64 {
        let above = self.samples - mean;
        // This is at most the deviance: far from the mean nothing need be computed.
        let least_deviance = above * above / (2.0 * mean.max(self.samples).max(f64::MIN_POSITIVE));
        if least_deviance > EXPONENT_MAX * self.spread {
            return 0.0;
        }
        // S·ln(S / mean) − (S − mean). The cancellation error is far below the spread, which grows with S too.
        let deviance =
            if self.samples > 0.0 { self.samples * (self.log_ratio - log_f) - above } else { mean };
        self.peak * (-deviance / self.spread).exp()
    }
}

/// A frequency that is tried, with everything that depends on it alone.
struct Trial {
    f: f64,
    log_f: f64,
    shortest: f64,
    longest: f64,
    model_error: f64,
}

impl Trial {
    fn new(f: f64, stalls: &Stalls) -> Trial {
        Trial {
            f,
            log_f: f.ln(),
            shortest: (f * STALL_CYCLES_MIN).max(f64::MIN_POSITIVE),
            longest: f * stalls.cycles_max,
            model_error: stalls.model_error,
        }
    }
}

/// Approximates the cumulative normal distribution. Far from the mean, where most calls are, it is almost exact.
fn step(x: f64) -> f64 {
    const FAR: f64 = 8.0;
    if x.abs() > FAR {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    1.0 / (1.0 + (-1.702 * x).exp())
}

/// The points of a class, prepared for many frequencies.
struct Likelihood<'s> {
    points: Vec<Prepared>,
    stalls: &'s Stalls,
}

impl<'s> Likelihood<'s> {
    fn new(points: &[Point], stalls: &'s Stalls) -> Likelihood<'s> {
        Likelihood { points: points.iter().map(|p| Prepared::new(p, stalls)).collect(), stalls }
    }

    /// Returns its logarithm. Products are as good as sums of logarithms until they leave the range of numbers.
    fn log(&self, f: f64) -> f64 {
        let trial = Trial::new(f, self.stalls);
        let (mut log, mut product) = (0.0, 1.0_f64);
        for point in &self.points {
            product *= point.explain(&trial).total();
            if !(PRODUCT_MIN..1.0 / PRODUCT_MIN).contains(&product) {
                log += product.ln();
                product = 1.0;
            }
        }
        log + product.ln()
    }
}

/// Returns the logarithm of the likelihood of frequency `f`.
pub fn log_likelihood(points: &[Point], f: f64, stalls: &Stalls) -> f64 {
    Likelihood::new(points, stalls).log(f)
}

/// Returns the samples and cycles of the points weighted by the probability that they are free of stalls at frequency
/// `f`, limited to what the model's own error leaves of their certainty.
pub fn free_part<'a>(points: impl IntoIterator<Item = &'a Point>, f: f64, stalls: &Stalls) -> (f64, f64) {
    let trial = Trial::new(f, stalls);
    points.into_iter().fold((0.0, 0.0), |(samples, cycles), p| {
        let explanations = Prepared::new(p, stalls).explain(&trial);
        let worth = 1.0 / (1.0 + stalls.model_error * stalls.model_error * p.samples);
        let part = worth * explanations.free / explanations.total();
        (samples + part * p.samples, cycles + part * p.cycles)
    })
}

/// Returns the most likely frequency; `None` without points or samples.
pub fn most_likely(points: &[Point], stalls: &Stalls) -> Option<f64> {
    let candidates = candidates(points);
    let likelihood = Likelihood::new(points, stalls);
    let scores: Vec<f64> = candidates.iter().map(|&f| likelihood.log(f)).collect();
    let best = (0..scores.len()).reduce(|a, b| if scores[b] > scores[a] { b } else { a })?;
    // The refinement stays between the neighbouring candidates, and within a standard error of all samples.
    let low = candidates[best.saturating_sub(1)].max(candidates[best] * 0.7);
    let high = candidates[(best + 1).min(candidates.len() - 1)].min(candidates[best] * 1.4);
    let start = (candidates[best].ln(), scores[best]);
    let found = highest(low.ln(), high.ln(), start, |log_f| likelihood.log(log_f.exp()));
    debug_assert_eq!(verify_found(found, start, (low, high)), Ok(()));
    Some(found.0.exp())
}

/// Checks that the refined frequency stayed between the candidates around it and is no less likely than the best.
fn verify_found(found: (f64, f64), start: (f64, f64), (low, high): (f64, f64)) -> Result<(), String> {
    let frequency = found.0.exp();
    let is_within = low * (1.0 - 1e-9) <= frequency && frequency <= high * (1.0 + 1e-9);
    if is_within && frequency > 0.0 && found.1 >= start.1 {
        Ok(())
    } else {
        Err(format!("{found:?} is not between {low} and {high} and better than {start:?}"))
    }
}

/// Returns the variance of the logarithm of the frequency about the most likely one: that of a narrow peak where points
/// agree, more where all of them may have stalled, since lower frequencies are then as likely.
pub fn log_variance(points: &[Point], best: f64, stalls: &Stalls) -> f64 {
    let likelihood = Likelihood::new(points, stalls);
    let top = likelihood.log(best);
    let narrow = 1.0 / (free_part(points, best, stalls).0 + 0.5);
    let peak = (std::f64::consts::TAU * narrow).sqrt();
    let reach = 2.0 * narrow.sqrt();
    let (mut mass, mut moment) = (peak, peak * narrow);
    for (shift, width) in SPREAD.into_iter().filter(|s| s.0.abs() > reach) {
        let likely = (likelihood.log(best * shift.exp()) - top).min(0.0).exp();
        mass += likely * width;
        moment += likely * width * shift * shift;
    }
    moment / mass
}

/// Returns ratios S/M, near some of which the likelihood peaks. A point without samples counts as half a sample.
fn candidates(points: &[Point]) -> Vec<f64> {
    let mut ratios: Vec<f64> = points.iter().map(|p| p.samples.max(0.5) / p.cycles).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup_by(|later, kept| *later <= *kept * CANDIDATE_TIMES);
    let every = ratios.len().div_ceil(CANDIDATES_MAX).max(1);
    let mut picked: Vec<f64> = ratios.iter().copied().step_by(every).collect();
    if let (Some(&first), Some(&last)) = (picked.first(), picked.last()) {
        picked.insert(0, first * 0.9);
        picked.push(last * 1.1);
    }
    picked
}

/// Returns the maximum between `low` and `high` and its score, from a place within whose score is known: parabolas
/// through the three best places, and golden sections where parabolas fail (Brent, "Algorithms for Minimization without
/// Derivatives", 1973, ch. 5).
fn highest(mut low: f64, mut high: f64, start: (f64, f64), score: impl Fn(f64) -> f64) -> (f64, f64) {
    const PART: f64 = 0.381_966_011_250_105_1;
    let (mut best, mut second, mut third) = (start, start, start);
    let (mut last_move, mut move_before) = (0.0_f64, 0.0_f64);
    for _ in 0..REFINEMENTS {
        let middle = 0.5 * (low + high);
        if (best.0 - middle).abs() + 0.5 * (high - low) <= 2.0 * NEAR {
            break;
        }
        let vertex = best.0 + to_vertex(best, second, third);
        let is_useful = low < vertex && vertex < high && (vertex - best.0).abs() < 0.5 * move_before.abs();
        let farther = if best.0 < middle { high } else { low };
        let side = farther - best.0;
        let moved = if is_useful { vertex - best.0 } else { PART * side };
        move_before = if is_useful { last_move } else { side };
        last_move = moved;
        let at = best.0 + if moved.abs() < NEAR { NEAR.copysign(moved) } else { moved };
        let next = (at.clamp(low, high), score(at.clamp(low, high)));
        if next.1 >= best.1 {
            *(if next.0 < best.0 { &mut high } else { &mut low }) = best.0;
            (best, second, third) = (next, best, second);
        } else {
            *(if next.0 < best.0 { &mut low } else { &mut high }) = next.0;
            if next.1 >= second.1 || second.0 == best.0 {
                (second, third) = (next, second);
            } else if next.1 >= third.1 || third.0 == best.0 || third.0 == second.0 {
                third = next;
            }
        }
    }
    best
}

/// Returns how far the vertex of the parabola through three places lies from the first; not a number if there is none.
fn to_vertex(a: (f64, f64), b: (f64, f64), c: (f64, f64)) -> f64 {
    let (r, q) = ((a.0 - b.0) * (a.1 - c.1), (a.0 - c.0) * (a.1 - b.1));
    let numerator = (a.0 - c.0) * q - (a.0 - b.0) * r;
    -numerator / (2.0 * (q - r))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(samples: f64, cycles: f64, stall_prior: f64) -> Point {
        Point { samples, cycles, cycles_floor: cycles, hidden_prior: 0.0, stall_prior, is_head: false }
    }

    fn stalls() -> Stalls {
        Stalls::new(MachineModel::named("generic-inorder-2").unwrap())
    }

    #[test]
    fn free_points_outvote_stalled_ones() {
        let points = [point(1_020.0, 1.0, 0.06), point(1_985.0, 2.0, 0.06), point(9_000.0, 1.0, 0.2)];
        let found = most_likely(&points, &stalls()).unwrap();
        assert!((found / 1_000.0).ln().abs() < 0.02, "{found}");
        assert!(log_variance(&points, found, &stalls()) < 0.01);
        let (samples, cycles) = free_part(&points, found, &stalls());
        assert!((cycles - 3.0).abs() < 1.5 && (samples / cycles / found).ln().abs() < 0.02);
    }

    #[test]
    fn no_neighbouring_frequency_is_likelier() {
        for seed in 1..200_u64 {
            let number = |k: u64| ((seed * 7_919 + k * 104_729) % 1_009) as f64;
            let points: Vec<Point> = (0..seed % 9 + 1)
                .map(|k| point(number(k) * (seed % 3 + 1) as f64, 1.0 + number(k + 50) % 3.0, 0.06))
                .collect();
            let found = most_likely(&points, &stalls()).unwrap();
            let best = log_likelihood(&points, found, &stalls());
            for k in -10..=10 {
                let near = found * (f64::from(k) * 0.002).exp();
                assert!(
                    log_likelihood(&points, near, &stalls()) < best + 0.05,
                    "{points:?}: {near}, {found}"
                );
            }
        }
    }

    /// Points that agree on a frequency, stalled ones among them: samples, M and whether it may well be stalled.
    fn agreeing(
        frequency: f64,
        free: &[(u8, f64)],
        stalled: &[(u8, f64)],
    ) -> impl Iterator<Item = (f64, f64, f64)> {
        let free = free.iter().map(move |&(m, chance)| {
            let mean = frequency * f64::from(m);
            (mean + chance * mean.sqrt(), f64::from(m), 0.06)
        });
        let stalled =
            stalled.iter().map(move |&(m, cycles)| (frequency * (f64::from(m) + cycles), f64::from(m), 0.2));
        free.chain(stalled)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// As many times the samples, as many times the frequency, from where chance is small.
        #[test]
        fn frequencies_scale_with_samples(
            free in prop::collection::vec((1u8..8, -1.0f64..1.0), 2..10),
            stalled in prop::collection::vec((1u8..8, 3.0f64..100.0), 0..3),
            frequency in 1e4f64..1e6,
            times in 1.0f64..1e4,
        ) {
            let of = |scale: f64| {
                let points: Vec<Point> =
                    agreeing(frequency * scale, &free, &stalled).map(|(s, m, prior)| point(s, m, prior)).collect();
                most_likely(&points, &stalls()).unwrap() / scale
            };
            let (once, scaled) = (of(1.0), of(times));
            prop_assert!((scaled / once).ln().abs() < 0.02, "{} becomes {}", once, scaled);
        }

        /// Slots of half a cycle instead of cycles: half the frequency in them. Where points disagree another of several
        /// peaks may come out, since stalls are told in cycles and weigh a little otherwise.
        #[test]
        fn the_unit_of_cycles_does_not_matter(
            free in prop::collection::vec((1u8..8, -1.0f64..1.0), 2..10),
            stalled in prop::collection::vec((1u8..8, 3.0f64..100.0), 0..3),
            frequency in 1e2f64..1e6,
            times in 0.25f64..4.0,
        ) {
            let of = |times: f64| {
                let points: Vec<Point> = agreeing(frequency, &free, &stalled)
                    .map(|(samples, m, prior)| point(samples, m * times, prior))
                    .collect();
                let stalls = Stalls { cycles_max: stalls().cycles_max * times, ..stalls() };
                most_likely(&points, &stalls).unwrap() * times
            };
            let (one, other) = (of(1.0), of(times));
            prop_assert!((other / one).ln().abs() < 0.005, "{} becomes {}", one, other);
        }
    }

    #[test]
    fn extremes_have_a_likelihood() {
        let points = [point(0.0, 0.5, 0.0), point(9e18, 1.0, 1.0), point(1.0, 400.0, 0.5)];
        for f in [0.0, 1e-300, 1e-9, 1.0, 1e19] {
            assert!(log_likelihood(&points, f, &stalls()).is_finite(), "{f}");
        }
        assert_eq!(most_likely(&[], &stalls()), None);
    }
}
