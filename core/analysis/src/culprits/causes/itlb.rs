//! Instruction TLB: the instruction's page had no translation at hand. Innocent unless what ran right before lies in
//! another page.

use super::{fetch::new_part, icache::witnessed_cycles};
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

/// Pages of a loop that the smallest instruction TLB holds.
const PAGES_KEPT: usize = 8;

/// Adds the miss, if it was not ruled out. A walk may itself miss the caches.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let memory = &stalled.context.model.memory;
    let by_rules = new_part(stalled, memory.page_bytes, |l| l.pages <= PAGES_KEPT);
    // A page is missing less often than its lines.
    let part = by_rules.min(witnessed_cycles(stalled) / memory.l2_cycles);
    candidates.push(Candidate {
        cause: Cause::ItlbMiss,
        cycles_max: part * memory.itlb_miss_cycles,
        culprit: None,
    });
}
