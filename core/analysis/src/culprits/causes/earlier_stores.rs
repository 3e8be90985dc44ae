//! Earlier stores that a load may have to wait for: close before it, to an address that differs by a constant.
//!
//! Complexity: linear in the instructions looked back at, at most [`LOOK_BACK`].

use dwell_image::MemoryOperand;

use super::dcache;
use crate::{
    culprits::{
        LOOK_BACK,
        address::{distance_bytes, same_base},
        context::ProcedureContext,
        stalled::StalledInstruction,
    },
    schedule::address_registers,
};

/// An earlier store of a load's block; if the block repeats, also one of its last iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlierStore {
    /// The index of the store.
    pub store: usize,
    /// Where the load begins, in bytes after the beginning of the store.
    pub distance_bytes: i64,
    /// Number of bytes that the store writes.
    pub store_bytes: i64,
    /// Number of bytes that the load reads.
    pub load_bytes: i64,
}

impl EarlierStore {
    /// Whether load and store have a byte in common.
    pub fn overlaps(&self) -> bool {
        -self.load_bytes < self.distance_bytes && self.distance_bytes < self.store_bytes
    }

    /// Whether all bytes that are loaded were stored.
    pub fn covers(&self) -> bool {
        0 <= self.distance_bytes && self.distance_bytes.saturating_add(self.load_bytes) <= self.store_bytes
    }
}

/// Returns the loads that a stalled instruction waits for, each with the earlier stores at a known distance, the latest
/// first.
pub fn before_loads(stalled: &StalledInstruction) -> Vec<(usize, Vec<EarlierStore>)> {
    let loads = dcache::loads(stalled);
    loads.into_iter().map(|load| (load, of_load(stalled.context, load))).collect()
}

fn of_load(context: &ProcedureContext, load: usize) -> Vec<EarlierStore> {
    let mut found = Vec::new();
    let Some(operand) = context.instructions[load].load() else { return found };
    let block = context.block_of(load);
    let range = context.cfg.blocks[block].clone();
    let from = range.start.max(load.saturating_sub(LOOK_BACK));
    let is_whole = look_back(context, operand, load, from..load, &mut found);
    if is_whole && from == range.start && context.cfg.loops_on_itself(block) {
        let from = (load + 1).max(range.end.saturating_sub(LOOK_BACK));
        look_back(context, operand, load, from..range.end, &mut found);
    }
    found
}

/// Adds the stores in `range`. Returns whether the address registers are unchanged throughout.
fn look_back(
    context: &ProcedureContext,
    operand: &MemoryOperand,
    load: usize,
    range: std::ops::Range<usize>,
    found: &mut Vec<EarlierStore>,
) -> bool {
    let address = address_registers(&context.instructions[load]);
    for other in range.rev() {
        let instruction = &context.instructions[other];
        if let Some(stored) = instruction.store().filter(|m| same_base(m, operand)) {
            let is_moved = !instruction.writes.intersection(address).is_empty();
            if !is_moved && operand.width_bytes > 0 && stored.width_bytes > 0 {
                found.push(EarlierStore {
                    store: other,
                    distance_bytes: distance_bytes(stored, operand),
                    store_bytes: stored.width_bytes.into(),
                    load_bytes: operand.width_bytes.into(),
                });
            }
        }
        if !instruction.writes.intersection(address).is_empty() {
            return false;
        }
    }
    true
}
