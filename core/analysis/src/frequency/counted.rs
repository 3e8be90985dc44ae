//! Executions that hardware breakpoints counted in windows of time.
//!
//! Input: counted instructions. Output: what they say of each class. Complexity: linear. Only counts of one group are on
//! one scale; a procedure's fit takes the group that is surest of it.

use std::collections::BTreeMap;

use super::{Evidence, likely_flow::Count};
use crate::Counted;

/// What was counted of each class: of several instructions of one the mean, by their certainty.
pub fn counts(evidence: &Evidence) -> Vec<Count> {
    let Evidence { cfg, equivalence, counted, .. } = *evidence;
    let Some(group) = surest_group(counted) else { return Vec::new() };
    let mut sums: BTreeMap<usize, (usize, f64, f64)> = BTreeMap::new();
    for counted in sound(counted).filter(|c| c.group == group) {
        let block = cfg.blocks.partition_point(|b| b.end <= counted.at);
        let Some(&class) = equivalence.block_class.get(block) else { continue };
        let (_, logs, total) = sums.entry(class).or_insert((block, 0.0, 0.0));
        *logs += certainty(counted) * counted.executions.ln();
        *total += certainty(counted);
    }
    let of = |(block, logs, total): (usize, f64, f64)| Count {
        block,
        samples: (logs / total).exp(),
        exposure: 1.0,
        independent: f64::INFINITY,
        error: total.sqrt().recip(),
    };
    let counts: Vec<Count> = sums.into_values().map(of).collect();
    debug_assert_eq!(verify_counts(&counts, counted), Ok(()));
    counts
}

/// Checks that a mean lies between the least and the most that was counted, and is no less sure than the surest.
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

/// The counts that can be counted with.
pub fn sound(counted: &[Counted]) -> impl Iterator<Item = &Counted> {
    counted.iter().filter(|c| c.is_sound())
}

fn certainty(counted: &Counted) -> f64 {
    1.0 / (counted.deviation * counted.deviation)
}

fn surest_group(counted: &[Counted]) -> Option<usize> {
    let mut groups: BTreeMap<usize, f64> = BTreeMap::new();
    sound(counted).for_each(|c| *groups.entry(c.group).or_default() += certainty(c));
    groups.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(group, _)| group)
}
