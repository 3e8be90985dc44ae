//! Executions that hardware breakpoints counted in windows of time.
//!
//! Input: counted instructions. Output: a count for each class and group. Complexity: O(n log n). Only counts of the same
//! group are on the same scale.

use std::collections::BTreeMap;

use super::{Evidence, likely_flow::Count};
use crate::Counted;

/// Returns one count for each class and group: the mean over its counted instructions, weighted by certainty. The groups'
/// scales are numbered from `scale` on.
pub fn counts(evidence: &Evidence, scale: usize) -> Vec<Count> {
    let Evidence { cfg, equivalence, counted, .. } = *evidence;
    let mut groups: BTreeMap<usize, BTreeMap<usize, (usize, f64, f64)>> = BTreeMap::new();
    for counted in sound(counted) {
        let block = cfg.blocks.partition_point(|b| b.end <= counted.at);
        let Some(&class) = equivalence.block_class.get(block) else { continue };
        let classes = groups.entry(counted.group).or_default();
        let (_, logs, total) = classes.entry(class).or_insert((block, 0.0, 0.0));
        *logs += certainty(counted) * counted.executions.ln();
        *total += certainty(counted);
    }
    let of = |(scale, (block, logs, total)): (usize, (usize, f64, f64))| Count {
        block,
        samples: (logs / total).exp(),
        exposure: 1.0,
        independent: f64::INFINITY,
        error: total.sqrt().recip(),
        scale,
    };
    let by_group = (scale..).zip(groups.into_values());
    let by_class = by_group.flat_map(|(scale, sums)| sums.into_values().map(move |sum| (scale, sum)));
    let counts: Vec<Count> = by_class.map(of).collect();
    debug_assert_eq!(verify_counts(&counts, counted), Ok(()));
    counts
}

/// Checks that each mean lies between the least and the greatest count, and that its error is at most the greatest.
fn verify_counts(counts: &[Count], counted: &[Counted]) -> Result<(), String> {
    let range = sound(counted)
        .fold((f64::INFINITY, 0.0_f64), |(least, most), c| (least.min(c.executions), most.max(c.executions)));
    let slack = 1.0 + 1e-9;
    let error_max = sound(counted).map(|c| c.deviation).fold(0.0, f64::max) * slack;
    let is_sound = |c: &Count| {
        range.0 <= c.samples * slack && c.samples <= range.1 * slack && c.error > 0.0 && c.error <= error_max
    };
    match counts.iter().find(|c| !is_sound(c)) {
        Some(count) => Err(format!("{count:?} of counts in {range:?}")),
        None => Ok(()),
    }
}

/// Returns the counts that are finite and positive.
pub fn sound(counted: &[Counted]) -> impl Iterator<Item = &Counted> {
    counted.iter().filter(|c| c.is_sound())
}

fn certainty(counted: &Counted) -> f64 {
    1.0 / (counted.deviation * counted.deviation)
}
