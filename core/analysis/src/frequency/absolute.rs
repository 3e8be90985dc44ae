//! Executions that were counted while the program ran undisturbed.
//!
//! Input: absolute counts of instructions. Output: one count for each class, all on one scale, which is that of the flow;
//! and how well the fitted flow agrees with them. Complexity: O(n log n). Unlike the windows of
//! [`counted`](super::counted) these counts have a known scale, so they fix the flow's.

use std::collections::BTreeMap;

use super::{
    Evidence,
    likely_flow::{Count, Flow},
};
use crate::AbsoluteCount;

/// The least relative error of a count, which stands for the whole run but was taken during most of it only.
const ERROR_MIN: f64 = 0.01;

/// Returns one count for each counted class: the mean over its counted instructions, weighted by certainty. `scale` is
/// the number of their scale.
pub fn counts(evidence: &Evidence, scale: usize) -> Vec<Count> {
    let Evidence { cfg, equivalence, absolute, .. } = *evidence;
    let mut classes: BTreeMap<usize, (usize, f64, f64)> = BTreeMap::new();
    for count in absolute.iter().filter(|c| c.is_sound()) {
        let block = cfg.blocks.partition_point(|b| b.end <= count.at);
        let Some(&class) = equivalence.block_class.get(block) else { continue };
        let (_, logs, total) = classes.entry(class).or_insert((block, 0.0, 0.0));
        let certainty = certainty(count);
        *logs += certainty * count.frequency.ln();
        *total += certainty;
    }
    let of = |(block, logs, total): (usize, f64, f64)| Count {
        block,
        samples: (logs / total).exp(),
        exposure: 1.0,
        independent: f64::INFINITY,
        error: total.sqrt().recip(),
        scale,
    };
    classes.into_values().map(of).collect()
}

/// Returns the number of absolute counts.
pub fn number(evidence: &Evidence) -> u64 {
    evidence.absolute.iter().filter(|c| c.is_sound()).count() as u64
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

fn certainty(count: &AbsoluteCount) -> f64 {
    let error = count.deviation.max(ERROR_MIN);
    1.0 / (error * error)
}
