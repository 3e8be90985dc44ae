//! For how long events counted. Where there are fewer counters than events, these take turns.
//!
//! Enters: times as the kernel tells them. Leaves: shares. Never here: asking for them.

use std::ops::AddAssign;

/// For how long an event was to count and did, over all CPUs and tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTimes {
    /// It was switched on, and where tasks are sampled, they ran.
    pub enabled_ns: u64,
    /// Of that, it had a counter.
    pub running_ns: u64,
}

impl EventTimes {
    /// Of the time since `then`, the share that it counted, in steps of 0.0001; none where there was no time.
    pub fn running_share_since(&self, then: &EventTimes) -> Option<f64> {
        let enabled_ns = self.enabled_ns.saturating_sub(then.enabled_ns);
        let running_ns = self.running_ns.saturating_sub(then.running_ns);
        // On several CPUs they are read one after the other.
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
    fn a_share_is_of_the_time_since_then() {
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
