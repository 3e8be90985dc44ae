//! Who is to blame for cycles that the model does not explain: guilty until proven innocent (DCPI §6.3).
//!
//! Input: an instruction with a dynamic stall, the graph, frequencies, event samples. Output: every cause that could not
//! be ruled out, each with the most it can explain, as a range. Each cause has a file and a rule-out of its own, from a
//! [`StalledInstruction`] instruction to [`Candidate`]s; what they promise together is checked here.
//! Complexity: linear in the instructions looked back at, at most [`LOOK_BACK`] for each stall and predecessor.
//!
//! Out of order the instruction at the head waits for itself alone, since its elders have retired; in order it waits for
//! its operands' producers. What is charged to the head out of order had its skid undone before.

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

use rustc_hash::FxHashMap;

use candidate::Candidate;
use causes::{RULES, kernel, mispredict};
pub use context::ProcedureContext;
pub use events::events_that_bound;
pub use facts::ProcedureFacts;
pub use kernel::charged as in_the_kernel;
pub use loops::Loops;
pub use stalled::StalledInstruction;

use crate::{Cause, Stall, StallKind};

/// Instructions that a search for a producer goes back.
const LOOK_BACK: usize = 64;
/// A cause that can explain no more than this part of a stall is innocent: naming it would mislead.
const NEGLIGIBLE_PART: f64 = 0.05;

/// The ranges of all causes for the cycles that an instruction lost per execution.
pub fn explain(stalled: &StalledInstruction) -> Vec<Stall> {
    let mut candidates = Vec::new();
    RULES.iter().for_each(|rule| rule(stalled, &mut candidates));
    candidates.iter_mut().for_each(|candidate| events::bound(stalled, candidate));
    let mut candidates = merged(candidates);
    if explained_cycles(&candidates) < stalled.excess_cycles {
        let mut others = Vec::new();
        mispredict::second_look(stalled, &mut others);
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

/// One candidate for each cause and culprit, with the larger of the bounds.
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

/// Each candidate explains at most its bound, and at least what all the others together cannot.
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

/// Checks that the ranges can explain the whole excess and none of them more than it.
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
