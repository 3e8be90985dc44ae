//! Instruction TLB: it did not hold the instruction's page. It is ruled out unless the code right before is in another
//! page.

use super::{fetch::new_part, icache::witnessed_cycles};
use crate::{
    Cause,
    culprits::{candidate::Candidate, stalled::StalledInstruction},
};

/// Number of a loop's pages that the smallest instruction TLB holds.
const PAGES_KEPT: usize = 8;

/// Adds the miss, if it was not ruled out. A page walk may itself miss the caches.
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
