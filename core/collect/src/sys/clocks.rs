//! Watches the machine's clocks: whether the wall clock was set, and whether the machine was suspended.
//!
//! Enters: three clocks, read together from time to time. Leaves: what happened in between. Never here: reading clocks,
//! except in [`Clocks::now`] and [`real_time_ns`].

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Smallest step of the wall clock in ns that counts; time services correct less by slewing.
const STEP_MIN_NS: i64 = 1_000_000_000;
/// Shortest suspension in ns that counts; less may pass between reading one clock and the next.
const SUSPENSION_MIN_NS: u64 = 1_000_000_000;

/// Three clocks, read at about the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// CLOCK_REALTIME in ns since 1970, which may be set at any time.
    pub wall_ns: i64,
    /// CLOCK_BOOTTIME in ns: steady, and continues while the machine is suspended.
    pub boot_ns: u64,
    /// CLOCK_MONOTONIC in ns: steady, and stops while the machine is suspended. The kernel's records use it.
    pub monotonic_ns: u64,
}

impl Clocks {
    /// Reads this machine's clocks.
    pub fn now() -> Self {
        let ns = |id| {
            let Timespec { tv_sec, tv_nsec } = clock_gettime(id);
            tv_sec * 1_000_000_000 + tv_nsec
        };
        Clocks {
            wall_ns: ns(ClockId::Realtime),
            boot_ns: ns(ClockId::Boottime) as u64,
            monotonic_ns: ns(ClockId::Monotonic) as u64,
        }
    }

    /// Returns the time since `then` during which the machine was not suspended.
    pub fn awake_since(&self, then: &Clocks) -> Duration {
        Duration::from_nanos(self.monotonic_ns.saturating_sub(then.monotonic_ns))
    }
}

/// Changes between two readings of the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jump {
    /// Amount in ns by which the wall clock was set, if it was.
    pub step_ns: Option<i64>,
    /// Time in ns during which the machine was suspended, if it was.
    pub slept_ns: Option<u64>,
}

/// Compares successive readings of the clocks.
#[derive(Clone, Copy, Debug)]
pub struct ClockWatch {
    last: Clocks,
}

impl ClockWatch {
    /// Starts watching at a first reading.
    pub fn new(now: Clocks) -> Self {
        ClockWatch { last: now }
    }

    /// Returns the changes since the last reading.
    pub fn look(&mut self, now: Clocks) -> Jump {
        let last = std::mem::replace(&mut self.last, now);
        let boot_ns = now.boot_ns.saturating_sub(last.boot_ns);
        let monotonic_ns = now.monotonic_ns.saturating_sub(last.monotonic_ns);
        let step_ns = now.wall_ns.saturating_sub(last.wall_ns).saturating_sub(boot_ns as i64);
        let slept_ns = boot_ns.saturating_sub(monotonic_ns);
        Jump {
            step_ns: (step_ns.abs() >= STEP_MIN_NS).then_some(step_ns),
            slept_ns: (slept_ns >= SUSPENSION_MIN_NS).then_some(slept_ns),
        }
    }
}

/// Converts a time of CLOCK_MONOTONIC to CLOCK_REALTIME, by what both clocks read now. Both are in ns.
pub fn real_time_ns(monotonic_ns: u64) -> i64 {
    let Clocks { wall_ns, monotonic_ns: now_ns, .. } = Clocks::now();
    wall_ns.saturating_sub((now_ns as i64).saturating_sub(monotonic_ns as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn after(clocks: Clocks, wall_s: i64, boot_s: u64, monotonic_s: u64) -> Clocks {
        Clocks {
            wall_ns: clocks.wall_ns + wall_s * SECOND,
            boot_ns: clocks.boot_ns + boot_s * SECOND as u64,
            monotonic_ns: clocks.monotonic_ns + monotonic_s * SECOND as u64,
        }
    }

    #[test]
    fn clock_steps_and_suspensions_are_distinguished() {
        let start = Clocks { wall_ns: 1_800_000_000 * SECOND, boot_ns: 50, monotonic_ns: 50 };
        let mut watch = ClockWatch::new(start);
        let quiet = after(start, 10, 10, 10);
        assert_eq!(watch.look(quiet), Jump::default());
        let slewed = Clocks { wall_ns: quiet.wall_ns + SECOND + 900_000_000, ..after(quiet, 0, 1, 1) };
        assert_eq!(watch.look(slewed), Jump::default(), "0.9 s within a second");
        let back = after(slewed, -3590, 10, 10);
        assert_eq!(watch.look(back), Jump { step_ns: Some(-3600 * SECOND), slept_ns: None });
        let slept = after(back, 7200, 7200, 1);
        assert_eq!(watch.look(slept), Jump { step_ns: None, slept_ns: Some(7199 * SECOND as u64) });
        let both = after(slept, 100, 50, 10);
        assert_eq!(watch.look(both), Jump { step_ns: Some(50 * SECOND), slept_ns: Some(40 * SECOND as u64) });
    }

    #[test]
    fn the_clocks_of_this_machine_run() {
        let (first, second) = (Clocks::now(), Clocks::now());
        assert!(second.boot_ns >= first.boot_ns && second.monotonic_ns >= first.monotonic_ns);
        assert_eq!(ClockWatch::new(first).look(second).slept_ns, None);
    }
}
