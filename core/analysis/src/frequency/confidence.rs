//! How far to trust an estimate (DCPI §6.1.5): by the number of issue points it rests on, how tightly their ratios
//! cluster, its samples, and whether it was propagated. The paper gives no constants; ours are named here.
//!
//! Input: a class's points or clusters, and the frequency that was found. Output: low, medium or high. Complexity: linear
//! in points, times a bounded number of frequencies.

use super::{
    cluster::Found,
    mixture::{self, Point, Stalls},
};
use crate::{Confidence, machine::Order};

const HIGH_POINTS_MIN: usize = 3;
const HIGH_SAMPLES_MIN: f64 = 400.0;
const HIGH_SPREAD_MAX: f64 = 1.25;
const MEDIUM_POINTS_MIN: usize = 2;
const MEDIUM_SAMPLES_MIN: f64 = 50.0;

/// Of an estimate from a class's clusters. Out of order cycles alone tell frequencies apart badly: always low.
pub fn of_cluster(found: &Found, order: Order) -> Confidence {
    if order == Order::OutOfOrder || found.is_anomalous {
        return Confidence::Low;
    }
    let is_high = found.points >= HIGH_POINTS_MIN
        && found.samples >= HIGH_SAMPLES_MIN
        && found.spread <= HIGH_SPREAD_MAX;
    let is_medium = found.points >= MEDIUM_POINTS_MIN && found.samples >= MEDIUM_SAMPLES_MIN;
    match (is_high, is_medium) {
        (true, _) => Confidence::High,
        (_, true) => Confidence::Medium,
        _ => Confidence::Low,
    }
}

/// Of a sum or a difference of others: medium at best.
pub fn of_propagated(sources: impl Iterator<Item = Confidence>) -> Confidence {
    sources.min().unwrap_or(Confidence::Low).min(Confidence::Medium)
}

/// Of a class at the frequency that fits the whole procedure: by the free points' samples, by the width of what its
/// points leave possible, and by how far `own`, their most likely frequency, agrees with the flow. What was counted is among the
/// points: it never stalls.
pub fn of_mixture(points: &[Point], own: Option<f64>, frequency: f64, stalls: &Stalls) -> Confidence {
    let Some(own) = own.filter(|_| frequency > 0.0) else {
        return Confidence::Low;
    };
    let disagreement = (own / frequency).ln().abs();
    // What costs most comes last: many are low without it.
    if disagreement > MEDIUM.disagreement_max {
        return Confidence::Low;
    }
    let (samples, _) = mixture::free_part(points, frequency, stalls);
    if samples < MEDIUM.samples_min {
        return Confidence::Low;
    }
    let variance = mixture::log_variance(points, frequency, stalls);
    let satisfies = |bounds: &Bounds| {
        samples >= bounds.samples_min
            && variance <= bounds.variance_max
            && disagreement <= bounds.disagreement_max
    };
    match () {
        () if satisfies(&HIGH) => Confidence::High,
        () if satisfies(&MEDIUM) => Confidence::Medium,
        () => Confidence::Low,
    }
}

/// What an estimate must satisfy.
struct Bounds {
    /// Samples of points free of stalls.
    samples_min: f64,
    /// Variance of the logarithm of the frequency.
    variance_max: f64,
    /// Logarithm of the class's own estimate over the flow's.
    disagreement_max: f64,
}

/// What [`of_mixture`] refuses for medium it need not try for high.
const _: () = assert!(
    HIGH.samples_min >= MEDIUM.samples_min
        && HIGH.variance_max <= MEDIUM.variance_max
        && HIGH.disagreement_max <= MEDIUM.disagreement_max
);

/// Two standard errors are 10%, and so is twice the disagreement. On the programs of role "tune", with a sample for every 500, 5,000
/// and 25,000 cycles, 98% of the samples so marked are within 10% of the truth and all within 15% …
const HIGH: Bounds = Bounds { samples_min: 400.0, variance_max: 0.05 * 0.05, disagreement_max: 0.05 };
/// … here two standard errors are 15%, and all are within that. With a variance of 0.01, as that of a hundred samples is, and a
/// disagreement of 0.1, of those off by more than 15% only 90 to 100% were low.
const MEDIUM: Bounds = Bounds { samples_min: 178.0, variance_max: 0.075 * 0.075, disagreement_max: 0.07 };
