//! The times of a process's samples, to tell how many of them are in a span of time.
//!
//! Enters: times in ascending order. Leaves: numbers of samples. Never here: the samples themselves. The memory is bounded:
//! of a long run only the latest times are kept, and questions about earlier ones are answered as if about the first kept.

use std::ops::Range;

use super::series::Span;

/// Number of times of samples that are kept.
const TIMES_MAX: usize = 1 << 17;

/// The times of samples, ascending.
#[derive(Default)]
pub struct Times {
    kept: Vec<u64>,
    /// Number of samples before those that are kept.
    dropped: u64,
}

impl Times {
    /// Adds a sample, which is later than those before.
    pub fn push(&mut self, time_ns: u64) {
        if self.kept.len() >= TIMES_MAX {
            self.kept.drain(..TIMES_MAX / 2);
            self.dropped += TIMES_MAX as u64 / 2;
        }
        self.kept.push(time_ns);
    }

    fn until(&self, time_ns: u64) -> u64 {
        self.dropped + self.kept.partition_point(|time| *time <= time_ns) as u64
    }

    /// Returns the numbers of the samples in a span, counted from the first sample of all.
    pub fn within(&self, span: &Span) -> Range<u64> {
        self.until(span.begin_ns)..self.until(span.end_ns)
    }

    /// Returns the number of all samples.
    pub fn all(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }
}
