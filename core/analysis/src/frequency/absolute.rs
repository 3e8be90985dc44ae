//! Executions that were counted while the program ran undisturbed.
//!
//! Input: absolute counts of instructions. Output: one count for each class, all on one scale, which is that of the flow;
//! how well the fitted flow agrees with them, and how certain it can be at most. Complexity: O(n log n). Unlike the windows
//! of [`counted`](super::counted) these counts have a known scale, so they fix the flow's.
//!
//! The counts of a procedure were taken during the same part of the run, so most of their error is that of this part and
//! common to all of them. A mean over many of them has it as well.

use std::collections::BTreeMap;

use super::{
    Evidence,
    likely_flow::{Count, Flow},
};
use crate::AbsoluteCount;

/// The least relative error of a count, which stands for the whole run but was taken during most of it only.
const ERROR_MIN: f64 = 0.01;

/// The counts of a class.
struct ClassCounts {
    /// One of its counted blocks.
    block: usize,
    /// Sums over its counts of certainty times the logarithm of the frequency, and of certainty.
    logs: f64,
    certainty: f64,
    /// The error of its most certain count.
    error: f64,
}

/// Returns one count for each counted class: the mean over its counted instructions, weighted by certainty. It is as
/// certain as the most certain one of them. `scale` is the number of their scale.
pub fn counts(evidence: &Evidence, scale: usize) -> Vec<Count> {
    let Evidence { cfg, equivalence, absolute, .. } = *evidence;
    let mut classes: BTreeMap<usize, ClassCounts> = BTreeMap::new();
    for count in absolute.iter().filter(|c| c.is_sound()) {
        let block = cfg.blocks.partition_point(|b| b.end <= count.at);
        let Some(&class) = equivalence.block_class.get(block) else { continue };
        let none = ClassCounts { block, logs: 0.0, certainty: 0.0, error: f64::INFINITY };
        let of_class = classes.entry(class).or_insert(none);
        let (error, certainty) = (error(count), error(count).powi(-2));
        of_class.logs += certainty * count.frequency.ln();
        of_class.certainty += certainty;
        of_class.error = of_class.error.min(error);
    }
    let of = |ClassCounts { block, logs, certainty, error }: ClassCounts| Count {
        block,
        samples: (logs / certainty).exp(),
        exposure: 1.0,
        independent: f64::INFINITY,
        error,
        scale,
    };
    classes.into_values().map(of).collect()
}

/// Returns the least standard deviation of the logarithm of any frequency that is derived from these counts: that of the
/// most certain one of them; 0 without counts.
pub fn least_deviation(evidence: &Evidence) -> f64 {
    let errors = evidence.absolute.iter().filter(|c| c.is_sound()).map(error);
    errors.reduce(f64::min).unwrap_or(0.0)
}

/// Returns the number of absolute counts.
pub fn number(evidence: &Evidence) -> u64 {
    evidence.absolute.iter().filter(|c| c.is_sound()).count() as u64
}

/// Returns whether counters in the procedure's code are among them.
pub fn is_in_code(evidence: &Evidence) -> bool {
    evidence.absolute.iter().any(|c| c.is_sound() && c.in_code)
}

/// Returns the factor, at least 1, by which the errors of the counts are too small to explain their distance from the
/// flow that fits them best (R. T. Birge, Physical Review 40, 1932).
pub fn disagreement(counts: &[Count], flow: &Flow) -> f64 {
    let freedom = counts.len().saturating_sub(1);
    if freedom == 0 {
        return 1.0;
    }
    let square = |c: &Count| {
        let frequency = flow.blocks[c.block].max(f64::MIN_POSITIVE);
        ((c.samples / frequency).ln() / c.error).powi(2)
    };
    let sum: f64 = counts.iter().map(square).sum();
    (sum / freedom as f64).sqrt().max(1.0)
}

/// Returns the relative error of a count.
fn error(count: &AbsoluteCount) -> f64 {
    count.deviation.max(ERROR_MIN)
}
