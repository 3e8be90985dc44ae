//! Synchronization: a barrier or an atomic operation makes the processor wait until memory is consistent.
//!
//! The candidates are the instruction itself and the one before it: in order the next instruction may not issue earlier,
//! and out of order a barrier pushes some samples past its successor (measured: `mfence`,
//! test-fixtures/kernels/x86-64/README.md).

use crate::{
    Cause,
    culprits::{candidate::Candidate, context::ProcedureContext, stalled::StalledInstruction},
};

/// Adds the operation, if there is one.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let StalledInstruction { context, i, .. } = *stalled;
    let before = (!stalled.is_head()).then(|| i.wrapping_sub(1));
    for culprit in [Some(i), before].into_iter().flatten().filter(|&j| synchronizes(context, j)) {
        let cycles_max = f64::INFINITY;
        candidates.push(Candidate { cause: Cause::Synchronization, cycles_max, culprit: Some(culprit) });
    }
}

/// Whether an instruction orders memory: a barrier, an atomic operation, or a store with release semantics, which waits
/// for all earlier accesses.
fn synchronizes(context: &ProcedureContext, i: usize) -> bool {
    context.opcode(i).synchronizes() || context.instructions[i].mnemonic.starts_with("stlr")
}
