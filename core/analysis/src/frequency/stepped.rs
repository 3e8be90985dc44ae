//! Executions of blocks in path bursts.
//!
//! Input: transfers of control seen in bursts. Output: how often each class was executed in them, and how sure that is.
//! Complexity: linear. A burst is a sample of executions, so that counts in it say how often code ran, loops that no
//! burst left and entered another from included: the probabilities of branches tell their trip counts only by the few
//! bursts that crossed over. Settings were chosen on the programs of role "tune" (docs/measured.md).

use rustc_hash::FxHashSet;

use super::{Evidence, likely_flow::Count};
use crate::cfg::{CfgEdge, EdgeKind};

/// Executions in a burst that are worth one: what a burst does again and again it does alike.
const ALIKE: f64 = 8.0;
/// What remains however many bursts there are: they begin at random times, which slow phases have more of.
const ERROR: f64 = 0.05;

/// What bursts counted of each class of which they tell it.
pub fn counts(evidence: &Evidence) -> Vec<Count> {
    if !evidence.transfers.iter().any(|t| t.is_sound()) {
        return Vec::new();
    }
    let mut left = vec![0.0; evidence.samples.len()];
    for transfer in evidence.transfers.iter().filter(|t| t.is_sound()) {
        left.get_mut(transfer.from).into_iter().for_each(|n| *n += transfer.count);
    }
    let by_class = evidence.equivalence.blocks_by_class();
    let of = |blocks: &Vec<usize>| {
        let told = blocks.iter().filter_map(|&b| told(evidence, b)).map(|i| left[i]);
        let (sum, number) = told.fold((0.0, 0.0), |(sum, number), n| (sum + n, number + 1.0));
        let block = *blocks.first().filter(|_| number > 0.0)?;
        Some(Count { block, samples: sum / number, exposure: 1.0, independent: 1.0 / ALIKE, error: ERROR })
    };
    let counts: Vec<Count> = by_class.iter().filter_map(of).collect();
    debug_assert_eq!(verify_counts(&counts, evidence), Ok(()));
    counts
}

/// Checks that a class is counted once, and no more often than control was transferred at all.
fn verify_counts(counts: &[Count], evidence: &Evidence) -> Result<(), String> {
    let all: f64 = evidence.transfers.iter().filter(|t| t.is_sound()).map(|t| t.count).sum();
    let mut classes = FxHashSet::default();
    let mut is_sound = |c: &&Count| {
        let is_new = classes.insert(evidence.equivalence.block_class[c.block]);
        is_new && (0.0..=all * (1.0 + 1e-9)).contains(&c.samples)
    };
    match counts.iter().find(|c| !is_sound(c)) {
        Some(count) => Err(format!("{count:?} of {all} transfers")),
        None => Ok(()),
    }
}

/// The last instruction of a block, if each way out of it is a transfer within the procedure.
fn told(evidence: &Evidence, block: usize) -> Option<usize> {
    let cfg = evidence.cfg;
    let is_transfer = |e: &CfgEdge| {
        let is_kept =
            matches!(e.kind, EdgeKind::Taken | EdgeKind::NotTaken | EdgeKind::Jump | EdgeKind::Table);
        is_kept && e.to < cfg.blocks.len()
    };
    let out = &cfg.successors[block];
    let is_told = !out.is_empty() && out.iter().all(|&e| is_transfer(&cfg.edges[e]));
    is_told.then_some(cfg.blocks[block].end - 1)
}
