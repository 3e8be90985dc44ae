//! Static stalls of a block that its predecessors cause (the paper ignores predecessors, §6.1.3).
//!
//! Input: the changes of each edge, and the part of its target's executions that come by it. Output: by instruction, the
//! average stalls over all predecessors. Complexity: linear in the changes of edges.

use rustc_hash::FxHashMap;

use super::{Schedule, StaticStall};
use crate::cfg::Cfg;

/// A shorter average stall is left out, in cycles.
const CYCLES_MIN: f64 = 0.05;

/// Computes the average stalls. `parts` of edges are between 0 and 1. Only positive changes count: that an instruction
/// may also issue together with a predecessor's end does not certainly shorten a stall.
pub fn stalls(
    schedule: &Schedule,
    cfg: &Cfg,
    part: impl Fn(usize) -> f64,
) -> FxHashMap<usize, Vec<StaticStall>> {
    let mut stalls: FxHashMap<usize, Vec<StaticStall>> = FxHashMap::default();
    for (edge, carried) in schedule.carried.iter().enumerate() {
        for c in carried.iter().filter(|c| c.cycles > 0.0 && c.culprit.is_some()) {
            let stall = StaticStall { cause: c.cause, cycles: part(edge) * c.cycles, culprit: c.culprit };
            if stall.cycles >= CYCLES_MIN {
                stalls.entry(c.instruction).or_default().push(stall);
            }
        }
    }
    debug_assert_eq!(verify(&stalls, schedule, cfg), Ok(()));
    stalls
}

/// Checks that the average stall is no longer than that of the worst predecessor.
fn verify(stalls: &FxHashMap<usize, Vec<StaticStall>>, schedule: &Schedule, cfg: &Cfg) -> Result<(), String> {
    let blocks = cfg.block_of_instructions();
    for (&i, stalls) in stalls {
        let carried = cfg.predecessors[blocks[i]].iter().flat_map(|&e| &schedule.carried[e]);
        let worst = carried.filter(|c| c.instruction == i).map(|c| c.cycles).fold(0.0, f64::max);
        let mean: f64 = stalls.iter().map(|s| s.cycles).sum();
        if mean > worst * (1.0 + 1e-9) {
            return Err(format!("instruction {i} waits {mean} cycles for predecessors, {worst} at worst"));
        }
    }
    Ok(())
}
