//! What the instruction cache and the instruction TLB have in common: an instruction stalls for neither if it lies in the
//! line, or page, of all that can run right before it (DCPI §6.3).
//!
//! Output: the most part of executions that come new to a line or page. Complexity: linear in the block's predecessors.
//!
//! In order the one that comes first out of a new line stalls. Out of order, with the skid undone, the samples of a fetch
//! stall are on the instruction before the line (whose successor is missing) and on the line's first (docs/measured.md).

use dwell_image::Instruction;

use super::{
    loops::Loop,
    scene::{Scene, Stalled},
};

/// The most part of executions in which a unit of `bytes` that was not just used is entered, given which loops stay at
/// hand once they run.
pub fn new_part(stalled: &Stalled, bytes: u64, is_kept: fn(&Loop) -> bool) -> f64 {
    let crossing = crossing_part(stalled, bytes);
    if crossing > 0.0 { crossing.min(first_part(stalled.scene, stalled.block, is_kept)) } else { 0.0 }
}

/// In a small loop that leaves for nobody else's code, only the executions right after it was entered.
fn first_part(scene: &Scene, block: usize, is_kept: fn(&Loop) -> bool) -> f64 {
    let frequency = scene.frequency(block);
    if frequency <= 0.0 {
        return 1.0;
    }
    let loops = &scene.facts.loops;
    let quiet = loops.around(block).map(|id| loops.get(id)).filter(|l| !l.leaves && is_kept(l));
    quiet.map(|l| l.entries / frequency).fold(1.0, f64::min)
}

/// The part of executions whose predecessor lies in another unit (out of order: or whose successor does).
fn crossing_part(stalled: &Stalled, bytes: u64) -> f64 {
    let Stalled { scene, block, i, .. } = *stalled;
    let comes_new = if !stalled.is_head() {
        let before = &scene.instructions[i - 1];
        // After a call or the kernel its return ran right before, in a line of its own.
        let is_new = scene.leaves(i - 1) || crosses(before, &scene.instructions[i], bytes);
        f64::from(u8::from(is_new))
    } else {
        let parts = scene.predecessors(block).map(|(edge, before)| match before {
            Some(before) if !crosses(&scene.instructions[before.end - 1], &scene.instructions[i], bytes) => {
                0.0
            }
            _ => scene.edge_part(edge, block),
        });
        parts.sum::<f64>().min(1.0)
    };
    if !scene.is_in_order() && successor_is_new(stalled, bytes) { 1.0 } else { comes_new }
}

fn crosses(before: &Instruction, after: &Instruction, bytes: u64) -> bool {
    before.end().0.wrapping_sub(1) / bytes != after.address.0 / bytes
        || after.address.0 / bytes != after.end().0.wrapping_sub(1) / bytes
}

fn successor_is_new(stalled: &Stalled, bytes: u64) -> bool {
    let Stalled { scene, block, i, .. } = *stalled;
    let own = &scene.instructions[i];
    let next = scene.head_after(i);
    if next < scene.cfg.blocks[block].end {
        return crosses(own, &scene.instructions[next], bytes);
    }
    let cfg = scene.cfg;
    cfg.successors[block].iter().any(|&e| {
        let target = cfg.blocks.get(cfg.edges[e].to).map(|b| &scene.instructions[b.start]);
        !scene.is_rare(e, block) && target.is_some_and(|t| crosses(own, t, bytes))
    })
}
