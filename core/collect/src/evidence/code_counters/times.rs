//! When blocks were counted, and how much the program was sampled then.
//!
//! Enters: the times at which counting begins and ends, and samples, which come later. Leaves: numbers of samples. While code is changed
//! nothing is counted, and the program goes on in part only: the rest of its time is spent in the kernel, on traps. So samples in user
//! mode tell how much of its work was not counted.

use std::collections::VecDeque;

/// Numbers of samples in times that were counted and in times that were not.
pub struct Times {
    since_ns: u64,
    /// Ends of times whose samples may still come, and whether they were counted.
    ends: VecDeque<(u64, bool)>,
    /// Samples in user mode, by whether they were counted.
    user: [u64; 2],
    samples: u64,
    /// Samples after the last end.
    later: VecDeque<(u64, bool)>,
}

impl Times {
    /// Begins to count.
    pub fn new(since_ns: u64) -> Self {
        Times { since_ns, ends: VecDeque::new(), user: [0; 2], samples: 0, later: VecDeque::new() }
    }

    /// Counting begins again: what is between this and the last end was not counted.
    pub fn begin(&mut self, time_ns: u64) {
        self.close(time_ns, false);
    }

    /// Counting ends.
    pub fn end(&mut self, time_ns: u64) {
        self.close(time_ns, true);
    }

    fn close(&mut self, time_ns: u64, is_counted: bool) {
        self.ends.push_back((time_ns, is_counted));
        for (time_ns, is_user) in std::mem::take(&mut self.later) {
            self.sample(time_ns, is_user);
        }
    }

    /// Adds a sample. Samples come in order of time.
    pub fn sample(&mut self, time_ns: u64, is_user: bool) {
        if time_ns <= self.since_ns {
            return;
        }
        while self.ends.front().is_some_and(|(end_ns, _)| *end_ns < time_ns) {
            self.ends.pop_front();
        }
        match self.ends.front() {
            Some((_, is_counted)) => {
                self.samples += 1;
                self.user[usize::from(*is_counted)] += u64::from(is_user);
            }
            None => self.later.push_back((time_ns, is_user)),
        }
    }

    /// Returns the number of samples until the last end.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the program's work as a multiple of that which was counted.
    pub fn all_to_counted(&self) -> f64 {
        let [others, counted] = self.user.map(|samples| samples as f64);
        (counted + others) / counted.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_assigned_to_times_whenever_they_come() {
        let mut times = Times::new(10);
        times.sample(9, true);
        times.sample(11, true);
        assert_eq!(times.samples(), 0);
        times.end(20);
        times.begin(25);
        times.sample(20, true);
        times.sample(21, false);
        times.sample(24, true);
        times.sample(30, true);
        times.end(40);
        assert_eq!((times.samples(), times.all_to_counted()), (5, 4.0 / 3.0));
    }
}
