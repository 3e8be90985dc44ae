//! Frequencies from samples of retired instructions, where a counter provides them: they need no model and no guess of
//! the scale.
//!
//! Input: samples of the event `instructions` by instruction. Output: counts of classes and frequencies of blocks, with
//! their certainty. Complexity: linear. Every execution of a block retires each of its instructions, so a class of `n`
//! instructions that was executed `f` times collects `f · n` of them. Where the hardware is not precise, samples skid by
//! a few instructions, usually within the block; sums over classes hide that.

use super::{Estimate, Estimates, Evidence, Retired, likely_flow::Count, skid};
use crate::{Basis, Confidence};

/// The least samples of a block for medium confidence: two standard errors are 15 %.
const MEDIUM_SAMPLES_MIN: f64 = 178.0;
/// The least samples of a block for high confidence: two standard errors are 10 %.
const HIGH_SAMPLES_MIN: f64 = 400.0;
/// The greatest logarithm of a class's own samples over the fit; beyond it one of the two is wrong and confidence is low.
/// On the programs of role "tune", with 100,000 samples each, the part of the estimates off by more than 15 % that were
/// low was 78 % with 50 samples and without this rule, 94 % with 178 samples, and all with both.
const DISAGREEMENT_MAX: f64 = 0.1;
/// The least relative error of a count: some samples skid into a neighbour.
const COUNT_ERROR: f64 = 0.02;
/// Number of instructions of a typical block, which converts frequencies into samples.
const BLOCK_INSTRUCTIONS: f64 = 4.0;

/// Returns the count of each class that has blocks.
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

/// Checks that each sample and each instruction of a block is counted once, and that no exposure is 0.
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

/// Estimates each block by itself, where the graph is not complete.
pub fn by_block(evidence: &Evidence) -> Option<Estimates> {
    let retired = evidence.retired?;
    let of = |block: usize| {
        let (samples, instructions) = block_samples(evidence, retired, block);
        let frequency = samples / instructions * retired.frequency;
        Some(Estimate { frequency, confidence: by_samples(retired, frequency) })
    };
    let shares = skid::edge_shares_by_samples(evidence.cfg, evidence.samples);
    let sum = retired.samples.iter().fold(0u64, |sum, &s| sum.saturating_add(s));
    Some(Estimates {
        blocks: (0..evidence.cfg.blocks.len()).map(of).collect(),
        edges: vec![None; evidence.cfg.edges.len()],
        head_samples: skid::undo(evidence, &shares),
        notes: vec!["the targets of an indirect jump are unknown: each block is estimated by itself".into()],
        basis: Basis { retired: sum, ..Basis::default() },
        ..Estimates::default()
    })
}

/// How far to trust a fit of counted instructions.
pub struct Confidences<'a> {
    retired: Option<Retired<'a>>,
    /// The frequency of each class by its own samples; `None` for classes without blocks.
    own: Vec<Option<f64>>,
}

impl<'a> Confidences<'a> {
    /// Prepares the confidences for this evidence. Without counted instructions all are low: however well the ratios
    /// between blocks are known, samples of time alone leave the scale a guess.
    pub fn new(evidence: &Evidence<'a>) -> Self {
        let mut own = vec![None; evidence.equivalence.classes];
        for count in counts(evidence) {
            own[evidence.equivalence.block_class[count.block]] = Some(count.samples / count.exposure);
        }
        Confidences { retired: evidence.retired, own }
    }

    /// Returns the confidence in a class at the frequency that fits the whole procedure.
    pub fn get(&self, class: usize, frequency: f64) -> Confidence {
        let agrees = |own: f64| (own / frequency).ln().abs() <= DISAGREEMENT_MAX;
        match self.retired {
            Some(retired) if self.own[class].is_none_or(agrees) => by_samples(retired, frequency),
            _ => Confidence::Low,
        }
    }
}

/// Returns the confidence in a frequency, by the samples that a block of that frequency has.
fn by_samples(retired: Retired, frequency: f64) -> Confidence {
    let samples = BLOCK_INSTRUCTIONS * frequency / retired.frequency;
    match samples {
        s if s >= HIGH_SAMPLES_MIN => Confidence::High,
        s if s >= MEDIUM_SAMPLES_MIN => Confidence::Medium,
        _ => Confidence::Low,
    }
}

/// Returns the samples and the number of instructions of a block.
fn block_samples(evidence: &Evidence, retired: Retired, block: usize) -> (f64, f64) {
    let range = evidence.cfg.blocks[block].clone();
    let samples: f64 = range.clone().map(|i| retired.samples.get(i).copied().unwrap_or(0) as f64).sum();
    (samples, range.len() as f64)
}
