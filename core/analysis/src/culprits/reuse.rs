//! How often a line or page that an access needs can be absent.
//!
//! Input: a load or store. Output: an upper bound on the part of its executions that can miss. Complexity: linear in the
//! instructions looked back at, at most [`LOOK_BACK`], and in the loops around it.

use dwell_image::{Instruction, MemoryOperand, RegisterSet};

use super::{
    LOOK_BACK,
    address::{advance_bytes, distance_bytes, same_base},
    context::ProcedureContext,
};
use crate::schedule::address_registers;

/// A unit of memory that is fetched as a whole: a line or a page.
#[derive(Clone, Copy)]
pub struct Grain {
    /// Size in bytes.
    pub bytes: u64,
    /// Number of other accesses after which it is certainly still present.
    pub accesses_survived: f64,
}

impl Grain {
    /// Returns a line of the data cache. A quarter of a small cache's lines may be accessed before it is evicted.
    pub fn line(context: &ProcedureContext) -> Grain {
        const ACCESSES: f64 = 128.0;
        Grain { bytes: context.model.memory.line_bytes, accesses_survived: ACCESSES }
    }

    /// Returns a page in a small data TLB.
    pub fn page(context: &ProcedureContext) -> Grain {
        const ACCESSES: f64 = 32.0;
        Grain { bytes: context.model.memory.page_bytes, accesses_survived: ACCESSES }
    }
}

/// Returns an upper bound on the part of an access's executions that can miss: those whose unit was accessed neither an
/// iteration ago nor by an instruction shortly before.
pub fn fresh_part(context: &ProcedureContext, access: usize, grain: Grain) -> f64 {
    let operands = context.instructions[access].memory().filter(|m| m.read || m.written);
    let parts = operands.map(|m| {
        if is_stack_page(context, m, grain) {
            return (m.displacement.unsigned_abs() as f64 / grain.bytes as f64).min(1.0);
        }
        let by_loops = loop_part(context, access, m, grain);
        by_loops.min(neighbour_part(context, access, m, grain))
    });
    parts.reduce(f64::max).unwrap_or(1.0)
}

/// Whether an operand is in the page at the top of the stack, which holds the caller's frame and was in use a moment ago.
fn is_stack_page(context: &ProcedureContext, operand: &MemoryOperand, grain: Grain) -> bool {
    grain.bytes == context.model.memory.page_bytes
        && operand.index.is_none()
        && operand.base == Some(context.arch.stack_pointer())
}

/// Returns the bound from loops. If the address stays the same in a loop or advances slowly, only the first execution
/// after the loop was entered can miss, and those that reach another unit.
fn loop_part(context: &ProcedureContext, access: usize, operand: &MemoryOperand, grain: Grain) -> f64 {
    let block = context.block_of(access);
    let frequency = context.frequency(block);
    if frequency <= 0.0 {
        return 1.0;
    }
    let of_loop = |id: usize| {
        let one = context.facts.loops.get(id);
        if one.leaves || one.accesses > grain.accesses_survived * frequency {
            return None;
        }
        let crossed = (advance_bytes(context, id, operand)? / grain.bytes as f64).min(1.0);
        Some((crossed * one.iterations.max(frequency) + one.entries) / frequency)
    };
    context.facts.loops.around(block).filter_map(of_loop).fold(1.0, f64::min)
}

/// Returns the bound from instructions shortly before: what is close to an address that was just accessed is in the same
/// unit, unless it crosses its border.
fn neighbour_part(context: &ProcedureContext, access: usize, operand: &MemoryOperand, grain: Grain) -> f64 {
    let start = context.cfg.blocks[context.block_of(access)].start.max(access.saturating_sub(LOOK_BACK));
    let address = address_registers(&context.instructions[access]);
    let mut read_since = RegisterSet::EMPTY;
    let mut part: f64 = 1.0;
    for other in (start..access).rev() {
        let instruction = &context.instructions[other];
        if !instruction.writes.intersection(address).is_empty() {
            break;
        }
        if context.leaves(other) {
            break;
        }
        let is_here = has_arrived(context, instruction, read_since, grain);
        for m in instruction.memory().filter(|m| (m.read || m.written) && is_here && same_base(m, operand)) {
            let distance = distance_bytes(m, operand).unsigned_abs();
            part = part.min(distance as f64 / grain.bytes as f64);
        }
        read_since = read_since.union(instruction.reads);
    }
    part
}

/// Whether the unit that an earlier instruction accessed is present. Out of order that instruction has retired. In order
/// a line is present once its value was used, a page once the access was issued. Stored lines may still be in the store
/// buffer.
fn has_arrived(
    context: &ProcedureContext,
    earlier: &Instruction,
    read_since: RegisterSet,
    grain: Grain,
) -> bool {
    let is_page = grain.bytes == context.model.memory.page_bytes;
    let is_load = earlier.load().is_some();
    is_page || (is_load && (!context.is_in_order() || !earlier.writes.intersection(read_since).is_empty()))
}
