//! Deadlines of periodic work.

use std::time::{Duration, Instant};

/// The next time that some work is due, and how often it recurs.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    next: Instant,
    every: Duration,
}

impl Timer {
    /// Creates a timer that is due after `first`, and then at intervals.
    pub fn new(first: Duration, every: Duration) -> Self {
        Timer { next: Instant::now() + first, every }
    }

    /// Returns whether the work is due.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Sets the next deadline to one interval from now.
    pub fn restart(&mut self) {
        self.restart_in(self.every);
    }

    /// Sets the next deadline to `delay` from now.
    pub fn restart_in(&mut self, delay: Duration) {
        self.next = Instant::now() + delay;
    }

    /// Returns whether the work is due, and restarts the timer if so.
    pub fn take_due(&mut self) -> bool {
        let is_due = self.is_due();
        if is_due {
            self.restart();
        }
        is_due
    }
}
