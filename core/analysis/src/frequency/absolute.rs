//! Executions that were counted while the program ran undisturbed.
//!
//! Input: absolute counts of instructions. Output: one for each class, all of one scale, which is the scale of the flow; and how well the
//! fitted flow agrees with them. Complexity: O(n log n). They differ from [`counted`](super::counted) windows in that their scale
//! is known, so that they fix the flow's.

use std::collections::BTreeMap;

use super::{
    Evidence,
    likely_flow::{Count, Flow},
};
use crate::AbsoluteCount;

/// No count is surer than this: it stands for the whole run, and was taken during most of it.
const ERROR_MIN: f64 = 0.01;

/// What was counted of each class; of several instructions of one the mean, by their certainty. `scale` is the number of their
/// scale.
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

/// How many there are.
pub fn number(evidence: &Evidence) -> u64 {
    evidence.absolute.iter().filter(|c| c.is_sound()).count() as u64
}

/// By how much the counts disagree with the flow that fits them best, in units of their own errors, and no less than 1: the factor by
/// which their errors were too small (R. T. Birge, Physical Review 40, 1932).
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
