//! Bursts whose time is known, which fix the scale of a program's procedures.
//!
//! Input: what each timed burst executed, by procedure, and how long it took. Output: rows of the problem of scales.
//! Complexity: linear in the pairs of a burst and a procedure.
//!
//! A procedure's own estimate is F = executions / period, with the period in cycles, and its time samples S are cycles /
//! period, so S / F(transfers) is its cycles per transfer, whatever the period is. Its true frequencies are e^l F, so n
//! transfers of a burst take n e^-l S / F(transfers) cycles. Summed over procedures this is the burst's time.

use super::{Shape, bursts::Bursts, is_sound};

/// Least number of bursts with a known time from which a scale is derived. Four may all be in the same phase of a program.
const TIMED_MIN: usize = 5;
/// Least part of a burst's transfers that must be in the procedures that are analysed.
const PART_MIN: f64 = 0.5;
/// Standard deviation of the logarithm of a burst's time over that of its procedures: the time of the same code varies.
const TIME_DEVIATION: f64 = 0.15;
/// Standard deviation of the error that all bursts have in common: they are short, of one run, and shortly after a stop.
const COMMON_DEVIATION: f64 = 0.04;
/// Standard deviation of the logarithm of the time for a transfer in other code over that in the procedures.
const FOREIGN_DEVIATION: f64 = 0.5;
/// Standard deviation of the logarithm of the time for a transfer in recordings without timed bursts over that in those
/// with them.
const UNCOVERED_DEVIATION: f64 = 0.3;

/// The time of a timed burst that is largely in the procedures.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The cycles that each procedure takes for its transfers by its own estimate.
    pub cycles: Vec<(usize, f64)>,
    /// Logarithm of the cycles that all of them took.
    pub cycles_log: f64,
    /// Variance of the logarithm of their time by the estimates over that time.
    pub variance: f64,
    /// Standard deviation of the part of its error that all timings have in common.
    pub common_deviation: f64,
}

/// Returns the timings of the bursts whose time is known; none if there are too few to fix a scale.
pub fn timings(shapes: &[Shape], bursts: &Bursts) -> Vec<Timing> {
    let mut cycles = vec![Vec::new(); bursts.all.len()];
    let mut transfers = vec![0.0; bursts.all.len()];
    for (procedure, shape) in shapes.iter().enumerate() {
        let of_transfer = shape.samples / shape.transfers;
        let is_known = is_sound(shape.transfers) && is_sound(of_transfer);
        for part in shape.parts.iter().filter(|part| is_known && is_sound(part.stepped)) {
            cycles[part.burst].push((procedure, part.stepped * of_transfer));
            transfers[part.burst] += part.transfers;
        }
    }
    let mut timings = Vec::new();
    for ((burst, cycles), own) in bursts.all.iter().zip(cycles).zip(transfers) {
        let part = own / burst.transfers;
        timings.extend(burst.cycles.and_then(|all| timing(all, cycles, part, bursts.uncovered_part)));
    }
    if timings.len() < TIMED_MIN { Vec::new() } else { timings }
}

/// Returns the timing of a burst that took this time, with `part` of its transfers in these procedures.
fn timing(burst_cycles: f64, cycles: Vec<(usize, f64)>, part: f64, uncovered_part: f64) -> Option<Timing> {
    let is_known = part >= PART_MIN && is_sound(burst_cycles) && is_sound(part);
    let part = part.min(1.0);
    let foreign = FOREIGN_DEVIATION * (1.0 - part);
    let uncovered = UNCOVERED_DEVIATION * uncovered_part.clamp(0.0, 1.0);
    is_known.then(|| Timing {
        cycles,
        cycles_log: (burst_cycles * part).ln(),
        variance: TIME_DEVIATION * TIME_DEVIATION + foreign * foreign,
        common_deviation: COMMON_DEVIATION.hypot(foreign).hypot(uncovered),
    })
}

/// Returns the median of the logarithms by which the procedures' own estimates of the bursts' times are too long; 0 without
/// timings.
pub fn median_log(timings: &[Timing]) -> f64 {
    median(timings.iter().map(|t| t.cycles.iter().map(|c| c.1).sum::<f64>().ln() - t.cycles_log))
}

/// Returns the median of some numbers, the mean of two in the middle; 0 if there are none.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.get(middle.saturating_sub(1 - numbers.len() % 2)..=middle) {
        Some(middle) => middle.iter().sum::<f64>() / middle.len() as f64,
        None => 0.0,
    }
}
