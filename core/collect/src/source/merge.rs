//! Merges the CPUs' streams of records by time within a bounded window.
//!
//! Enters: each CPU's records, in its own order. Leaves: all records up to a horizon, ordered by time. A record is stamped
//! before it becomes visible in its ring, so a horizon slightly in the past misses nothing. A record that arrives even later
//! (because a virtual CPU was paused between the two) is handed out at once and counted as late.

/// An item with its time.
#[derive(Debug)]
pub struct Timed<T> {
    /// CLOCK_MONOTONIC in ns.
    pub time_ns: u64,
    /// The item.
    pub item: T,
}

/// Orders items by time.
#[derive(Debug)]
pub struct Merger<T> {
    pending: Vec<Timed<T>>,
    horizon_ns: u64,
    /// Number of items that arrived after their turn.
    pub late: u64,
    /// Largest delay of a late item, in ns.
    pub late_ns_max: u64,
}

impl<T> Default for Merger<T> {
    fn default() -> Self {
        Merger { pending: Vec::new(), horizon_ns: 0, late: 0, late_ns_max: 0 }
    }
}

impl<T> Merger<T> {
    /// Adds an item.
    pub fn push(&mut self, time_ns: u64, item: T) {
        // The last horizon is the end of time, and every item must lie before it.
        let time_ns = time_ns.min(u64::MAX - 1);
        self.late += u64::from(time_ns < self.horizon_ns);
        self.late_ns_max = self.late_ns_max.max(self.horizon_ns.saturating_sub(time_ns));
        self.pending.push(Timed { time_ns, item });
    }

    /// Hands out all items before the horizon. A stable sort of a few ascending runs takes nearly linear time.
    pub fn take_until(&mut self, horizon_ns: u64, mut each: impl FnMut(Timed<T>)) {
        self.horizon_ns = self.horizon_ns.max(horizon_ns);
        self.pending.sort_by_key(|t| t.time_ns);
        let ready = self.pending.partition_point(|t| t.time_ns < horizon_ns);
        self.pending.drain(..ready).for_each(&mut each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_order_of_time_and_late_ones_are_counted() {
        let mut merger = Merger::default();
        [(5, 'a'), (9, 'b'), (3, 'c'), (7, 'd'), (9, 'e')].into_iter().for_each(|(t, i)| merger.push(t, i));
        let mut out = String::new();
        merger.take_until(8, |t| out.push(t.item));
        merger.push(6, 'f');
        merger.push(u64::MAX, 'g');
        merger.take_until(u64::MAX, |t| out.push(t.item));
        assert_eq!((out.as_str(), merger.late), ("cadfbeg", 1));
    }
}
