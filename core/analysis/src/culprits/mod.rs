//! Which causes and instructions explain the cycles that the model does not: guilty until proven innocent (DCPI §6.3).
//!
//! Input: an instruction with a dynamic stall, the graph, frequencies, event samples. Output: each cause that could not
//! be ruled out, with a range of the cycles that it explains. Each cause has a rule of its own in [`causes`], from a
//! [`StalledInstruction`] to [`Candidate`]s; this module combines them and checks the result. Complexity: linear in the
//! instructions looked back at, at most [`LOOK_BACK`] for each stall and predecessor.
//!
//! Out of order the oldest instruction waits only for itself, since earlier ones have retired; in order an instruction
//! waits for the producers of its operands. Out of order the skid of samples was undone before.

mod address;
mod candidate;
mod causes;
mod context;
mod events;
mod facts;
mod levels;
mod line_entries;
mod load_use;
mod loops;
mod producers;
mod register_step;
mod reuse;
mod stalled;

use candidate::Candidate;
use causes::{RULES, kernel, mispredict};
pub use context::ProcedureContext;
pub use events::events_that_bound;
pub use facts::ProcedureFacts;
pub use kernel::charged as in_the_kernel;
pub use loops::Loops;
use rustc_hash::FxHashMap;
pub use stalled::StalledInstruction;

use crate::{Cause, Stall, StallKind};

/// Number of instructions that a search for a producer looks back.
const LOOK_BACK: usize = 64;
/// A cause that explains at most this part of a stall is left out, because naming it would mislead.
const NEGLIGIBLE_PART: f64 = 0.05;

/// Returns the causes of the cycles per execution that an instruction lost, each with its range.
pub fn explain(stalled: &StalledInstruction) -> Vec<Stall> {
    let mut candidates = Vec::new();
    RULES.iter().for_each(|rule| rule(stalled, &mut candidates));
    candidates.iter_mut().for_each(|candidate| events::bound(stalled, candidate));
    let mut candidates = merged(candidates);
    if explained_cycles(&candidates) < stalled.excess_cycles {
        let mut others = Vec::new();
        mispredict::for_unexplained(stalled, &mut others);
        others.iter_mut().for_each(|candidate| events::bound(stalled, candidate));
        candidates = merged(candidates.into_iter().chain(others).collect());
    }
    kernel::page_faults(stalled, explained_cycles(&candidates), &mut candidates);
    candidates.retain(|s| s.cycles_max >= NEGLIGIBLE_PART * stalled.excess_cycles);
    let stalls = ranges(stalled, candidates);
    debug_assert_eq!(verify(&stalls, stalled.excess_cycles), Ok(()));
    stalls
}

fn explained_cycles(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|s| s.cycles_max).sum()
}

/// Merges candidates of the same cause and culprit into one with the larger bound.
fn merged(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut kept: Vec<Candidate> = Vec::new();
    let mut place_of = FxHashMap::default();
    for candidate in candidates.into_iter().filter(|s| s.cycles_max > 0.0) {
        let place = *place_of.entry((candidate.cause, candidate.culprit)).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(k) => k.cycles_max = k.cycles_max.max(candidate.cycles_max),
            None => kept.push(candidate),
        }
    }
    kept
}

/// Turns bounds into ranges: a candidate explains at most its bound, and at least what all others together cannot.
fn ranges(stalled: &StalledInstruction, candidates: Vec<Candidate>) -> Vec<Stall> {
    let excess_cycles = stalled.excess_cycles;
    let cap = |s: &Candidate| s.cycles_max.min(excess_cycles);
    let total: f64 = candidates.iter().map(cap).sum();
    let dynamic = |cause, cycles_min, cycles_max, culprit| Stall {
        kind: StallKind::Dynamic,
        cause,
        cycles_min,
        cycles_max,
        culprit,
        sources: Vec::new(),
    };
    let range = |s: &Candidate| {
        let cycles_min = (excess_cycles - (total - cap(s))).max(0.0).min(cap(s));
        Stall { sources: levels::sources(stalled, s), ..dynamic(s.cause, cycles_min, cap(s), s.culprit) }
    };
    let mut stalls: Vec<Stall> = candidates.iter().map(range).collect();
    stalls.sort_by(|a, b| b.cycles_max.total_cmp(&a.cycles_max).then(a.cause.cmp(&b.cause)));
    let unexplained = excess_cycles - total;
    if unexplained > 1e-9 * excess_cycles {
        stalls.push(dynamic(Cause::Unexplained, unexplained, unexplained, None));
    }
    stalls
}

/// Checks that the ranges together can explain the whole excess, and that none exceeds it.
fn verify(stalls: &[Stall], excess_cycles: f64) -> Result<(), String> {
    let slack = 1e-6 * excess_cycles;
    let most: f64 = stalls.iter().map(|s| s.cycles_max).sum();
    let is_range = |s: &Stall| 0.0 <= s.cycles_min && s.cycles_min <= s.cycles_max + slack;
    match stalls.iter().find(|s| !is_range(s) || s.cycles_max > excess_cycles + slack) {
        Some(stall) => Err(format!("{stall:?} of {excess_cycles} cycles")),
        None if most < excess_cycles - slack => {
            Err(format!("{most} of {excess_cycles} cycles are explained"))
        }
        None => Ok(()),
    }
}
