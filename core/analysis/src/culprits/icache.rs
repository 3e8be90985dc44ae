//! Instruction cache: the instruction's line was not at hand (DCPI §6.3: the rule of lines and predecessors).

use super::{
    fetch::new_part,
    scene::{Stalled, Suspect},
};
use crate::Cause;

/// As many lines stay in each set of the smallest first-level instruction cache that we know, twice over: a loop of
/// 16 KiB in one piece, or of fewer lines that lie badly.
const LINES_IN_SET_KEPT: usize = 4;

/// Adds the miss, if it was not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let memory = &stalled.scene.model.memory;
    let by_rules = new_part(stalled, memory.line_bytes, |l| l.lines_in_set_max <= LINES_IN_SET_KEPT)
        * memory.memory_cycles;
    let cycles_max = by_rules.min(witnessed_cycles(stalled));
    suspects.push(Suspect { cause: Cause::ICacheMiss, cycles_max, culprit: None });
}

/// What lines of code cost at most where the procedure falls from one into the next, in order.
pub fn witnessed_cycles(stalled: &Stalled) -> f64 {
    let Stalled { scene, block, .. } = *stalled;
    let around = scene.facts.loops.around(block);
    let witnessed = scene.facts.lines.cycles_max(around, scene.frequency(block));
    witnessed.filter(|_| scene.is_in_order()).unwrap_or(f64::INFINITY)
}
