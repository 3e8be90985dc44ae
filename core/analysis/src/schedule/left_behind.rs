//! Static stalls of a block that its predecessors are to blame for (the paper ignores predecessors, §6.1.3).
//!
//! Input: what each edge carries over, and the part of its target's executions that come by it. Output: by instruction, the
//! stalls on average over all ways to it. Complexity: linear in what edges carry.

use rustc_hash::FxHashMap;

use super::{Schedule, StaticStall};
use crate::cfg::Cfg;

/// What is less on average is none.
const CYCLES_MIN: f64 = 0.05;

/// `part` of an edge: 0 to 1. Only what makes an instruction wait counts: that it may also issue together with a predecessor's
/// end makes no stall shorter for certain.
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

/// Checks that on average nothing waits longer than on the worst of all ways.
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
