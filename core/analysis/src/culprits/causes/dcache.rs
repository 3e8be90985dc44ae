//! Data cache: a load's line was further away than the first level (DCPI §6.3).
//!
//! Out of order the candidate is the instruction's own load; in order the loads that computed its operands, and for a
//! load also earlier loads that occupy all places for outstanding misses. A load whose line was accessed a moment ago is
//! ruled out; one whose address advances by less than a line is bounded. The bound is the latency of memory times the
//! part of executions that can miss.

use dwell_image::RegisterSet;

use crate::{
    Cause,
    culprits::{
        LOOK_BACK,
        candidate::Candidate,
        producers,
        reuse::{Grain, fresh_part},
        stalled::StalledInstruction,
    },
    machine::OpcodeClass,
};

/// The fewest outstanding misses that keep another load from issuing, on the smallest cores.
const OUTSTANDING_MIN: usize = 3;

/// Adds the loads that were not ruled out.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let context = stalled.context;
    let mut add = |cycles_max: f64, culprit| {
        candidates.push(Candidate { cause: Cause::DCacheMiss, cycles_max, culprit });
    };
    for load in loads(stalled) {
        add(fresh_part(context, load, Grain::line(context)) * context.model.memory.memory_cycles, Some(load));
    }
    for load in loads_ahead(stalled) {
        add(fresh_part(context, load, Grain::line(context)) * context.model.memory.memory_cycles, Some(load));
    }
    if let Some(part) = producers::part_from_elsewhere(context, stalled.i) {
        add(part * context.model.memory.memory_cycles, None);
    }
}

/// Returns, in order and for a load, the earlier loads that may be outstanding, if they are enough to occupy all places
/// for outstanding misses. No instruction has used their values yet.
fn loads_ahead(stalled: &StalledInstruction) -> Vec<usize> {
    let StalledInstruction { context, block, i, .. } = *stalled;
    if !context.is_in_order() || !context.opcode(i).load {
        return Vec::new();
    }
    let start = context.cfg.blocks[block].start.max(i.saturating_sub(LOOK_BACK));
    let mut read_since = RegisterSet::EMPTY;
    let mut ahead = Vec::new();
    for j in (start..i).rev().take_while(|&j| !context.leaves(j)) {
        let instruction = &context.instructions[j];
        if context.opcode(j).load && instruction.writes.intersection(read_since).is_empty() {
            ahead.push(j);
        }
        read_since = read_since.union(instruction.reads);
    }
    if ahead.len() >= OUTSTANDING_MIN { ahead } else { Vec::new() }
}

/// Returns the loads that the instruction may wait for.
pub fn loads(stalled: &StalledInstruction) -> Vec<usize> {
    let context = stalled.context;
    let own = context.opcode(stalled.i);
    let waits_for_itself = !context.is_in_order();
    let mut loads = Vec::new();
    if own.load && (waits_for_itself || own.class != OpcodeClass::Load) {
        loads.push(stalled.i);
    }
    if waits_for_itself && producers::is_own_candidate(stalled.context, stalled.i) {
        return loads;
    }
    loads.extend(stalled.producers().filter(|&p| context.opcode(p).load));
    loads
}
