//! The rule that the instruction cache and the instruction TLB share: an instruction waits for neither if it is in the
//! line, or page, of all code that can run right before it (DCPI §6.3).
//!
//! Output: an upper bound on the part of executions that enter a new line or page. Complexity: linear in the block's
//! predecessors.
//!
//! In order the first instruction of a new line waits. Out of order, with the skid undone, the samples of a fetch stall
//! are on the instruction before the line, whose successor is missing, and on the line's first instruction
//! (docs/measured.md).

use dwell_image::Instruction;

use crate::culprits::{context::ProcedureContext, loops::Loop, stalled::StalledInstruction};

/// Returns an upper bound on the part of executions that enter a unit of `bytes` that was not just used. `is_kept` says
/// whether all code of a loop stays cached while the loop runs.
pub fn new_part(stalled: &StalledInstruction, bytes: u64, is_kept: fn(&Loop) -> bool) -> f64 {
    let crossing = crossing_part(stalled, bytes);
    if crossing > 0.0 { crossing.min(first_part(stalled.context, stalled.block, is_kept)) } else { 0.0 }
}

/// Returns the part of executions right after the innermost such loop was entered, if the loop runs no other code.
fn first_part(context: &ProcedureContext, block: usize, is_kept: fn(&Loop) -> bool) -> f64 {
    let frequency = context.frequency(block);
    if frequency <= 0.0 {
        return 1.0;
    }
    let loops = &context.facts.loops;
    let quiet = loops.around(block).map(|id| loops.get(id)).filter(|l| !l.leaves && is_kept(l));
    quiet.map(|l| l.entries / frequency).fold(1.0, f64::min)
}

/// Returns the part of executions whose predecessor is in another unit, or out of order whose successor is.
fn crossing_part(stalled: &StalledInstruction, bytes: u64) -> f64 {
    let StalledInstruction { context, block, i, .. } = *stalled;
    let comes_new = if !stalled.is_head() {
        let before = &context.instructions[i - 1];
        // After a call or a return from the kernel, other code ran right before.
        let is_new = context.leaves(i - 1) || crosses(before, &context.instructions[i], bytes);
        f64::from(u8::from(is_new))
    } else {
        let parts = context.predecessors(block).map(|(edge, before)| match before {
            Some(before)
                if !crosses(&context.instructions[before.end - 1], &context.instructions[i], bytes) =>
            {
                0.0
            }
            _ => context.edge_part(edge, block),
        });
        parts.sum::<f64>().min(1.0)
    };
    if !context.is_in_order() && successor_is_new(stalled, bytes) { 1.0 } else { comes_new }
}

fn crosses(before: &Instruction, after: &Instruction, bytes: u64) -> bool {
    before.end().0.wrapping_sub(1) / bytes != after.address.0 / bytes
        || after.address.0 / bytes != after.end().0.wrapping_sub(1) / bytes
}

fn successor_is_new(stalled: &StalledInstruction, bytes: u64) -> bool {
    let StalledInstruction { context, block, i, .. } = *stalled;
    let own = &context.instructions[i];
    let next = context.head_after(i);
    if next < context.cfg.blocks[block].end {
        return crosses(own, &context.instructions[next], bytes);
    }
    let cfg = context.cfg;
    cfg.successors[block].iter().any(|&e| {
        let target = cfg.blocks.get(cfg.edges[e].to).map(|b| &context.instructions[b.start]);
        !context.is_rare(e, block) && target.is_some_and(|t| crosses(own, t, bytes))
    })
}
