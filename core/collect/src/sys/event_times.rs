//! How long events counted. If there are fewer counters than events, the events take turns.
//!
//! Enters: times as the kernel reports them. Leaves: shares of time. Never here: system calls.

use std::ops::AddAssign;

/// How long an event was enabled and how long it counted, over all CPUs and tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTimes {
    /// How long it was enabled and, where tasks are sampled, a task ran, in ns.
    pub enabled_ns: u64,
    /// How much of that time it had a counter, in ns.
    pub running_ns: u64,
}

impl EventTimes {
    /// Returns the share of the time since `then` that the event counted, in steps of 0.0001; `None` where no time has
    /// passed.
    pub fn running_share_since(&self, then: &EventTimes) -> Option<f64> {
        let enabled_ns = self.enabled_ns.saturating_sub(then.enabled_ns);
        let running_ns = self.running_ns.saturating_sub(then.running_ns);
        // The times of several CPUs are read one after the other, so the ratio may exceed 1.
        let share = (running_ns as f64 / enabled_ns as f64).min(1.0);
        (enabled_ns > 0).then(|| (share * 1e4).round() / 1e4)
    }
}

impl AddAssign for EventTimes {
    fn add_assign(&mut self, more: EventTimes) {
        self.enabled_ns += more.enabled_ns;
        self.running_ns += more.running_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(enabled_ns: u64, running_ns: u64) -> EventTimes {
        EventTimes { enabled_ns, running_ns }
    }

    #[test]
    fn a_share_refers_to_the_time_since_then() {
        let share = |now: EventTimes, then: EventTimes| now.running_share_since(&then);
        let second = 1_000_000_000;
        assert_eq!(share(times(4 * second, second), times(0, 0)), Some(0.25));
        assert_eq!(share(times(4 * second, 3 * second), times(2 * second, second)), Some(1.0));
        assert_eq!(share(times(3 * second, second), times(0, 0)), Some(0.3333));
        assert_eq!(share(times(second, 0), times(0, 0)), Some(0.0), "it never had a turn");
        assert_eq!(share(times(second, second + 9), times(0, 0)), Some(1.0), "read a little later");
        assert_eq!(share(times(second, second), times(second, second)), None, "it was off");
        assert_eq!(share(times(0, 0), times(second, second)), None, "opened anew");
    }
}
