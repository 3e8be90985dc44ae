//! How far to trust an estimate (DCPI §6.1.5): by the number of issue points it rests on, how tightly their ratios
//! cluster, its samples, and whether it was propagated. The paper gives no constants; ours are named here.

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

/// Of a class at the frequency that fits the whole procedure.
pub fn of_mixture(points: &[Point], frequency: f64, stalls: &Stalls) -> Confidence {
    let (samples, cycles) = mixture::free_part(points, frequency, stalls);
    let agrees = (samples / (frequency * cycles).max(f64::MIN_POSITIVE) - 1.0).abs() < 0.1;
    match samples {
        s if s >= HIGH_SAMPLES_MIN && points.len() >= HIGH_POINTS_MIN && agrees => Confidence::High,
        s if s >= MEDIUM_SAMPLES_MIN && points.len() >= MEDIUM_POINTS_MIN => Confidence::Medium,
        _ => Confidence::Low,
    }
}
