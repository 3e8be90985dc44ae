//! Upper bounds from samples of other events: a cause explains no more cycles than its events can have cost (DCPI §6.3,
//! IMISS).
//!
//! Complexity: linear in the instructions between culprit and stall, at most [`LOOK_BACK`].

use dwell_profile::Event;

use super::{
    LOOK_BACK, candidate::Candidate, causes::mispredict::penalty_cycles_max, context::ProcedureContext,
    stalled::StalledInstruction,
};
use crate::Cause;

/// Event that counts loads that missed the first-level cache.
pub const FIRST_LEVEL: &str = "L1-dcache-load-misses";
/// Event that counts accesses that missed the last-level cache.
pub const LAST_LEVEL: &str = "cache-misses";

/// The events that count a cause, with the greatest cost of one occurrence.
const COUNTED_BY: [(Cause, &str, Cost); 6] = [
    (Cause::DCacheMiss, FIRST_LEVEL, Cost::Memory),
    (Cause::DCacheMiss, LAST_LEVEL, Cost::MemoryBeyondLastLevel),
    (Cause::ICacheMiss, "L1-icache-load-misses", Cost::Memory),
    (Cause::DtlbMiss, "dTLB-load-misses", Cost::DtlbMiss),
    (Cause::ItlbMiss, "iTLB-load-misses", Cost::ItlbMiss),
    (Cause::BranchMispredict, "branch-misses", Cost::Mispredict),
];

/// Returns the names of the events whose samples bound a cause.
pub fn events_that_bound() -> [&'static str; COUNTED_BY.len()] {
    COUNTED_BY.map(|(_, event, _)| event)
}

#[derive(Clone, Copy)]
enum Cost {
    Memory,
    /// Data that did not miss the last level may still come from it.
    MemoryBeyondLastLevel,
    DtlbMiss,
    ItlbMiss,
    Mispredict,
}

/// Bounds a candidate by its events. Each occurrence counts with its greatest cost.
pub fn bound(stalled: &StalledInstruction, candidate: &mut Candidate) {
    let memory = &stalled.context.model.memory;
    let bound = |(_, name, cost): (Cause, &'static str, Cost)| {
        let (each, without) = match cost {
            Cost::Memory => (memory.memory_cycles, 0.0),
            Cost::MemoryBeyondLastLevel => (memory.memory_cycles, memory.last_level_cycles),
            Cost::DtlbMiss => (memory.dtlb_miss_cycles, 0.0),
            Cost::ItlbMiss => (memory.itlb_miss_cycles, 0.0),
            Cost::Mispredict => (penalty_cycles_max(stalled.context), 0.0),
        };
        Some(counted_part(stalled, candidate.culprit, name)? * each + without)
    };
    let counted = COUNTED_BY.into_iter().filter(|(cause, ..)| *cause == candidate.cause);
    let Some(bound) = counted.filter_map(bound).reduce(f64::min) else { return };
    // Counts are better evidence than the rules of reuse: another processor may take a line away at any time.
    let is_data =
        candidate.culprit.is_some() && matches!(candidate.cause, Cause::DCacheMiss | Cause::DtlbMiss);
    candidate.cycles_max = if is_data { bound } else { candidate.cycles_max.min(bound) };
}

/// Returns an upper bound on the occurrences of an event per execution, or `None` if the event was not sampled.
pub fn counted_part(
    stalled: &StalledInstruction,
    culprit: Option<usize>,
    event: &'static str,
) -> Option<f64> {
    let StalledInstruction { context, block, i, .. } = *stalled;
    if context.events.is_empty() {
        return None;
    }
    let (samples, period) = context.events.get(&Event::named(event))?;
    let near = near_samples(context, culprit.unwrap_or(i), i, samples);
    Some(near * *period as f64 / executions(context, block)?)
}

fn executions(context: &ProcedureContext, block: usize) -> Option<f64> {
    Some(context.frequency(block) * context.period_cycles?).filter(|&e| e > 0.0)
}

/// Returns the event's samples from the culprit to a little behind the stalled instruction (they skid too), plus three
/// standard errors.
fn near_samples(context: &ProcedureContext, culprit: usize, i: usize, samples: &[u64]) -> f64 {
    const SKID_MAX: usize = 4;
    let from = culprit.min(i).max(i.saturating_sub(LOOK_BACK));
    let to = (culprit.max(i) + SKID_MAX).min(context.instructions.len());
    let near: f64 = samples.get(from..to.min(samples.len())).unwrap_or(&[]).iter().map(|&s| s as f64).sum();
    near + 3.0 * near.max(1.0).sqrt()
}
