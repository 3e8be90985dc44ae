//! Which level of the memory can explain how long a load was waited for.
//!
//! Input: a data miss that was not ruled out, before it is limited to the stall. Output: the levels that could each have
//! caused all of the stall, with the part of executions that this takes. Complexity: linear in the instructions between
//! load and user, at most [`LOOK_BACK`].
//!
//! The paper's bound (§6.3) is the latency of memory. Here each level has a bound of its own: its latency less the cycles
//! between the load and its user, times the part of executions that can miss. A level whose bound is below the stall is
//! ruled out, even if frequencies are as much larger as their scale allows: some accesses went further. Further levels
//! can always explain the stall by fewer executions, unless their events were counted.

use super::{
    LOOK_BACK, candidate::Candidate, context::ProcedureContext, events, stalled::StalledInstruction,
};
use crate::{Cause, DataSource, Level};

/// A level may take this many times its modelled latency, because the latencies of remote caches are known to an order of
/// magnitude only.
const LATENCY_TIMES: f64 = 1.25;

/// Returns the levels that the data of a load may have come from; none for causes other than a data miss.
pub fn sources(stalled: &StalledInstruction, candidate: &Candidate) -> Vec<DataSource> {
    if candidate.cause != Cause::DCacheMiss {
        return Vec::new();
    }
    let memory = &stalled.context.model.memory;
    let cycles = candidate.cycles_max.min(stalled.excess_cycles);
    let hidden_cycles = candidate.culprit.map_or(0.0, |load| hidden_cycles(stalled, load));
    let missing_part = missing_part(stalled, candidate);
    let memory_part = events::counted_part(stalled, candidate.culprit, events::LAST_LEVEL);
    let source = |(level, latency, part_max): (Level, f64, f64)| {
        let part = cycles / (latency - hidden_cycles).max(f64::MIN_POSITIVE);
        let certain = part * stalled.certain_part.min(1.0 / confidence(stalled).error_factor_max());
        let is_able = certain <= part_max * LATENCY_TIMES;
        is_able.then_some(DataSource { level, part: part.min(1.0) })
    };
    let has_last = memory.last_level_cycles > memory.l2_cycles;
    let last = has_last.then_some((Level::Last, memory.last_level_cycles, missing_part));
    let beyond =
        (Level::Memory, memory.memory_cycles, memory_part.map_or(missing_part, |p| p.min(missing_part)));
    let levels = [Some((Level::Second, memory.l2_cycles, missing_part)), last, Some(beyond)];
    let sources = levels.into_iter().flatten().filter_map(source).collect::<Vec<_>>();
    debug_assert_eq!(verify_sources(&sources), Ok(()));
    sources
}

/// Checks that the levels ascend, and that the part of each is between 0 and 1.
fn verify_sources(sources: &[DataSource]) -> Result<(), String> {
    let is_sorted = sources.is_sorted_by(|a, b| a.level < b.level);
    let are_parts = sources.iter().all(|s| (0.0..=1.0).contains(&s.part));
    if is_sorted && are_parts { Ok(()) } else { Err(format!("{sources:?}")) }
}

/// Returns the part of executions that can miss the first level.
fn missing_part(stalled: &StalledInstruction, candidate: &Candidate) -> f64 {
    let counted = |event| events::counted_part(stalled, candidate.culprit, event);
    match (counted(events::FIRST_LEVEL), counted(events::LAST_LEVEL)) {
        (Some(part), _) => part.min(1.0),
        // The count overruled the rules of reuse; it does not distinguish nearer levels.
        (None, Some(_)) => 1.0,
        (None, None) => (candidate.cycles_max / stalled.context.model.memory.memory_cycles).min(1.0),
    }
}

/// Returns the cycles that pass in any case between a load and its user, in order.
fn hidden_cycles(stalled: &StalledInstruction, load: usize) -> f64 {
    let StalledInstruction { context, block, i, .. } = *stalled;
    let is_user = !context.instructions[i].reads.intersection(context.instructions[load].writes).is_empty();
    let is_near = load < i && i - load <= LOOK_BACK && context.block_of(load) == block;
    if !(context.is_in_order() && is_user && is_near) {
        return 0.0;
    }
    issue_cycles(context, load, i)
}

fn issue_cycles(context: &ProcedureContext, load: usize, user: usize) -> f64 {
    context.schedule.issue_cycles_min[load + 1..=user].iter().sum()
}

fn confidence(stalled: &StalledInstruction) -> crate::Confidence {
    let estimate = stalled.context.estimates.blocks[stalled.block];
    estimate.map_or(crate::Confidence::Low, |e| e.confidence)
}
