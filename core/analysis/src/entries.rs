//! How often a block runs for each time that what it lies in is entered: a ratio that needs no scale.
//!
//! Enters: the graph, frequencies, loops. Leaves: a ratio for each block. Never here: a ratio of something that is not known. Cost:
//! edges times the depth of loops.

use crate::{
    Entered, PerEntry,
    cfg::{Cfg, EdgeKind},
    culprits::Loops,
    frequency::Estimates,
};

/// By block: its executions for each entry of the innermost loop around it; outside of loops, of the procedure.
pub fn per_entry(cfg: &Cfg, estimates: &Estimates, loops: &Loops) -> Vec<Option<PerEntry>> {
    let of_loop: Vec<Option<f64>> = (0..loops.len())
        .map(|id| {
            let mut is_inside = vec![false; cfg.blocks.len() + 2];
            loops.blocks(id).iter().for_each(|&b| is_inside[b] = true);
            entries(cfg, estimates, &is_inside)
        })
        .collect();
    let mut whole = vec![true; cfg.blocks.len() + 2];
    whole[cfg.entry()..].fill(false);
    let of_procedure = entries(cfg, estimates, &whole);
    let of_block = |block: usize| {
        let frequency = estimates.blocks[block]?.frequency;
        let (entries, entered) = match loops.innermost(block) {
            Some(id) => (of_loop[id]?, Entered::Loop),
            None => (of_procedure?, Entered::Procedure),
        };
        let executions = frequency / entries;
        executions.is_finite().then_some(PerEntry { executions, entered })
    };
    (0..cfg.blocks.len()).map(of_block).collect()
}

/// How often control comes into these nodes from others, in the units of frequencies; `None` where that is not known, or never.
fn entries(cfg: &Cfg, estimates: &Estimates, is_inside: &[bool]) -> Option<f64> {
    let enters = |e: &usize| is_inside[cfg.edges[*e].to] && !is_inside[cfg.edges[*e].from];
    let mut sum = 0.0;
    for e in (0..cfg.edges.len()).filter(enters) {
        match estimates.edges[e] {
            Some(estimate) => sum += estimate.frequency,
            // Nothing was seen to lead there.
            None if cfg.edges[e].kind == EdgeKind::Unseen => {}
            None => return None,
        }
    }
    (sum > 0.0).then_some(sum)
}
