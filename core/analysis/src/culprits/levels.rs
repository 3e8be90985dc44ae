//! Which level of the memory can explain how long a load was waited for.
//!
//! Input: a data miss under suspicion, not yet cut to the stall. Output: the levels that could alone have caused all of the
//! stall, each with the part of executions that this takes. Complexity: linear in the instructions between load and
//! user, at most [`LOOK_BACK`].
//!
//! The paper's bound (§6.3) is memory's latency. Here each level has its own: what its latency exceeds the cycles between the load and
//! its user by, times the part of executions that can miss. A level that falls short of the stall is ruled out, even if frequencies
//! are as much larger as their scale allows, so a further one was asked at least now and then; further ones always can explain it, in fewer executions, unless their events were counted.

use super::{
    LOOK_BACK, candidate::Candidate, context::ProcedureContext, events, stalled::StalledInstruction,
};
use crate::{Cause, DataSource, Level};

/// A level may take so many times as long as the model says: latencies of caches far away are orders of magnitude there.
const LATENCY_TIMES: f64 = 1.25;

/// Where the data of a load under suspicion may have come from; nothing for other causes.
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

/// Checks that further levels come later, and that each takes a part of executions.
fn verify_sources(sources: &[DataSource]) -> Result<(), String> {
    let is_sorted = sources.is_sorted_by(|a, b| a.level < b.level);
    let are_parts = sources.iter().all(|s| (0.0..=1.0).contains(&s.part));
    if is_sorted && are_parts { Ok(()) } else { Err(format!("{sources:?}")) }
}

/// The part of executions that can miss the first level.
fn missing_part(stalled: &StalledInstruction, candidate: &Candidate) -> f64 {
    let counted = |event| events::counted_part(stalled, candidate.culprit, event);
    match (counted(events::FIRST_LEVEL), counted(events::LAST_LEVEL)) {
        (Some(part), _) => part.min(1.0),
        // What was counted overruled the rules of reuse, and says nothing about nearer levels.
        (None, Some(_)) => 1.0,
        (None, None) => (candidate.cycles_max / stalled.context.model.memory.memory_cycles).min(1.0),
    }
}

/// In order, the cycles that pass between a load and its user in any case.
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
