//! When a burst is timed: its thread goes on at once, and is emulated meanwhile.
//!
//! Enters: what came of bursts. Leaves: whether the next one is to be timed. Never here: how ([`crate::sys::tracer`]).
//!
//! A timed burst has a hundred times as many steps as one during which the thread stands still, and an absolute scale. But what the
//! thread changes in memory before it is copied is missing, so the pages that it is likely to change must be known from bursts before.
//! The first bursts only find such pages, and compile code, while nobody waits. Then the thread stands still for a part of the
//! burst, which counts if the rest comes to nothing; for a small part as long as that is not so. And the thread must not make a
//! system call for a millisecond. So bursts that cannot be timed are tried more and more seldom.

use crate::sys::tracer::SHORT_STEPS;

/// Part of the target's CPU time that emulation takes while threads run. It has the lowest priority.
const SHARE: f64 = 0.1;
/// Numbers of steps for which the thread stands still in the first bursts. They find out what the others will need.
const FIRST_STEPS: [usize; 4] = [SHORT_STEPS, 2 * SHORT_STEPS, 4 * SHORT_STEPS, 8 * SHORT_STEPS];
/// Number of bursts in succession that cannot be timed before there are others again.
const FAILURES_FREE: u32 = 8;
/// Assumed cost of the first timed burst in ns, while the thread runs, and while it stands still.
const COST_NS_FIRST: f64 = 40e6;
const STOP_NS_FIRST: f64 = 1.5e6;
/// Most other bursts between two that are to be timed, as a power of two.
const WAITS_MAX: u32 = 4;
/// Number of timed bursts over which costs are averaged.
const COSTS_AVERAGED: f64 = 4.0;

/// Decides which bursts are timed.
pub struct Timing {
    /// Number of bursts that were to be timed, as far as it matters.
    first: usize,
    /// Number of other bursts before the next one that may be timed.
    wait: u32,
    /// Number of bursts in succession that could not be timed.
    failures: u32,
    /// Average costs of a burst in ns while its thread runs, and while it stands still for a few steps only.
    cost_ns: f64,
    stop_ns: f64,
    /// CPU time of all bursts while their threads ran, in ns.
    beside_ns: f64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            first: 0,
            wait: 0,
            failures: 1,
            cost_ns: COST_NS_FIRST,
            stop_ns: STOP_NS_FIRST,
            beside_ns: 0.0,
        }
    }
}

impl Timing {
    /// Returns whether the next burst is to be timed. `cpu_ns` is the target's CPU time so far.
    pub fn is_due(&self, cpu_ns: f64) -> bool {
        self.wait == 0 && self.beside_ns + self.cost_ns <= SHARE * cpu_ns
    }

    /// Returns whether the thread stands still for a few steps only in the next burst that is timed.
    pub fn is_short(&self) -> bool {
        self.first < FIRST_STEPS.len() || self.failures == 0
    }

    /// Returns for how many steps it stands still. `others` is their number in a burst that is not to be timed.
    pub fn steps(&self, others: usize) -> usize {
        match FIRST_STEPS.get(self.first) {
            _ if self.failures == 0 => SHORT_STEPS,
            Some(steps) => *steps,
            None => others,
        }
    }

    /// Returns the average time in ns for which it stands still if it is for a few steps only.
    pub fn stop_ns(&self) -> f64 {
        self.stop_ns
    }

    /// Notes a burst that was not to be timed.
    pub fn note_other(&mut self) {
        self.wait = self.wait.saturating_sub(1);
    }

    /// Notes for how long a thread stood still for a few steps.
    pub fn note_stop(&mut self, stop_ns: u64) {
        self.stop_ns += (stop_ns as f64 - self.stop_ns) / COSTS_AVERAGED;
    }

    /// Notes what came of a burst that was to be timed. `beside_ns` is the CPU time that it took while the thread ran.
    pub fn note(&mut self, beside_ns: u64, is_timed: bool) {
        self.beside_ns += beside_ns as f64;
        self.cost_ns += (beside_ns as f64 - self.cost_ns) / COSTS_AVERAGED;
        self.first += 1;
        if is_timed {
            self.failures = 0;
        } else if self.first > FIRST_STEPS.len() {
            self.failures = (self.failures + 1).min(FAILURES_FREE + WAITS_MAX);
        }
        self.wait = (1 << self.failures.saturating_sub(FAILURES_FREE)) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_timed_as_often_as_that_is_earned_and_works() {
        let mut timing = Timing::default();
        for steps in FIRST_STEPS {
            assert!(timing.is_due(1e12) && !timing.is_due(COST_NS_FIRST));
            assert!(timing.is_short() && timing.steps(100_000) == steps);
            timing.note(40_000_000, false);
        }
        assert!(!timing.is_short() && timing.steps(100_000) == 100_000);
        timing.note(20_000_000, true);
        assert!(timing.is_short() && timing.steps(100_000) == SHORT_STEPS);
        // 180 ms and 35 ms more are a tenth of 2150 ms.
        assert!(!timing.is_due(2.14e9) && timing.is_due(2.16e9));
        (0..FAILURES_FREE).for_each(|_| {
            assert!(timing.is_due(1e12));
            timing.note(0, false);
        });
        for waits in [1, 3, 7, 15, 15] {
            timing.note(0, false);
            (0..waits).for_each(|_| {
                assert!(!timing.is_due(1e12));
                timing.note_other();
            });
            assert!(timing.is_due(1e12));
        }
        timing.note(0, true);
        assert!(timing.is_due(1e12));
    }

    #[test]
    fn the_cost_of_a_stop_follows_what_stops_cost() {
        let mut timing = Timing::default();
        (0..20).for_each(|_| timing.note_stop(600_000));
        assert!((timing.stop_ns() / 600_000.0 - 1.0).abs() < 0.02, "{}", timing.stop_ns());
    }
}
