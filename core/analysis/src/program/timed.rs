//! Bursts whose time is known, which fix the scale of a program's procedures.
//!
//! Input: what each timed burst executed, by procedure, and how long it took. Output: rows of the problem of scales, and how
//! evenly bursts went through each procedure. Complexity: linear in the pairs of a burst and a procedure.
//!
//! A procedure's own estimate is F = executions / period, with the period in cycles, and its time samples S are cycles /
//! period, so S / F(transfers) is its cycles per transfer, whatever the period is. Its true frequencies are e^l F, so n
//! transfers of a burst take n e^-l S / F(transfers) cycles. Summed over procedures this is the burst's time.

use super::{Shape, is_sound};

/// Least number of bursts with a known time from which a scale is derived.
const BURSTS_MIN: usize = 3;
/// Least part of a burst's transfers that must be in the procedures that are analysed.
const PART_MIN: f64 = 0.5;
/// Standard deviation of the logarithm of a burst's time over that of its procedures: the time of the same code varies.
const TIME_DEVIATION: f64 = 0.15;
/// Standard deviation of the error that all bursts have in common: they are short, of one run, and shortly after a stop.
const COMMON_DEVIATION: f64 = 0.04;
/// Standard deviation of the logarithm of the time for a transfer in other code over that in the procedures.
const FOREIGN_DEVIATION: f64 = 0.5;
/// A procedure with this many times its part of timed bursts in other bursts runs when bursts cannot be timed, between system calls
/// for example.
const UNTIMED_TIMES_MAX: f64 = 2.0;
/// Number of standard errors by which a part must exceed that.
const ERRORS: f64 = 2.0;
/// Standard deviation of the logarithm of the time for a transfer in recordings without timed bursts over that in those
/// with them.
const UNCOVERED_DEVIATION: f64 = 0.3;

/// A path burst of which it is known how long the thread itself took for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedBurst {
    /// The CPU time that the thread took, in cycles.
    pub cycles: f64,
    /// Number of its transfers of control, in all code.
    pub transfers: f64,
}

/// The timed bursts of a selection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedBursts {
    /// The bursts. Others refer to them by their index.
    pub bursts: Vec<TimedBurst>,
    /// The part of the time samples, 0 to 1, that is in recordings without timed bursts.
    pub uncovered_part: f64,
    /// Number of transfers in other path bursts, in all code.
    pub untimed: f64,
    /// Number of these bursts; long ones count for more than short ones.
    pub untimed_bursts: f64,
}

/// A timed transfer says how often control left an instruction of a procedure in a timed burst, to one that is not simply the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedTransfer {
    /// Index of the burst.
    pub burst: usize,
    /// Index of the instruction that control left.
    pub from: usize,
    /// Control left it this often.
    pub count: f64,
}

/// The part of a timed burst that is in a procedure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedShape {
    /// Index of the burst.
    pub burst: usize,
    /// Number of transfers that [`Shape::transfers`] counts as well.
    pub stepped: f64,
    /// Number of all transfers.
    pub transfers: f64,
}

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

/// Returns the timings of bursts; none if there are too few to fix a scale.
pub fn timings(shapes: &[Shape], timed: &TimedBursts) -> Vec<Timing> {
    let mut cycles = vec![Vec::new(); timed.bursts.len()];
    let mut transfers = vec![0.0; timed.bursts.len()];
    for (procedure, shape) in shapes.iter().enumerate() {
        let of_transfer = shape.samples / shape.transfers;
        for part in shape.timed.iter().filter(|_| is_sound(shape.transfers) && is_sound(of_transfer)) {
            if let Some(all) = cycles.get_mut(part.burst).filter(|_| is_sound(part.stepped)) {
                all.push((procedure, part.stepped * of_transfer));
                transfers[part.burst] += part.transfers;
            }
        }
    }
    let all = timed.bursts.iter().zip(cycles).zip(transfers);
    let timings: Vec<Timing> =
        all.filter_map(|((burst, cycles), own)| timing(burst, cycles, own, timed.uncovered_part)).collect();
    if timings.len() < BURSTS_MIN { Vec::new() } else { timings }
}

/// Returns the timing of a burst whose procedures have `own` of its transfers.
fn timing(burst: &TimedBurst, cycles: Vec<(usize, f64)>, own: f64, uncovered_part: f64) -> Option<Timing> {
    let part = (own / burst.transfers).min(1.0);
    let is_known = part >= PART_MIN && is_sound(burst.cycles) && is_sound(own);
    let foreign = FOREIGN_DEVIATION * (1.0 - part);
    let uncovered = UNCOVERED_DEVIATION * uncovered_part.clamp(0.0, 1.0);
    is_known.then(|| Timing {
        cycles,
        cycles_log: (burst.cycles * part).ln(),
        variance: TIME_DEVIATION * TIME_DEVIATION + foreign * foreign,
        common_deviation: COMMON_DEVIATION.hypot(foreign).hypot(uncovered),
    })
}

