//! The instructions that computed the operands that an instruction waits for.
//!
//! Input: a stalled instruction. Output: the last writers of its operands. Complexity: linear in the instructions looked
//! back at, at most [`LOOK_BACK`] in each predecessor, times the number of operands.
//!
//! In order they are in the same block or at the end of one that runs right before it. Out of order the oldest
//! instruction waits only for itself; instructions close before it whose result it uses remain candidates, since
//! eliminated moves and fusion push samples further on (docs/measured.md).

use dwell_image::{Arch, Register, RegisterSet};

use super::{LOOK_BACK, context::ProcedureContext};
use crate::machine::OpcodeClass;

/// Number of earlier instructions that remain candidates out of order.
const ELDERS_OUT_OF_ORDER: usize = 2;

/// Whether, out of order, the instruction itself may have taken long, so that no earlier one needs to be considered.
pub fn is_own_candidate(context: &ProcedureContext, i: usize) -> bool {
    let opcode = context.opcode(i);
    opcode.load || opcode.store || opcode.divides() || opcode.multiplies()
}

/// Returns the last writers of the instruction's operands that can have run before it.
pub fn producers(context: &ProcedureContext, i: usize) -> Vec<usize> {
    let block = context.block_of(i);
    let mut found = Vec::new();
    let (from, missing) = own_block(context, i, &mut found);
    if !missing.is_empty() && context.is_in_order() && from == context.cfg.blocks[block].start {
        for before in context.predecessors(block).filter_map(|(_, range)| range) {
            let from = before.start.max(before.end.saturating_sub(LOOK_BACK));
            collect(context, from, before.end, missing, &mut found);
        }
    }
    found.retain(|&p| p != i || context.cfg.loops_on_itself(block));
    found.sort_unstable();
    found.dedup();
    found
}

/// Finds the writers in the instruction's own block. Returns where the search stopped, and the registers that have no
/// writer there.
fn own_block(context: &ProcedureContext, i: usize, found: &mut Vec<usize>) -> (usize, RegisterSet) {
    let reach = if context.is_in_order() { LOOK_BACK } else { ELDERS_OUT_OF_ORDER };
    let from = context.cfg.blocks[context.block_of(i)].start.max(i.saturating_sub(reach));
    (from, collect(context, from, i, context.instructions[i].reads, found))
}

/// Returns, in order, the part of executions in which an operand may come from a caller or callee and not be ready. Only
/// an operand that no instruction has used since can be missing.
pub fn part_from_elsewhere(context: &ProcedureContext, i: usize) -> Option<f64> {
    let (from, part) = since_elsewhere(context, i)?;
    let reads = context.instructions[i].reads;
    let is_return = from > context.cfg.blocks[context.block_of(i)].start;
    let reads = match is_return {
        true => reads.intersection(results(context.arch)),
        false => RegisterSet(reads.0 & !steady(context.arch).0),
    };
    (!collect(context, from, i, reads, &mut Vec::new()).is_empty()).then_some(part)
}

/// Returns, in order, the first instruction of the block since control came from code outside of the procedure, and the
/// part of executions in which it did.
pub fn since_elsewhere(context: &ProcedureContext, i: usize) -> Option<(usize, f64)> {
    let block = context.block_of(i);
    if !context.is_in_order() {
        return None;
    }
    let start = context.cfg.blocks[block].start;
    let last_return = (start..i).rev().find(|&j| context.opcode(j).class == OpcodeClass::Call);
    if let Some(call) = last_return {
        return Some((call + 1, 1.0));
    }
    let entries = context.predecessors(block).filter(|(_, before)| before.is_none());
    Some((start, entries.map(|(edge, _)| context.edge_part(edge, block)).reduce(f64::max)?))
}

/// Returns the registers that carry a procedure's results, on machines that are in order.
fn results(arch: Arch) -> RegisterSet {
    let names = if arch == Arch::Riscv64 { ["a0", "a1", "fa0", "fa1"] } else { ["x0", "x1", "v0", "v1"] };
    names.iter().filter_map(|name| Register::named(arch, name)).collect()
}

/// Returns the registers that are always ready at a procedure's entry. A saved register need not be: the instruction that
/// saves it may wait for it.
fn steady(arch: Arch) -> RegisterSet {
    let special = [Some(arch.stack_pointer()), Some(arch.instruction_pointer()), arch.zero(), arch.flags()];
    let link = Register::named(arch, if arch == Arch::Riscv64 { "ra" } else { "x30" });
    special.into_iter().chain([link]).flatten().collect()
}

/// Adds the last writers in `from..to` and returns the registers that have none there. In order, a value that another
/// instruction has used before was ready, so its writer is ruled out.
fn collect(
    context: &ProcedureContext,
    from: usize,
    to: usize,
    registers: RegisterSet,
    found: &mut Vec<usize>,
) -> RegisterSet {
    let mut missing = RegisterSet::EMPTY;
    for register in registers.iter() {
        let touches = |j: &usize| {
            let other = &context.instructions[*j];
            other.writes.contains(register) || (context.is_in_order() && other.reads.contains(register))
        };
        match (from..to).rev().find(touches) {
            Some(j) if context.instructions[j].writes.contains(register) => found.push(j),
            Some(_) => {}
            None => missing.insert(register),
        }
    }
    missing
}
