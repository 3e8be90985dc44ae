//! Who is to blame for cycles that the model does not explain: guilty until proven innocent (DCPI §6.3).
//!
//! Input: an instruction with a dynamic stall, the graph, frequencies, event samples. Output: every cause that could not
//! be ruled out, each with the most it can explain, as a range. Each cause has a file and a rule-out of its own, from a
//! [`Stalled`] instruction to [`Suspect`]s; what they promise together is checked here.
//! Complexity: linear in the instructions looked back at, at most [`LOOK_BACK`] for each stall and predecessor.
//!
//! Out of order the instruction at the head waits for itself alone, since its elders have retired; in order it waits for
//! its operands' producers. What is charged to the head out of order had its skid undone before.

mod address;
mod aliasing;
mod dcache;
mod divider;
mod dtlb;
mod elder_stores;
mod events;
mod fetch;
mod forwarding;
mod icache;
mod itlb;
mod kernel;
mod levels;
mod loops;
mod mispredict;
mod multiplier;
mod producers;
mod reuse;
mod scene;
mod synchronization;
mod units;
mod witness;
mod write_buffer;

pub use events::events_that_bound;
pub use kernel::charged as in_the_kernel;
pub use loops::Loops;
use rustc_hash::FxHashMap;
use scene::Suspect;
pub use scene::{Facts, Scene, Stalled};

use crate::{Cause, Stall, StallKind};

/// Instructions that a search for a producer goes back.
const LOOK_BACK: usize = 64;
/// A cause that can explain no more than this part of a stall is innocent: naming it would mislead.
const NEGLIGIBLE_PART: f64 = 0.05;

/// One for each cause: adds what it cannot rule out.
const INQUIRIES: [fn(&Stalled, &mut Vec<Suspect>); 12] = [
    icache::suspects,
    itlb::suspects,
    mispredict::suspects,
    dcache::suspects,
    dtlb::suspects,
    divider::suspects,
    multiplier::suspects,
    write_buffer::suspects,
    synchronization::suspects,
    forwarding::suspects,
    aliasing::suspects,
    kernel::suspects,
];

/// The ranges of all causes for the cycles that an instruction lost per execution.
pub fn explain(stalled: &Stalled) -> Vec<Stall> {
    let mut suspects = Vec::new();
    INQUIRIES.iter().for_each(|inquire| inquire(stalled, &mut suspects));
    suspects.iter_mut().for_each(|suspect| events::bound(stalled, suspect));
    let mut suspects = merged(suspects);
    if explained_cycles(&suspects) < stalled.excess_cycles {
        let mut others = Vec::new();
        mispredict::second_look(stalled, &mut others);
        others.iter_mut().for_each(|suspect| events::bound(stalled, suspect));
        suspects = merged(suspects.into_iter().chain(others).collect());
    }
    kernel::page_faults(stalled, explained_cycles(&suspects), &mut suspects);
    suspects.retain(|s| s.cycles_max >= NEGLIGIBLE_PART * stalled.excess_cycles);
    let stalls = ranges(stalled, suspects);
    debug_assert_eq!(verify(&stalls, stalled.excess_cycles), Ok(()));
    stalls
}

fn explained_cycles(suspects: &[Suspect]) -> f64 {
    suspects.iter().map(|s| s.cycles_max).sum()
}

/// One suspect for each cause and culprit, with the larger of the bounds.
fn merged(suspects: Vec<Suspect>) -> Vec<Suspect> {
    let mut kept: Vec<Suspect> = Vec::new();
    let mut place_of = FxHashMap::default();
    for suspect in suspects.into_iter().filter(|s| s.cycles_max > 0.0) {
        let place = *place_of.entry((suspect.cause, suspect.culprit)).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(k) => k.cycles_max = k.cycles_max.max(suspect.cycles_max),
            None => kept.push(suspect),
        }
    }
    kept
}

/// Each suspect explains at most its bound, and at least what all the others together cannot.
fn ranges(stalled: &Stalled, suspects: Vec<Suspect>) -> Vec<Stall> {
    let excess_cycles = stalled.excess_cycles;
    let cap = |s: &Suspect| s.cycles_max.min(excess_cycles);
    let total: f64 = suspects.iter().map(cap).sum();
    let dynamic = |cause, cycles_min, cycles_max, culprit| Stall {
        kind: StallKind::Dynamic,
        cause,
        cycles_min,
        cycles_max,
        culprit,
        sources: Vec::new(),
    };
    let range = |s: &Suspect| {
        let cycles_min = (excess_cycles - (total - cap(s))).max(0.0).min(cap(s));
        Stall { sources: levels::sources(stalled, s), ..dynamic(s.cause, cycles_min, cap(s), s.culprit) }
    };
    let mut stalls: Vec<Stall> = suspects.iter().map(range).collect();
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
