//! Data TLB: the page of a load or store had no translation at hand (DCPI §6.3).
//!
//! An address is translated before its access may go on, so the access itself waits, not who uses what it loads (in the
//! paper's Figure 2 the stores carry the `D`). Out of order a load's close user is suspect too, as for the data cache.
//! Ruled out and bounded by pages as lines are there; a page is missing less often than a line of it, so a load whose user
//! does not wait is innocent.

use super::{
    dcache,
    reuse::{Grain, fresh_part},
    scene::{Stalled, Suspect},
    witness::load_missed_part,
};
use crate::Cause;

/// Adds the accesses that were not ruled out.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let Stalled { scene, i, .. } = *stalled;
    let own = (scene.opcode(i).load || scene.opcode(i).store).then_some(i);
    let elders = if scene.is_in_order() { Vec::new() } else { dcache::loads(stalled) };
    for access in own.into_iter().chain(elders) {
        let part = fresh_part(scene, access, Grain::page(scene)).min(load_missed_part(scene, access));
        let cycles_max = part * scene.model.memory.dtlb_miss_cycles;
        suspects.push(Suspect { cause: Cause::DtlbMiss, cycles_max, culprit: Some(access) });
    }
}
