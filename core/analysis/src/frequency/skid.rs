//! From the instruction where a sample landed to the one that was the oldest to retire (docs/measured.md, "where a sample
//! lands").
//!
//! Input: samples by instruction, and for each edge its part of its target's entries. Output: samples by instruction;
//! their sum is unchanged. Complexity: linear. Out of order a sample names the instruction executed *after* the next one
//! to retire, so each is moved to its dynamic predecessor; at a block's head it is split over the incoming edges. What
//! comes from outside the procedure stays where it landed, and so do the samples of a repeated string instruction. The
//! second half of a fused pair stands for its first.

use super::Evidence;
use crate::{cfg::Cfg, machine::OpcodeClass};

/// Moves every sample to its dynamic predecessor. `edge_shares` are the parts of each block's entries, by edge.
pub fn undo(evidence: &Evidence, edge_shares: &[f64]) -> Vec<f64> {
    let Evidence { cfg, schedule, samples, .. } = *evidence;
    let mut head = vec![0.0; samples.len()];
    for (block, range) in cfg.blocks.iter().enumerate() {
        for i in range.clone().filter(|&i| samples[i] > 0) {
            let count = samples[i] as f64;
            if schedule.opcodes[i].class == OpcodeClass::String {
                head[i] += count;
            } else if i > range.start {
                head[first_of_pair(evidence, i - 1)] += count;
            } else {
                split_at_head(evidence, block, i, count, edge_shares, &mut head);
            }
        }
    }
    debug_assert_eq!(verify(samples, &head), Ok(()));
    head
}

fn split_at_head(evidence: &Evidence, block: usize, i: usize, count: f64, shares: &[f64], head: &mut [f64]) {
    let cfg = evidence.cfg;
    for &edge in &cfg.predecessors[block] {
        let from = cfg.edges[edge].from;
        let last = cfg.blocks.get(from).map(|b| first_of_pair(evidence, b.end - 1));
        head[last.unwrap_or(i)] += count * shares[edge];
    }
}

fn first_of_pair(evidence: &Evidence, i: usize) -> usize {
    if evidence.schedule.is_fused[i] { i - 1 } else { i }
}

/// Returns each edge's part of its target's entries, by the frequencies of edges.
pub fn edge_shares(cfg: &Cfg, frequency: &[f64]) -> Vec<f64> {
    let mut shares = vec![0.0; cfg.edges.len()];
    for edges in &cfg.predecessors {
        let total: f64 = edges.iter().map(|&e| frequency[e]).sum();
        for &edge in edges {
            let even = 1.0 / edges.len() as f64;
            shares[edge] = if total > 0.0 { frequency[edge] / total } else { even };
        }
    }
    shares
}

/// Returns the same parts before any frequency is known, by the samples of the block that the edge leaves.
pub fn edge_shares_by_samples(cfg: &Cfg, samples: &[u64]) -> Vec<f64> {
    let of_block = |b: usize| {
        let range = cfg.blocks.get(b).cloned().unwrap_or(0..0);
        let len = range.len().max(1) as f64;
        range.map(|i| samples[i] as f64).sum::<f64>() / len
    };
    let rough: Vec<f64> = cfg.edges.iter().map(|e| of_block(e.from) + 1e-3).collect();
    edge_shares(cfg, &rough)
}

fn verify(samples: &[u64], head: &[f64]) -> Result<(), String> {
    let (before, after): (f64, f64) = (samples.iter().map(|&s| s as f64).sum(), head.iter().sum());
    if (before - after).abs() > 1e-6 * before.max(1.0) {
        return Err(format!("{before} samples became {after}"));
    }
    Ok(())
}
