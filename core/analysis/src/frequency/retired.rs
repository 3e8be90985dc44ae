//! Frequencies from samples of retired instructions, where a counter gives them: no model, no scale to guess.
//!
//! Input: samples of the event `instructions` by instruction. Output: what they say of each class and each block, and how
//! sure that is. Complexity: linear. Every execution of a block retires each of its instructions, so a class of `n`
//! instructions that was executed `f` times gathers `f · n` of them. Where the hardware is not precise samples skid by a
//! few instructions, as a rule inside the block; sums over classes hide that.

use super::{Estimate, Estimates, Evidence, Retired, likely_flow::Count, skid};
use crate::{Basis, Confidence};

/// Samples of a block's own that make its estimate medium: two standard errors are 15 % …
const MEDIUM_SAMPLES_MIN: f64 = 178.0;
/// … and high: 10 %.
const HIGH_SAMPLES_MIN: f64 = 400.0;
/// Logarithm of what a class's own samples say over what fits all, at most: beyond it one of the two is wrong. On the programs of
/// role "tune", with 100,000 samples each, of estimates off by more than 15 % 78 % were low with 50 samples and without this, 94 % with
/// 178, all with both.
const DISAGREEMENT_MAX: f64 = 0.1;
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
        Some(Estimate { frequency, confidence: by_samples(retired, frequency) })
    };
    let shares = skid::edge_shares_by_samples(evidence.cfg, evidence.samples);
    let sum = retired.samples.iter().fold(0u64, |sum, &s| sum.saturating_add(s));
    Some(Estimates {
        blocks: (0..evidence.cfg.blocks.len()).map(of).collect(),
        edges: vec![None; evidence.cfg.edges.len()],
        head_samples: skid::undo(evidence, &shares),
        notes: vec!["an indirect jump's targets are unknown: every block is estimated on its own".into()],
        basis: Basis { retired: sum, ..Basis::default() },
        ..Estimates::default()
    })
}

/// How far to trust a fit of counted instructions.
pub struct Confidences<'a> {
    retired: Option<Retired<'a>>,
    /// What each class's own samples say of its frequency; `None` for classes without blocks.
    own: Vec<Option<f64>>,
}

impl<'a> Confidences<'a> {
    /// Of this evidence. Without counted instructions all is low: however well the ratios between blocks are known, samples of
    /// time alone leave the scale a guess.
    pub fn of(evidence: &Evidence<'a>) -> Self {
        let mut own = vec![None; evidence.equivalence.classes];
        for count in counts(evidence) {
            own[evidence.equivalence.block_class[count.block]] = Some(count.samples / count.exposure);
        }
        Confidences { retired: evidence.retired, own }
    }

    /// Of a class at the frequency that fits the whole procedure.
    pub fn get(&self, class: usize, frequency: f64) -> Confidence {
        let agrees = |own: f64| (own / frequency).ln().abs() <= DISAGREEMENT_MAX;
        match self.retired {
            Some(retired) if self.own[class].is_none_or(agrees) => by_samples(retired, frequency),
            _ => Confidence::Low,
        }
    }
}

/// Of a frequency, by the samples that a block of it has.
fn by_samples(retired: Retired, frequency: f64) -> Confidence {
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
