//! Data TLB: it did not hold the page of a load or store (DCPI §6.3).
//!
//! An address is translated before its access continues, so the access itself waits and not the user of a loaded value
//! (in the paper's Figure 2 the stores carry the `D`). Out of order the close user of a load is a candidate too, as for
//! the data cache. The rules are those for lines, applied to pages. A page is missing less often than a line of it, so a
//! load whose user does not wait is ruled out, unless its address advances so fast that it accesses only few lines of
//! each page.

use dwell_image::{MemoryOperand, Register};

use super::dcache;
use crate::{
    Cause,
    culprits::{
        address::advance_bytes,
        candidate::Candidate,
        context::ProcedureContext,
        load_use::load_missed_part,
        register_step::Step,
        reuse::{Grain, fresh_part},
        stalled::StalledInstruction,
    },
};

/// Adds the accesses that were not ruled out.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let StalledInstruction { context, i, .. } = *stalled;
    let own = (context.opcode(i).load || context.opcode(i).store).then_some(i);
    let elders = if context.is_in_order() { Vec::new() } else { dcache::loads(stalled) };
    for access in own.into_iter().chain(elders) {
        let witnessed = if strides_pages(context, access) { 1.0 } else { load_missed_part(context, access) };
        let part = fresh_part(context, access, Grain::page(context)).min(witnessed);
        let cycles_max = part * context.model.memory.dtlb_miss_cycles;
        candidates.push(Candidate { cause: Cause::DtlbMiss, cycles_max, culprit: Some(access) });
    }
}

/// Whether an access leaves a page after a few executions.
fn strides_pages(context: &ProcedureContext, access: usize) -> bool {
    const ACCESSES_IN_PAGE: f64 = 4.0;
    let Some(id) = context.facts.loops.innermost(context.block_of(access)) else { return false };
    let is_long = |m: &MemoryOperand| match advance_bytes(context, id, m) {
        Some(bytes) => bytes * ACCESSES_IN_PAGE >= context.model.memory.page_bytes as f64,
        None => [m.base, m.index].into_iter().flatten().any(|r| adds_up(context, id, r)),
    };
    context.instructions[access].memory().any(is_long)
}

/// Whether a register advances in each iteration of a loop by an unknown number.
fn adds_up(context: &ProcedureContext, id: usize, register: Register) -> bool {
    let Some(Step::Defined(i)) = context.facts.loops.step(id, register) else { return false };
    let instruction = &context.instructions[i];
    matches!(&*instruction.mnemonic, "add" | "sub" | "addw") && instruction.reads.contains(register)
}
