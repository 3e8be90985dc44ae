//! Data TLB: the page of a load or store had no translation at hand (DCPI §6.3).
//!
//! Suspects are the loads that the data cache suspects, and the instruction's own store, whose address is translated
//! before it may leave. Ruled out and bounded by pages as lines are there.

use super::{
    dcache, producers,
    reuse::{Grain, fresh_part},
    scene::{Stalled, Suspect},
};
use crate::Cause;

/// Adds the accesses that were not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let scene = stalled.scene;
    let cycles = scene.model.memory.dtlb_miss_cycles;
    let own_store = scene.opcode(stalled.i).store.then_some(stalled.i);
    let mut accuse = |cycles_max: f64, culprit| {
        suspects.push(Suspect { cause: Cause::DtlbMiss, cycles_max, culprit });
    };
    for access in dcache::loads(stalled).into_iter().chain(own_store) {
        accuse(fresh_part(scene, access, Grain::page(scene)) * cycles, Some(access));
    }
    if let Some(part) = producers::part_from_elsewhere(stalled) {
        accuse(part * cycles, None);
    }
}
