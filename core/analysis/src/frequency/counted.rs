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
    sums.into_values().map(of).collect()
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
