//! Instruction TLB: the instruction's page had no translation at hand. Innocent unless what ran right before lies in
//! another page.

use super::{
    fetch::new_part,
    icache::witnessed_cycles,
    scene::{Stalled, Suspect},
};
use crate::Cause;

/// Pages of a loop that the smallest instruction TLB holds.
const PAGES_KEPT: usize = 8;

/// Adds the miss, if it was not ruled out. A walk may itself miss the caches.
pub fn suspects(stalled: &Stalled, suspects: &mut Vec<Suspect>) {
    let memory = &stalled.scene.model.memory;
    let by_rules = new_part(stalled, memory.page_bytes, |l| l.pages <= PAGES_KEPT);
    // A page is missing less often than its lines.
    let part = by_rules.min(witnessed_cycles(stalled) / memory.l2_cycles);
    suspects.push(Suspect {
        cause: Cause::ItlbMiss,
        cycles_max: part * memory.itlb_miss_cycles,
        culprit: None,
    });
}
