//! When a burst is timed: its thread goes on at once, and is emulated meanwhile.
//!
//! Enters: what came of bursts. Leaves: whether the next one is to be timed. Never here: how ([`crate::sys::tracer`]).
//!
//! A timed burst has a hundred times as many steps as one during which the thread stands still, and an absolute scale. But it may come to
//! nothing: because of what the kernel or other threads do to its memory, or because the thread makes too many system calls. The first
//! bursts of a program also compile its code and find out which memory it uses, and are likely to fail. Bursts that
//! cannot be timed are tried more and more seldom, and others are made instead.

/// Part of the CPU time of a command or process that emulation takes while its threads run. It has the lowest priority.
const SHARE: f64 = 0.2;
/// Number of first bursts whose failure says nothing of later ones.
const FIRST: u32 = 4;
/// Number of bursts in succession that cannot be timed before there are others again.
const FAILURES_FREE: u32 = 4;
/// Assumed cost of the first timed burst in ns, while the thread runs, and while it stands still.
const COST_NS_FIRST: f64 = 40e6;
const STOP_NS_FIRST: f64 = 1.5e6;
/// Most other bursts between two that are to be timed, as a power of two.
const WAITS_MAX: u32 = 4;
/// Number of timed bursts over which costs are averaged.
const COSTS_AVERAGED: f64 = 4.0;

/// Decides which bursts are timed.
pub struct Timing {
    /// Part of the target's CPU time that emulation may take while threads run.
    share: f64,
    /// Number of bursts that were to be timed.
    bursts: u32,
    /// Number of other bursts before the next one that may be timed.
    wait: u32,
    /// Number of bursts in succession that could not be timed.
    failures: u32,
    /// Average costs of a burst in ns while its thread runs, and while it stands still.
    cost_ns: f64,
    stop_ns: f64,
    /// CPU time of all bursts while their threads ran, in ns.
    beside_ns: f64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing::within(SHARE)
    }
}

impl Timing {
    /// Begins, with this part of the target's CPU time for emulation while threads run.
    pub fn within(share: f64) -> Timing {
        Timing {
            share,
            bursts: 0,
            wait: 0,
            failures: 0,
            cost_ns: COST_NS_FIRST,
            stop_ns: STOP_NS_FIRST,
            beside_ns: 0.0,
        }
    }

    /// Begins anew to count the target's CPU time, and what emulation took of it.
    pub fn begin_epoch(&mut self) {
        self.beside_ns = 0.0;
    }

    /// Returns whether the next burst is to be timed. `cpu_ns` is the target's CPU time so far.
    pub fn is_due(&self, cpu_ns: f64) -> bool {
        self.wait == 0 && self.beside_ns + self.cost_ns <= self.share * cpu_ns
    }

    /// Returns the average time in ns for which a thread stands still before it is timed.
    pub fn stop_ns(&self) -> f64 {
        self.stop_ns
    }

    /// Notes a burst that was not to be timed.
    pub fn note_other(&mut self) {
        self.wait = self.wait.saturating_sub(1);
    }

    /// Notes for how long a thread stood still before it was timed.
    pub fn note_stop(&mut self, stop_ns: u64) {
        self.stop_ns += (stop_ns as f64 - self.stop_ns) / COSTS_AVERAGED;
    }

    /// Notes what came of a burst that was to be timed. `beside_ns` is the CPU time that it took while the thread ran.
    pub fn note(&mut self, beside_ns: u64, is_timed: bool) {
        self.beside_ns += beside_ns as f64;
        self.cost_ns += (beside_ns as f64 - self.cost_ns) / COSTS_AVERAGED;
        self.bursts += 1;
        if is_timed {
            self.failures = 0;
        } else if self.bursts > FIRST {
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
        for _ in 0..FIRST {
            assert!(timing.is_due(1e12) && !timing.is_due(COST_NS_FIRST));
            timing.note(40_000_000, false);
        }
        timing.note(20_000_000, true);
        // 180 ms and 35 ms more are a fifth of 1075 ms.
        assert!(!timing.is_due(1.07e9) && timing.is_due(1.08e9));
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
