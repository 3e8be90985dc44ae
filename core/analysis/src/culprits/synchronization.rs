//! Synchronization: a barrier, a locked or atomic operation makes its processor wait until memory agrees.
//!
//! Only the instruction itself is suspect, and the one after it: in order it may not issue before, and out of order a
//! barrier pushes some samples past its successor (measured: `mfence`, test-fixtures/kernels/x86-64/README.md).

use super::scene::{Scene, Stalled, Suspect};
use crate::Cause;

/// Adds the operation, if there is one.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let Stalled { scene, i, .. } = *stalled;
    let before = (!stalled.is_head()).then(|| i.wrapping_sub(1));
    for culprit in [Some(i), before].into_iter().flatten().filter(|&j| synchronizes(scene, j)) {
        let cycles_max = f64::INFINITY;
        suspects.push(Suspect { cause: Cause::Synchronization, cycles_max, culprit: Some(culprit) });
    }
}

/// Whether an instruction orders memory: a barrier, an atomic operation, a store that releases (what it waits for is all
/// older accesses).
fn synchronizes(scene: &Scene, i: usize) -> bool {
    scene.opcode(i).synchronizes() || scene.instructions[i].mnemonic.starts_with("stlr")
}
