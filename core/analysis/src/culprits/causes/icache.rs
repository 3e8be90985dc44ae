//! Instruction cache: the instruction's line was not at hand (DCPI §6.3: the rule of lines and predecessors).

use super::fetch::new_part;
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

/// As many lines stay in each set of the smallest first-level instruction cache that we know, twice over: a loop of
/// 16 KiB in one piece, or of fewer lines that lie badly.
const LINES_IN_SET_KEPT: usize = 4;

/// Adds the miss, if it was not ruled out.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let memory = &stalled.context.model.memory;
    let by_rules = new_part(stalled, memory.line_bytes, |l| l.lines_in_set_max <= LINES_IN_SET_KEPT)
        * memory.memory_cycles;
    let cycles_max = by_rules.min(witnessed_cycles(stalled));
    candidates.push(Candidate { cause: Cause::ICacheMiss, cycles_max, culprit: None });
}

/// What lines of code cost at most where the procedure falls from one into the next, in order.
pub fn witnessed_cycles(stalled: &StalledInstruction) -> f64 {
    let StalledInstruction { context, block, .. } = *stalled;
    let around = context.facts.loops.around(block);
    let witnessed = context.facts.lines.cycles_max(around, context.frequency(block));
    witnessed.filter(|_| context.is_in_order()).unwrap_or(f64::INFINITY)
}