/// Returns for each procedure the relative variance of its number of transfers in bursts, as far as that follows from the
/// differences between timed bursts: a procedure that only one of them went through could as well have been in none or two.
/// This is the variance of a ratio estimate from clusters (W. G. Cochran, Sampling Techniques, 1977, §6.4), for all
/// bursts together. It is 0 if there are too few timed bursts.
pub fn uneven_variances(shapes: &[Shape], timed: &TimedBursts) -> Vec<f64> {
    let parts = || shapes.iter().flat_map(|s| &s.timed).filter(|part| part.burst < timed.bursts.len());
    let mut of_burst = vec![0.0; timed.bursts.len()];
    parts().for_each(|part| of_burst[part.burst] += part.stepped);
    let bursts = of_burst.iter().filter(|n| is_sound(**n)).count();
    let all: f64 = of_burst.iter().sum();
    if bursts < BURSTS_MIN {
        return vec![0.0; shapes.len()];
    }
    let times = (shapes.iter().map(|s| s.stepped).sum::<f64>() / all).max(1.0);
    let of = |shape: &Shape| {
        let own: f64 = shape.timed.iter().map(|part| part.stepped).sum();
        if !is_sound(own) {
            return 1.0 / times;
        }
        let mut rest = of_burst.iter().map(|n| -n * own / all).collect::<Vec<f64>>();
        for part in &shape.timed {
            rest.get_mut(part.burst).into_iter().for_each(|rest| *rest += part.stepped);
        }
        let squares: f64 = rest.iter().map(|r| r * r).sum();
        squares / (own * own) * bursts as f64 / (bursts - 1) as f64 / times
    };
    shapes.iter().map(of).collect()
}

/// Returns the shape of all code that is in none of these procedures, in which there are `samples`: timed bursts went through it, too,
/// and its time is known by its samples as that of a procedure is. `None` without timed bursts, or if nothing is known of it.
pub fn rest(shapes: &[Shape], timed: &TimedBursts, samples: f64) -> Option<Shape> {
    let sum = |of: fn(&Shape) -> f64| shapes.iter().map(of).filter(|n| is_sound(*n)).sum::<f64>();
    let mut left: Vec<f64> = timed.bursts.iter().map(|burst| burst.transfers).collect();
    let mut stepped = 0.0;
    for part in shapes.iter().flat_map(|shape| &shape.timed) {
        left.get_mut(part.burst).into_iter().for_each(|left| *left -= part.transfers);
        stepped += part.stepped;
    }
    let parts: Vec<TimedShape> = (0..)
        .zip(&left)
        .filter(|(_, left)| is_sound(**left))
        .map(|(burst, left)| TimedShape { burst, stepped: *left, transfers: *left })
        .collect();
    // On the scale on which bursts count for the procedures.
    let own = parts.iter().map(|part| part.stepped).sum::<f64>() * sum(|s| s.stepped) / stepped;
    let transfers = samples * sum(|s| s.transfers) / sum(|s| s.samples);
    let untimed = (timed.untimed - shapes.iter().map(|s| s.untimed).sum::<f64>()).max(0.0);
    let is_known = is_sound(samples) && is_sound(own) && is_sound(transfers);
    is_known.then(|| Shape {
        transfers,
        stepped: own,
        headroom: f64::INFINITY,
        samples,
        timed: parts,
        untimed,
        ..Shape::default()
    })
}

/// Returns whether each procedure runs largely when bursts cannot be timed, so that timed bursts say little of it.
pub fn runs_untimed(shapes: &[Shape], timed: &TimedBursts) -> Vec<bool> {
    let all: f64 = timed.bursts.iter().map(|burst| burst.transfers).sum();
    let of = |shape: &Shape| {
        let own: f64 = shape.timed.iter().map(|part| part.transfers).sum();
        let part = shape.untimed / timed.untimed;
        // What a burst goes through is far from independent: as if it were all or nothing.
        let error = (part * (1.0 - part).max(0.0) / timed.untimed_bursts).sqrt();
        part - ERRORS * error > UNTIMED_TIMES_MAX * own / all
    };
    shapes.iter().map(of).collect()
}

/// Returns the median of the logarithms by which the procedures' own estimates of the bursts' times are too long; 0 without
/// timings.
pub fn median_log(timings: &[Timing]) -> f64 {
    median(timings.iter().map(|t| t.cycles.iter().map(|c| c.1).sum::<f64>().ln() - t.cycles_log))
}

/// Returns the median of some numbers, the greater one of two in the middle; 0 if there are none.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}
