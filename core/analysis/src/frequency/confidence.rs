//! How far to trust an estimate (DCPI §6.1.5): by the number of issue points that it is based on, how closely their
//! ratios agree, its samples, and whether it was propagated. The paper gives no constants; ours are named here.
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

/// Returns the confidence in an estimate from clusters. Out of order it is always low, since cycles alone say little
/// about frequencies.
pub fn from_cluster(found: &Found, order: Order) -> Confidence {
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

/// Returns the confidence in a sum or difference of other estimates: medium at best.
pub fn from_propagated(sources: impl Iterator<Item = Confidence>) -> Confidence {
    sources.min().unwrap_or(Confidence::Low).min(Confidence::Medium)
}

/// Returns the confidence in a class's frequency from the flow: by the samples of its stall-free points, by the width of
/// what its points leave possible, and by how well `own`, their most likely frequency, agrees with it. Counts are among
/// the points, as points that never stall.
pub fn from_mixture(points: &[Point], own: Option<f64>, frequency: f64, stalls: &Stalls) -> Confidence {
    let Some(own) = own.filter(|_| frequency > 0.0) else {
        return Confidence::Low;
    };
    let disagreement = (own / frequency).ln().abs();
    // The most expensive criterion comes last; many estimates are low without it.
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

/// The criteria of a level of confidence.
struct Bounds {
    /// The least samples of stall-free points.
    samples_min: f64,
    /// The greatest variance of the logarithm of the frequency.
    variance_max: f64,
    /// The greatest logarithm of the class's own estimate over the flow's.
    disagreement_max: f64,
}

/// An estimate that fails the criteria for medium also fails those for high: [`from_mixture`] relies on that.
const _: () = assert!(
    HIGH.samples_min >= MEDIUM.samples_min
        && HIGH.variance_max <= MEDIUM.variance_max
        && HIGH.disagreement_max <= MEDIUM.disagreement_max
);

/// The criteria for high: two standard errors are 10%, and so is twice the disagreement. On the programs of role "tune",
/// with a sample for every 500, 5,000 and 25,000 cycles, 98% of the samples so marked are within 10% of the truth and all
/// within 15%.
const HIGH: Bounds = Bounds { samples_min: 400.0, variance_max: 0.05 * 0.05, disagreement_max: 0.05 };
/// The criteria for medium: two standard errors are 15%, and all samples so marked are within that. With a variance of
/// 0.01, which a hundred samples have, and a disagreement of 0.1, only 90 to 100% of the samples off by more than 15%
/// were low.
const MEDIUM: Bounds = Bounds { samples_min: 178.0, variance_max: 0.075 * 0.075, disagreement_max: 0.07 };
