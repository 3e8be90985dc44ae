//! Executions of blocks in path bursts.
//!
//! Input: transfers of control observed in bursts: branches and jumps, and calls and returns if some led out of the
//! procedure. Output: how often each class was executed in them, with its certainty. Complexity: linear. A burst is a
//! sample of executions, so counts in it say how often code ran, including loops that no burst left for another: the
//! probabilities of branches would give their trip counts only by the few bursts that crossed over. Settings were chosen
//! on the programs of role "tune" (docs/measured.md).

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Evidence, likely_flow::Count};
use crate::{
    cfg::{Cfg, CfgEdge, EdgeKind},
    machine::OpcodeClass::{Branch, Call, Jump, Return},
};

/// Number of executions in a burst that count as one, because repetitions within a burst are alike.
const ALIKE: f64 = 8.0;
/// The relative error that remains however many bursts there are: they begin at random times, and slow phases have more
/// of these.
const ERROR: f64 = 0.05;

/// Returns the count of each class whose executions the transfers show.
pub fn counts(evidence: &Evidence) -> Vec<Count> {
    if !evidence.transfers.iter().any(|t| t.is_sound()) {
        return Vec::new();
    }
    let left = left(evidence);
    let by_class = evidence.equivalence.blocks_by_class();
    let of = |blocks: &Vec<usize>| {
        let counts = blocks.iter().flat_map(|&b| evidence.cfg.blocks[b].clone()).filter_map(|i| left[i]);
        let (sum, number) = counts.fold((0.0, 0.0), |(sum, number), n| (sum + n, number + 1.0));
        let block = *blocks.first().filter(|_| number > 0.0)?;
        Some(count(block, sum / number))
    };
    let counts: Vec<Count> = by_class.iter().filter_map(of).collect();
    if counts.iter().all(|c| c.samples == 0.0) {
        return Vec::new(); // The transfers belong to blocks that may also be left in other ways.
    }
    debug_assert_eq!(verify_counts(&counts, evidence), Ok(()));
    counts
}

/// Adds how often each edge was observed to be taken.
pub fn add_seen(evidence: &Evidence, seen: &mut [f64]) {
    let cfg = evidence.cfg;
    let start = |edge: usize| cfg.blocks.get(cfg.edges[edge].to).map(|to| to.start);
    let mut edge_of = FxHashMap::default();
    for (block, edges) in cfg.blocks.iter().zip(&cfg.successors) {
        edge_of.extend(edges.iter().map(|&e| ((block.end - 1, start(e)), e)));
    }
    for transfer in evidence.transfers.iter().filter(|t| t.is_sound()) {
        if let Some(&e) = edge_of.get(&(transfer.from, transfer.to)) {
            seen[e] += transfer.count;
        }
    }
}

/// Returns the blocks that were left by several edges, with the number of independent observations of each edge.
pub fn odds(evidence: &Evidence) -> Vec<(usize, Vec<(usize, f64)>)> {
    let cfg = evidence.cfg;
    let mut seen = vec![0.0; cfg.edges.len()];
    add_seen(evidence, &mut seen);
    let is_left = is_left(evidence);
    let of = |(block, edges): (usize, &Vec<usize>)| {
        let samples: f64 = edges.iter().map(|&e| seen[e]).sum();
        let part = count(block, samples).reliance();
        let times = edges.iter().map(|&e| (e, part * seen[e])).collect();
        let is_recorded = is_left || edges.iter().all(|&e| is_inside(cfg, e));
        (edges.len() > 1 && samples > 0.0 && is_recorded).then_some((block, times))
    };
    cfg.successors.iter().take(cfg.blocks.len()).enumerate().filter_map(of).collect()
}

fn count(block: usize, samples: f64) -> Count {
    Count { block, samples, exposure: 1.0, independent: 1.0 / ALIKE, error: ERROR, scale: 0 }
}

/// Checks that each class is counted once, and no more often than control was transferred in all.
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

/// Returns the executions of each instruction of which every execution is a recorded transfer.
fn left(evidence: &Evidence) -> Vec<Option<f64>> {
    let Evidence { cfg, schedule, transfers, .. } = *evidence;
    let is_left = is_left(evidence);
    let mut left = vec![None; schedule.opcodes.len()];
    for (block, range) in cfg.blocks.iter().enumerate() {
        let stays = cfg.successors[block].iter().all(|&e| is_inside(cfg, e));
        let is_recorded = |i: usize| {
            let is_transfer = matches!(schedule.opcodes[i].class, Branch | Jump | Call | Return);
            is_transfer && (is_left || stays && i + 1 == range.end)
        };
        range.clone().filter(|&i| is_recorded(i)).for_each(|i| left[i] = Some(0.0));
    }
    for transfer in transfers.iter().filter(|t| t.is_sound()) {
        left.get_mut(transfer.from).into_iter().flatten().for_each(|n| *n += transfer.count);
    }
    left
}

/// Whether transfers out of the procedure are recorded.
fn is_left(evidence: &Evidence) -> bool {
    evidence.transfers.iter().any(|t| t.is_sound() && t.to.is_none())
}

/// Whether the edge is a transfer within the procedure.
fn is_inside(cfg: &Cfg, edge: usize) -> bool {
    let CfgEdge { to, kind, .. } = cfg.edges[edge];
    let is_kept = matches!(kind, EdgeKind::Taken | EdgeKind::NotTaken | EdgeKind::Jump | EdgeKind::Table);
    is_kept && to < cfg.blocks.len()
}
