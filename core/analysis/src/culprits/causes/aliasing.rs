//! 4K aliasing: a load looks as if it needed an older store, because the low twelve bits of their addresses agree.
//!
//! A store is a candidate only where the operands prove it: the same unchanged registers, and a distance that is a
//! multiple of 4,096 bytes or close enough to one that the accesses would overlap. Only machines that are out of order
//! compare partial addresses.

use super::earlier_stores::{self, EarlierStore};
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

const ALIAS_BYTES: i64 = 4096;

/// Adds the stores whose addresses alias.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    if stalled.context.is_in_order() {
        return;
    }
    // The load is replayed when the store's whole address is known.
    let cycles_max = stalled.context.model.memory.last_level_cycles;
    for (_, stores) in earlier_stores::before_loads(stalled) {
        for elder in stores.iter().filter(|s| !s.overlaps() && alias(s)) {
            candidates.push(Candidate { cause: Cause::Aliasing4K, cycles_max, culprit: Some(elder.store) });
        }
    }
}

fn alias(elder: &EarlierStore) -> bool {
    let distance_bytes = elder.distance_bytes.rem_euclid(ALIAS_BYTES);
    let near = |distance_bytes| EarlierStore { distance_bytes, ..*elder }.overlaps();
    near(distance_bytes) || near(distance_bytes - ALIAS_BYTES)
}
