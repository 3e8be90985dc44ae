//! A stretch of time in which samples were taken.

/// When samples were taken: after `since_ns`, up to `until_ns` (CLOCK_MONOTONIC in ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The time after which all of them were taken.
    pub since_ns: u64,
    /// The time by which all of them were taken.
    pub until_ns: u64,
}
