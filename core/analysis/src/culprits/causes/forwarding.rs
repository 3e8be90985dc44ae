//! Store forwarding: a load needs bytes of an older store that has not left its buffer, and more than that store holds,
//! so it must wait until the store has.
//!
//! Suspected only where the operands prove it: same registers, unchanged between, overlapping without being contained. How long that
//! takes in order few manuals say (SiFive's of the E51 and the U54: five cycles).

use super::earlier_stores;
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

/// Adds the stores that cannot be forwarded from.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    // The store may itself miss all the way before it can leave.
    let model = stalled.context.model;
    let cycles_max = model.partial_forward_cycles.unwrap_or(model.memory.memory_cycles);
    for (_, stores) in earlier_stores::before_loads(stalled) {
        // The youngest that overlaps decides.
        if let Some(elder) = stores.iter().find(|s| s.overlaps()).filter(|s| !s.covers()) {
            candidates.push(Candidate {
                cause: Cause::StoreForwarding,
                cycles_max,
                culprit: Some(elder.store),
            });
        }
    }
}
