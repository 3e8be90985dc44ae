//! How often a block is executed each time the loop or procedure around it is entered: a ratio that needs no scale.
//!
//! Enters: the graph, frequencies, loops. Leaves: a ratio for each block. Never here: a ratio that was not observed often
//! enough. Cost: edges times the depth of loops.
//!
//! An exit from a loop of a million iterations is observed once in a million observations: with a few thousand, the loop
//! cannot be distinguished from one of ten thousand iterations. So a ratio is reported only if its rarer side was
//! observed [`SEEN_MIN`] times, as far as observations are distributed like time.

use crate::{
    Entered, PerEntry, ScaleKind,
    cfg::{Cfg, EdgeKind},
    culprits::Loops,
    frequency::Estimates,
};

/// Number of observations that determine a ratio within about a third (Poisson, at 90 %).
const SEEN_MIN: f64 = 25.0;

/// Returns for each block its executions per entry of the innermost loop around it, or of the procedure if there is none.
pub fn per_entry(cfg: &Cfg, estimates: &Estimates, loops: &Loops) -> Vec<Option<PerEntry>> {
    let samples = |block: usize| cfg.blocks[block].clone().map(|i| estimates.head_samples[i]).sum::<f64>();
    let all: f64 = estimates.head_samples.iter().sum();
    let observed = estimates.basis.directions as f64 + estimates.basis.steps;
    let of_loop: Vec<(Option<f64>, f64)> = (0..loops.len())
        .map(|id| {
            let mut is_inside = vec![false; cfg.blocks.len() + 2];
            loops.blocks(id).iter().for_each(|&b| is_inside[b] = true);
            let inside: f64 = loops.blocks(id).iter().map(|&b| samples(b)).sum();
            (entries(cfg, estimates, &is_inside), observed * inside / all.max(f64::MIN_POSITIVE))
        })
        .collect();
    let mut whole = vec![true; cfg.blocks.len() + 2];
    whole[cfg.entry()..].fill(false);
    let of_procedure = (entries(cfg, estimates, &whole), observed);
    // In order, and where instructions or counters in code counted, each frequency is based on its own block. Elsewhere
    // counts of a few places, such as an odometer's, say nothing about how often a loop is entered.
    let is_each_counted = estimates.deviations.is_empty() || estimates.counted_in_code;
    let is_counted = estimates.scale.kind == ScaleKind::Absolute && is_each_counted;
    let of_block = |block: usize| {
        let frequency = estimates.blocks[block]?.frequency;
        let ((entries, observed), entered) = match loops.innermost(block) {
            Some(id) => (of_loop[id], Entered::Loop),
            None => (of_procedure, Entered::Procedure),
        };
        let executions = frequency / entries?;
        let is_seen = is_counted || executions.max(1.0 / executions) * SEEN_MIN <= observed;
        (executions.is_finite() && is_seen).then_some(PerEntry { executions, entered })
    };
    (0..cfg.blocks.len()).map(of_block).collect()
}

/// Returns how often control enters these nodes from others, in the units of frequencies; `None` if that is unknown or
/// never.
fn entries(cfg: &Cfg, estimates: &Estimates, is_inside: &[bool]) -> Option<f64> {
    let enters = |e: &usize| is_inside[cfg.edges[*e].to] && !is_inside[cfg.edges[*e].from];
    let mut sum = 0.0;
    for e in (0..cfg.edges.len()).filter(enters) {
        match estimates.edges[e] {
            Some(estimate) => sum += estimate.frequency,
            // No known control flow leads there.
            None if cfg.edges[e].kind == EdgeKind::Unseen => {}
            None => return None,
        }
    }
    (sum > 0.0).then_some(sum)
}
