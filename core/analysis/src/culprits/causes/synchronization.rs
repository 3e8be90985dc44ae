//! Synchronization: a barrier, a locked or atomic operation makes its processor wait until memory agrees.
//!
//! Only the instruction itself is candidate, and the one after it: in order it may not issue before, and out of order a
//! barrier pushes some samples past its successor (measured: `mfence`, test-fixtures/kernels/x86-64/README.md).

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

/// Whether an instruction orders memory: a barrier, an atomic operation, a store that releases (what it waits for is all
/// older accesses).
fn synchronizes(context: &ProcedureContext, i: usize) -> bool {
    context.opcode(i).synchronizes() || context.instructions[i].mnemonic.starts_with("stlr")
}
