//! 4K aliasing: a load looks as if it needed an older store, because the low twelve bits of their addresses agree.
//!
//! Suspected only where the operands prove it: same registers, unchanged between, a distance that is a multiple of 4,096
//! bytes or so close to one that they would overlap. Machines compare partial addresses in store order only out of
//! order.

use super::earlier_stores::{self, EarlierStore};
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

const ALIAS_BYTES: i64 = 4096;

/// Adds the stores that look alike.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    if stalled.context.is_in_order() {
        return;
    }
    // The load is replayed once the store's whole address is known.
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
