//! Data cache: a load's line was further away than the first level (DCPI §6.3).
//!
//! Suspects are the instruction's own load (out of order, where the head waits for itself) and in order the loads that
//! made its operands; a load also waits where others that miss keep all places for outstanding misses. Ruled out is a load whose line was touched a moment ago; bounded is one whose address advances by
//! less than a line. The bound is the latency of memory times the part that can miss.

use dwell_image::RegisterSet;

use super::{
    LOOK_BACK, producers,
    reuse::{Grain, fresh_part},
    scene::{Stalled, Suspect},
};
use crate::{Cause, machine::OpcodeClass};

/// The fewest outstanding misses that keep another load from issuing, on the smallest cores.
const OUTSTANDING_MIN: usize = 3;

/// Adds the loads that were not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let scene = stalled.scene;
    let mut accuse = |cycles_max: f64, culprit| {
        suspects.push(Suspect { cause: Cause::DCacheMiss, cycles_max, culprit });
    };
    for load in loads(stalled) {
        accuse(fresh_part(scene, load, Grain::line(scene)) * scene.model.memory.memory_cycles, Some(load));
    }
    for load in loads_ahead(stalled) {
        accuse(fresh_part(scene, load, Grain::line(scene)) * scene.model.memory.memory_cycles, Some(load));
    }
    if let Some(part) = producers::part_from_elsewhere(stalled) {
        accuse(part * scene.model.memory.memory_cycles, None);
    }
}

/// In order: for a load, those before it that may still be on their way, if they are so many that they keep all places for
/// outstanding misses. Nobody has used what they load.
fn loads_ahead(stalled: &Stalled) -> Vec<usize> {
    let Stalled { scene, block, i, .. } = *stalled;
    if !scene.is_in_order() || !scene.opcode(i).load {
        return Vec::new();
    }
    let start = scene.cfg.blocks[block].start.max(i.saturating_sub(LOOK_BACK));
    let mut read_since = RegisterSet::EMPTY;
    let mut ahead = Vec::new();
    for j in (start..i).rev().take_while(|&j| !scene.leaves(j)) {
        let instruction = &scene.instructions[j];
        if scene.opcode(j).load && instruction.writes.intersection(read_since).is_empty() {
            ahead.push(j);
        }
        read_since = read_since.union(instruction.reads);
    }
    if ahead.len() >= OUTSTANDING_MIN { ahead } else { Vec::new() }
}

/// The loads that the instruction may wait for.
pub fn loads(stalled: &Stalled) -> Vec<usize> {
    let scene = stalled.scene;
    let own = scene.opcode(stalled.i);
    let waits_for_itself = !scene.is_in_order();
    let mut loads = Vec::new();
    if own.load && (waits_for_itself || own.class != OpcodeClass::Load) {
        loads.push(stalled.i);
    }
    if waits_for_itself && producers::is_own_suspect(stalled) {
        return loads;
    }
    loads.extend(stalled.producers().filter(|&p| scene.opcode(p).load));
    loads
}
