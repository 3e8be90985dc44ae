//! Store forwarding: a load needs bytes of an earlier store that is still in the store buffer, and others besides, so it
//! waits until the store has left the buffer.
//!
//! A store is a candidate only where the operands prove it: the same unchanged registers, and an overlap in which the
//! store does not cover the load. Few manuals say how long this takes in order (SiFive's of the E51 and the U54: five
//! cycles).

use super::earlier_stores;
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

/// Adds the stores that cannot be forwarded from.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    // The store may itself miss all caches before it can leave.
    let model = stalled.context.model;
    let cycles_max = model.partial_forward_cycles.unwrap_or(model.memory.memory_cycles);
    for (_, stores) in earlier_stores::before_loads(stalled) {
        // The latest store that overlaps decides.
        if let Some(elder) = stores.iter().find(|s| s.overlaps()).filter(|s| !s.covers()) {
            candidates.push(Candidate {
                cause: Cause::StoreForwarding,
                cycles_max,
                culprit: Some(elder.store),
            });
        }
    }
}
