//! Who made the operands that an instruction waits for.
//!
//! Input: a stalled instruction. Output: the latest writers of its operands. Complexity: linear in the instructions
//! looked back at, at most [`LOOK_BACK`] in each predecessor, times its operands.
//!
//! In order they are in the block or at the end of one that runs right before it. Out of order the instruction at the
//! head waits for itself; its close elders stay under suspicion where it uses their result, since eliminated moves and
//! fusion push samples further on (docs/measured.md).

use dwell_image::{Arch, Register, RegisterSet};

use super::{LOOK_BACK, context::ProcedureContext};
use crate::machine::OpcodeClass;

/// How many elders may still be to blame out of order.
const ELDERS_OUT_OF_ORDER: usize = 2;

/// Out of order: whether the instruction itself may have taken long, so that no elder needs to be looked for.
pub fn is_own_candidate(context: &ProcedureContext, i: usize) -> bool {
    let opcode = context.opcode(i);
    opcode.load || opcode.store || opcode.divides() || opcode.multiplies()
}

/// The latest writers of the instruction's operands that can have run before it.
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

/// Writers in the block, where the search stopped, and the registers that have none there.
fn own_block(context: &ProcedureContext, i: usize, found: &mut Vec<usize>) -> (usize, RegisterSet) {
    let reach = if context.is_in_order() { LOOK_BACK } else { ELDERS_OUT_OF_ORDER };
    let from = context.cfg.blocks[context.block_of(i)].start.max(i.saturating_sub(reach));
    (from, collect(context, from, i, context.instructions[i].reads, found))
}

/// In order: the part of executions in which an operand may come from code that we do not see, a caller's or a callee's,
/// and not be there yet. Only an operand that nobody used since may be missing.
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

/// In order: the first instruction of the block since control is here, and the part of executions in which it came
/// from code that we do not see.
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

/// Registers that carry a procedure's results, on the machines that are in order.
fn results(arch: Arch) -> RegisterSet {
    let names = if arch == Arch::Riscv64 { ["a0", "a1", "fa0", "fa1"] } else { ["x0", "x1", "v0", "v1"] };
    names.iter().filter_map(|name| Register::named(arch, name)).collect()
}

/// Registers that nobody waits for at a procedure's entry. A saved register may well be waited for: by who saves it.
fn steady(arch: Arch) -> RegisterSet {
    let special = [Some(arch.stack_pointer()), Some(arch.instruction_pointer()), arch.zero(), arch.flags()];
    let link = Register::named(arch, if arch == Arch::Riscv64 { "ra" } else { "x30" });
    special.into_iter().chain([link]).flatten().collect()
}

/// Adds the last writers in `from..to`; returns the registers that have none there. In order a value that an instruction
/// in between has used was there by then, so its writer is innocent.
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
