//! Instruction cache: the instruction's line was missing (DCPI §6.3: the rule of lines and predecessors).

use super::fetch::new_part;
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

/// Lines that stay in each set of the smallest first-level instruction cache that we know, with a margin of a factor of
/// two: a contiguous loop of 16 KiB, or fewer lines that conflict.
const LINES_IN_SET_KEPT: usize = 4;

/// Adds the miss, if it was not ruled out.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let memory = &stalled.context.model.memory;
    let by_rules = new_part(stalled, memory.line_bytes, |l| l.lines_in_set_max <= LINES_IN_SET_KEPT)
        * memory.memory_cycles;
    let cycles_max = by_rules.min(witnessed_cycles(stalled));
    candidates.push(Candidate { cause: Cause::ICacheMiss, cycles_max, culprit: None });
}

/// Returns, in order, an upper bound on the cost of a line, measured where the procedure falls through from one line into
/// the next.
pub fn witnessed_cycles(stalled: &StalledInstruction) -> f64 {
    let StalledInstruction { context, block, .. } = *stalled;
    let around = context.facts.loops.around(block);
    let witnessed = context.facts.lines.cycles_max(around, context.frequency(block));
    witnessed.filter(|_| context.is_in_order()).unwrap_or(f64::INFINITY)
}
