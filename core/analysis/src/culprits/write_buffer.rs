//! Write or store buffer: a store must wait until an older one has left (DCPI §6.3).
//!
//! Only stores stall for it. In a loop the buffer is full only if draining its stores takes longer than all else the
//! loop does: draining is bounded by the stores' own misses, so a loop whose stores stay in few lines is innocent.

use super::{
    reuse::{Grain, fresh_part},
    scene::{Scene, Stalled, Suspect},
};
use crate::Cause;

/// Adds the full buffer, if it was not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let Stalled { scene, block, i, excess_cycles, .. } = *stalled;
    if !scene.opcode(i).store {
        return;
    }
    let bound =
        scene.facts.loops.innermost(block).and_then(|id| loop_cycles_max(scene, id, block, excess_cycles));
    let cycles_max = bound.unwrap_or(f64::INFINITY);
    suspects.push(Suspect { cause: Cause::WriteBuffer, cycles_max, culprit: Some(i) });
}

/// By how many cycles, per execution of `block`, draining a loop's stores can outlast the rest of the loop.
fn loop_cycles_max(scene: &Scene, id: usize, block: usize, excess_cycles: f64) -> Option<f64> {
    let one = scene.facts.loops.get(id);
    let frequency = scene.frequency(block);
    if one.leaves || frequency <= 0.0 {
        return None;
    }
    let rest = one.samples / frequency - excess_cycles;
    let drain_cycles = scene.facts.drain_cycles[id].get_or_init(|| drain_cycles_max(scene, id));
    Some((drain_cycles / frequency - rest).max(0.0))
}

/// Cycles (times frequency) that a loop's stores take to leave: a cycle each, and memory's latency for those that miss.
fn drain_cycles_max(scene: &Scene, id: usize) -> f64 {
    let of_block = |&block: &usize| {
        let stores = scene.cfg.blocks[block].clone().filter(|&j| scene.opcode(j).store);
        let cycles =
            stores.map(|j| 1.0 + fresh_part(scene, j, Grain::line(scene)) * scene.model.memory.memory_cycles);
        scene.frequency(block) * cycles.sum::<f64>()
    };
    scene.facts.loops.blocks(id).iter().map(of_block).sum()
}
