//! Synchronization: a barrier, a locked or atomic operation makes its processor wait until memory agrees.
//!
//! Only the instruction itself is suspect, and in order the one after it, which may not issue before.

use super::scene::{Stalled, Suspect};
use crate::Cause;

/// Adds the operation, if there is one.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let Stalled { scene, i, .. } = *stalled;
    let before = (scene.is_in_order() && !stalled.is_head()).then(|| i.wrapping_sub(1));
    for culprit in [Some(i), before].into_iter().flatten().filter(|&j| scene.opcode(j).synchronizes()) {
        let cycles_max = f64::INFINITY;
        suspects.push(Suspect { cause: Cause::Synchronization, cycles_max, culprit: Some(culprit) });
    }
}
