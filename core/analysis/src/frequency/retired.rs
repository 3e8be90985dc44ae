//! Frequencies from samples of retired instructions, where a counter gives them: no model, no scale to guess.
//!
//! Input: samples of the event `instructions` by instruction. Output: what they say of each class and each block, and how
//! sure that is. Complexity: linear. Every execution of a block retires each of its instructions, so a class of `n`
//! instructions that was executed `f` times gathers `f · n` of them. Where the hardware is not precise samples skid by a
//! few instructions, as a rule inside the block; sums over classes hide that.

use super::{Estimate, Estimates, Evidence, Retired, likely_flow::Count, skid};
use crate::{Basis, Confidence};

/// Samples of a block's own that make its estimate medium …
const MEDIUM_SAMPLES_MIN: f64 = 50.0;
/// … and high.
const HIGH_SAMPLES_MIN: f64 = 400.0;
/// No count is surer than this part: some samples skid into a neighbour.
const COUNT_ERROR: f64 = 0.02;
/// Instructions of a typical block: frequencies become samples by it.
const BLOCK_INSTRUCTIONS: f64 = 4.0;

/// What was counted of each class with blocks.
pub fn counts(evidence: &Evidence) -> Vec<Count> {
    let Some(retired) = evidence.retired else { return Vec::new() };
    let by_class = evidence.equivalence.blocks_by_class();
    let of = |blocks: &Vec<usize>| {
        let block = *blocks.first()?;
        let (samples, instructions) = blocks.iter().fold((0.0, 0.0), |(s, n), &b| {
            let (samples, instructions) = block_samples(evidence, retired, b);
            (s + samples, n + instructions)
        });
        let exposure = instructions / retired.frequency;
        Some(Count { block, samples, exposure, independent: 1.0, error: COUNT_ERROR, scale: 0 })
    };
    let counts: Vec<Count> = by_class.iter().filter_map(of).collect();
    debug_assert_eq!(verify_counts(&counts, evidence, retired), Ok(()));
    counts
}

/// Checks that each sample of a block is counted once, each instruction too, and that none of them is for nothing.
fn verify_counts(counts: &[Count], evidence: &Evidence, retired: Retired) -> Result<(), String> {
    let of_block = |b: usize| block_samples(evidence, retired, b);
    let blocks = (0..evidence.cfg.blocks.len()).map(of_block);
    let (samples, instructions) = blocks.fold((0.0, 0.0), |sum, b| (sum.0 + b.0, sum.1 + b.1));
    let counted = counts.iter().fold((0.0, 0.0), |sum, c| (sum.0 + c.samples, sum.1 + c.exposure));
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.max(b);
    let is_whole = same(counted.0, samples) && same(counted.1 * retired.frequency, instructions);
    let is_sound = |c: &Count| c.samples >= 0.0 && c.exposure > 0.0;
    match counts.iter().find(|c| !is_sound(c)) {
        Some(count) => Err(format!("{count:?}")),
        None if !is_whole => Err(format!("{counted:?} were counted of {samples}, {instructions}")),
        None => Ok(()),
    }
}

/// Without a complete graph: each block by itself.
pub fn alone(evidence: &Evidence) -> Option<Estimates> {
    let retired = evidence.retired?;
    let of = |block: usize| {
        let (samples, instructions) = block_samples(evidence, retired, block);
        let frequency = samples / instructions * retired.frequency;
        Some(Estimate { frequency, confidence: confidence(retired, frequency) })
    };
    let shares = skid::edge_shares_by_samples(evidence.cfg, evidence.samples);
    let sum = retired.samples.iter().fold(0u64, |sum, &s| sum.saturating_add(s));
    Some(Estimates {
        blocks: (0..evidence.cfg.blocks.len()).map(of).collect(),
        edges: vec![None; evidence.cfg.edges.len()],
        head_samples: skid::undo(evidence, &shares),
        notes: vec!["an indirect jump's targets are unknown: every block is estimated on its own".into()],
        basis: Basis { retired: sum, ..Basis::default() },
    })
}

/// Of a frequency, by the samples that a block of it has.
pub fn confidence(retired: Retired, frequency: f64) -> Confidence {
    let samples = BLOCK_INSTRUCTIONS * frequency / retired.frequency;
    match samples {
        s if s >= HIGH_SAMPLES_MIN => Confidence::High,
        s if s >= MEDIUM_SAMPLES_MIN => Confidence::Medium,
        _ => Confidence::Low,
    }
}

/// Samples and instructions of a block.
fn block_samples(evidence: &Evidence, retired: Retired, block: usize) -> (f64, f64) {
    let range = evidence.cfg.blocks[block].clone();
    let samples: f64 = range.clone().map(|i| retired.samples.get(i).copied().unwrap_or(0) as f64).sum();
    (samples, range.len() as f64)
}
