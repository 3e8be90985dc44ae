//! Stalls for data: data cache, data TLB, divider, multiplier (DCPI §6.3).
//!
//! In order the suspects are the instructions that produced an operand, in the block or at the end of one that runs
//! right before it. Out of order the instruction at the head waits for itself; its close elders stay under suspicion
//! where it uses their result, since eliminated moves and fusion push samples further on (DESIGN.md §5).

use dwell_image::RegisterSet;

use super::{LOOK_BACK, Scene, Suspect, is_in_order, predecessors};
use crate::{Cause, machine::OpcodeClass};

/// How many elders may still be to blame out of order.
const ELDERS_OUT_OF_ORDER: usize = 2;

/// Adds what was not ruled out.
pub fn suspects(scene: &Scene, block: usize, i: usize, suspects: &mut Vec<Suspect>) {
    let own = scene.schedule.opcodes[i];
    let waits_for_itself = !is_in_order(scene);
    if own.load && (waits_for_itself || own.class != OpcodeClass::Load) {
        accuse_memory(scene, i, suspects);
    }
    // Translation comes before the write buffer: a store misses the data TLB on its own.
    if own.store {
        let cycles_max = scene.model.memory.dtlb_miss_cycles;
        suspects.push(Suspect { cause: Cause::DtlbMiss, cycles_max, culprit: Some(i) });
    }
    if waits_for_itself {
        accuse_unit(scene, i, suspects);
        if suspects.iter().any(|s| s.culprit == Some(i)) {
            return;
        }
    }
    for producer in producers(scene, block, i) {
        if scene.schedule.opcodes[producer].load {
            accuse_memory(scene, producer, suspects);
        }
        accuse_unit(scene, producer, suspects);
    }
    if !waits_for_itself {
        accuse_busy_unit(scene, block, i, suspects);
    }
}

fn accuse_memory(scene: &Scene, load: usize, suspects: &mut Vec<Suspect>) {
    let memory = &scene.model.memory;
    let mut accuse = |cause, cycles_max| suspects.push(Suspect { cause, cycles_max, culprit: Some(load) });
    accuse(Cause::DCacheMiss, memory.memory_cycles);
    accuse(Cause::DtlbMiss, memory.dtlb_miss_cycles);
}

fn accuse_unit(scene: &Scene, i: usize, suspects: &mut Vec<Suspect>) {
    let opcode = scene.schedule.opcodes[i];
    let latency = scene.model.cost(opcode.class).latency;
    // The least latency is in the model already; operands may make it several times as long.
    let mut accuse = |cause, cycles_max| suspects.push(Suspect { cause, cycles_max, culprit: Some(i) });
    if opcode.divides() {
        accuse(Cause::Divider, 4.0 * latency);
    }
    if opcode.multiplies() {
        accuse(Cause::Multiplier, 2.0 * latency);
    }
}

/// In order, a unit may still be busy with another's operation.
fn accuse_busy_unit(scene: &Scene, block: usize, i: usize, suspects: &mut Vec<Suspect>) {
    let opcode = scene.schedule.opcodes[i];
    if !(opcode.divides() || opcode.multiplies()) {
        return;
    }
    let start = scene.cfg.blocks[block].start;
    let earlier = (start.max(i.saturating_sub(LOOK_BACK))..i).rev();
    let before = predecessors(scene, block).filter_map(|(_, range)| range).flat_map(|range| {
        let end = range.end;
        (range.start.max(end.saturating_sub(LOOK_BACK))..end).rev()
    });
    let user = earlier.chain(before).find(|&j| {
        let other = scene.schedule.opcodes[j];
        other.divides() && scene.model.cost(other.class).unit == scene.model.cost(opcode.class).unit
    });
    if let Some(user) = user {
        accuse_unit(scene, user, suspects);
    }
}

/// The latest writers of the instruction's operands that can have run before it.
fn producers(scene: &Scene, block: usize, i: usize) -> Vec<usize> {
    let range = scene.cfg.blocks[block].clone();
    let reach = if is_in_order(scene) { LOOK_BACK } else { ELDERS_OUT_OF_ORDER };
    let from = range.start.max(i.saturating_sub(reach));
    let mut found = Vec::new();
    let missing = collect(scene, from, i, scene.instructions[i].reads, &mut found);
    if !missing.is_empty() && is_in_order(scene) && from == range.start {
        for before in predecessors(scene, block).filter_map(|(_, range)| range) {
            let from = before.start.max(before.end.saturating_sub(LOOK_BACK));
            collect(scene, from, before.end, missing, &mut found);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Adds the last writers in `from..to`; returns the registers that have none there. In order a value that an instruction
/// in between has used was there by then, so its writer is innocent.
fn collect(
    scene: &Scene,
    from: usize,
    to: usize,
    registers: RegisterSet,
    found: &mut Vec<usize>,
) -> RegisterSet {
    let mut missing = RegisterSet::EMPTY;
    for register in registers.iter() {
        let touches = |j: &usize| {
            let other = &scene.instructions[*j];
            other.writes.contains(register) || (is_in_order(scene) && other.reads.contains(register))
        };
        match (from..to).rev().find(touches) {
            Some(j) if scene.instructions[j].writes.contains(register) => found.push(j),
            Some(_) => {}
            None => missing.insert(register),
        }
    }
    missing
}
