//! The interval of time in which samples were taken.

/// An interval of time, open at its start: samples were taken after `since_ns` and no later than `until_ns`
/// (CLOCK_MONOTONIC, ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// All samples were taken after this time.
    pub since_ns: u64,
    /// All samples were taken at or before this time.
    pub until_ns: u64,
}
