//! Tests whether sample counts differ by more than chance.
//!
//! Input: counts with their exposures (how long or how much was sampled). Output: ratios and probabilities. This module
//! knows nothing about profiles.
//!
//! Samples of one run have a Poisson distribution. Several runs of one program vary more than that (page colours, other
//! programs, clocks: DCPI §3.3 saw 11% on wave5). Groups of runs are therefore compared by a quasi-Poisson model: the
//! variance is the mean times a dispersion, which is estimated from the runs themselves. See P. McCullagh and J. A. Nelder,
//! *Generalized Linear Models*, 2nd ed., 1989, chapters 6 and 9; the F test of the difference of deviances is the one in S.
//! P. Lund et al., *Statistical Applications in Genetics and Molecular Biology* 11(5), 2012.
//!
//! With one run on each side, the dispersion is unknown. Then the exact conditional test of two Poisson counts is used (J.
//! Przyborowski and H. Wilenski, *Biometrika* 31, 1940), which accounts for sampling noise only. Complexity: linear in the
//! counts.

use statrs::function::beta::beta_reg;

/// Count and exposure of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// Number of samples.
    pub count: u64,
    /// Quantity that the expected count is proportional to; positive.
    pub exposure: f64,
}

/// Result of comparing two groups of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Samples per exposure of the second group over those of the first; `None` if the first group has no samples.
    pub ratio: Option<f64>,
    /// Variance over mean within the groups; `None` with one run on each side, where it is unknown.
    pub dispersion: Option<f64>,
    /// Probability that chance alone makes a difference at least this large.
    pub p: f64,
}

/// Compares two groups of runs. Neither group may be empty.
pub fn compare(first: &[Observed], second: &[Observed]) -> Comparison {
    assert!(!first.is_empty() && !second.is_empty(), "groups of runs");
    let (a, b) = (Sum::new(first), Sum::new(second));
    let ratio = (a.count > 0.0).then(|| b.rate() / a.rate());
    let freedom = first.len() + second.len() - 2;
    if a.count + b.count == 0.0 {
        return Comparison { ratio, dispersion: None, p: 1.0 };
    }
    if freedom == 0 {
        return Comparison { ratio, dispersion: None, p: exact(&a, &b) };
    }
    let pearson = first.iter().map(|o| o.excess(a.rate())).sum::<f64>()
        + second.iter().map(|o| o.excess(b.rate())).sum::<f64>();
    // The true dispersion is at least 1, that of pure chance; a smaller estimate is itself chance.
    let dispersion = (pearson / freedom as f64).max(1.0);
    let f = deviance(&a, &b) / dispersion;
    Comparison { ratio, dispersion: Some(dispersion), p: f_upper_tail(f, 1.0, freedom as f64) }
}

/// Returns the probability that chance alone makes a change at least as large as the one from `a` to `b`. The whole that
/// both are parts of varies from run to run by `dispersion`, which was estimated with `freedom` degrees of freedom.
pub fn compare_given(a: Observed, b: Observed, dispersion: Option<f64>, freedom: usize) -> f64 {
    let (a, b) = (Sum::new(&[a]), Sum::new(&[b]));
    match dispersion {
        _ if a.count + b.count == 0.0 => 1.0,
        Some(dispersion) if freedom > 0 => f_upper_tail(deviance(&a, &b) / dispersion, 1.0, freedom as f64),
        _ => exact(&a, &b),
    }
}

/// Returns for each of many comparisons the false discovery rate at which it would be called a difference: Y. Benjamini and
/// Y. Hochberg, *Journal of the Royal Statistical Society B* 57(1), 1995. Complexity: O(n log n).
pub fn false_discovery_rates(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let mut rates = vec![1.0; p.len()];
    let mut least: f64 = 1.0;
    for (below, &i) in order.iter().enumerate() {
        let rank = p.len() - below;
        least = least.min(p[i] * p.len() as f64 / rank as f64);
        rates[i] = least;
    }
    rates
}

/// Sum of a group's counts and exposures.
struct Sum {
    count: f64,
    exposure: f64,
}

impl Sum {
    fn new(group: &[Observed]) -> Sum {
        assert!(group.iter().all(|o| o.exposure > 0.0), "{group:?}");
        Sum {
            count: group.iter().map(|o| o.count as f64).sum(),
            exposure: group.iter().map(|o| o.exposure).sum(),
        }
    }

    fn rate(&self) -> f64 {
        self.count / self.exposure
    }

    /// Returns twice the group's term of the log-likelihood, given a rate.
    fn twice_log_likelihood(&self, rate: f64) -> f64 {
        if self.count > 0.0 { 2.0 * self.count * rate.ln() } else { 0.0 }
    }
}

impl Observed {
    /// Returns the group's term of Pearson's statistic.
    fn excess(&self, rate: f64) -> f64 {
        let mean = rate * self.exposure;
        if mean > 0.0 { (self.count as f64 - mean).powi(2) / mean } else { 0.0 }
    }
}

/// Returns the deviance: how much worse one common rate fits than two rates.
fn deviance(a: &Sum, b: &Sum) -> f64 {
    let rate = (a.count + b.count) / (a.exposure + b.exposure);
    let two = a.twice_log_likelihood(a.rate()) + b.twice_log_likelihood(b.rate());
    (two - a.twice_log_likelihood(rate) - b.twice_log_likelihood(rate)).max(0.0)
}

/// Given the sum of two Poisson counts, the first has a binomial distribution. Returns twice its smaller tail.
fn exact(a: &Sum, b: &Sum) -> f64 {
    let (k, n) = (a.count, a.count + b.count);
    let p = a.exposure / (a.exposure + b.exposure);
    let at_most = if k >= n { 1.0 } else { beta_reg(n - k, k + 1.0, 1.0 - p) };
    let at_least = if k <= 0.0 { 1.0 } else { beta_reg(k, n - k + 1.0, p) };
    (2.0 * at_most.min(at_least)).min(1.0)
}

/// Returns the upper tail of Fisher's F distribution: the probability of a value above `f`.
fn f_upper_tail(f: f64, above: f64, below: f64) -> f64 {
    beta_reg(below / 2.0, above / 2.0, below / (below + above * f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(counts: &[u64]) -> Vec<Observed> {
        counts.iter().map(|&count| Observed { count, exposure: 1.0 }).collect()
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-3 * b.abs().max(1e-3), "{a} is not {b}");
    }

    #[test]
    fn known_values() {
        // From tables of F: the 5% point of (1, 10) is 4.965, of (1, 4) 7.709.
        near(f_upper_tail(4.965, 1.0, 10.0), 0.05);
        near(f_upper_tail(7.709, 1.0, 4.0), 0.05);
        // Binomial distribution: P(X ≤ 2 of 10 at a half) = 56/1024.
        near(compare(&runs(&[2]), &runs(&[8])).p, 2.0 * 56.0 / 1024.0);
        assert_eq!(compare(&runs(&[0]), &runs(&[0])).p, 1.0);
        assert_eq!(compare(&runs(&[0, 0]), &runs(&[9, 9])).ratio, None);
        assert_eq!(compare(&runs(&[5]), &runs(&[5])).p, 1.0);
    }

    #[test]
    fn exposure_explains_a_difference() {
        let long = [Observed { count: 2000, exposure: 2.0 }];
        let c = compare(&runs(&[1000]), &long);
        assert_eq!((c.ratio, c.dispersion), (Some(1.0), None));
        assert!(c.p > 0.9, "{c:?}");
    }

    #[test]
    fn variation_between_runs_is_no_difference() {
        // A Poisson test would call this a difference beyond doubt.
        let noisy = compare(&runs(&[900, 1400, 1000]), &runs(&[1500, 1000, 1300]));
        assert!(noisy.p > 0.2 && noisy.dispersion > Some(20.0), "{noisy:?}");
        let steady = compare(&runs(&[1000, 1010, 990]), &runs(&[1210, 1190, 1200]));
        assert!(steady.p < 0.01 && steady.dispersion == Some(1.0), "{steady:?}");
    }

    #[test]
    fn false_discovery_rates_match_known_values() {
        let q = false_discovery_rates(&[0.01, 0.04, 0.03, 0.5]);
        for (got, want) in q.iter().zip([0.04, 0.16 / 3.0, 0.16 / 3.0, 0.5]) {
            near(*got, want);
        }
        assert!(false_discovery_rates(&[]).is_empty());
    }

    /// A deterministic generator of pseudorandom numbers.
    struct Random(u64);

    impl Random {
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
        }

        /// Returns the count of a run of a program whose runs vary by 5% in addition to sampling noise.
        fn run(&mut self, mean: f64) -> u64 {
            let mean = mean * (1.0 + 0.05 * self.normal());
            (mean + mean.sqrt() * self.normal()).round().max(0.0) as u64
        }
    }

    /// Returns the share of 2,000 comparisons of five runs with five that are called a difference at 5%.
    fn called(mean_a: f64, mean_b: f64) -> f64 {
        let mut random = Random(7);
        let mut group = |mean| (0..5).map(|_| random.run(mean)).collect::<Vec<_>>();
        let calls = (0..2000).filter(|_| compare(&runs(&group(mean_a)), &runs(&group(mean_b))).p < 0.05);
        calls.count() as f64 / 2000.0
    }

    #[test]
    fn five_percent_of_equal_groups_and_most_unequal_ones_are_called_unequal() {
        // With few samples, an estimated dispersion below 1 is raised to 1, so fewer differences are called.
        for (mean, least) in [(100.0, 0.015), (1000.0, 0.03), (100_000.0, 0.035)] {
            let wrong = called(mean, mean);
            assert!((least..=0.065).contains(&wrong), "of equal groups of {mean}: {wrong}");
        }
        assert!(called(10_000.0, 11_500.0) > 0.9);
    }
}
