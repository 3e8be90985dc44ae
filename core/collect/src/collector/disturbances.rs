//! Samples to drop because counting disturbed their thread: they would show the cost of counting.
//!
//! Enters: which thread or process was disturbed until when. Leaves: whether to drop a sample, and how many were dropped.

use dwell_profile::{Pid, Tid};

use crate::source::records::Sample;

/// The latest disturbance of each kind.
#[derive(Default)]
pub struct Disturbances {
    /// The thread that was single-stepped, and the end of that time.
    pub(super) stepped: Option<(Tid, u64)>,
    /// The thread whose executions breakpoints counted, and the end of that time.
    pub(super) counted: Option<(Tid, u64)>,
    /// The process that a watchpoint disturbed, and the end of that time.
    pub(super) watched: Option<(Pid, u64)>,
    dropped: DroppedSamples,
}

/// Numbers of dropped samples in the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedSamples {
    /// Samples of a thread while it was single-stepped.
    pub stepped: u64,
    /// Samples of a thread while breakpoints counted its executions.
    pub counted: u64,
    /// Samples of a process while a watchpoint was set in it.
    pub watched: u64,
    /// Samples in code that counts.
    pub in_counters: u64,
}

impl Disturbances {
    /// Returns whether to drop a sample. A dropped sample is counted as such.
    pub(super) fn drop_sample(&mut self, sample: &Sample, time_ns: u64) -> bool {
        let dropped = &mut self.dropped;
        let count = if covers(self.stepped, sample.tid, time_ns) {
            &mut dropped.stepped
        } else if covers(self.counted, sample.tid, time_ns) {
            &mut dropped.counted
        } else if covers(self.watched, sample.pid, time_ns) {
            &mut dropped.watched
        } else {
            return false;
        };
        *count += 1;
        true
    }

    /// Counts a sample as dropped that was in code which counts.
    pub(super) fn drop_in_counter(&mut self) {
        self.dropped.in_counters += 1;
    }

    /// Begins a new epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.dropped = DroppedSamples::default();
    }

    /// Returns the numbers of samples that were dropped in the epoch.
    pub fn dropped(&self) -> DroppedSamples {
        self.dropped
    }
}

fn covers<I: PartialEq>(disturbed: Option<(I, u64)>, id: I, time_ns: u64) -> bool {
    disturbed.is_some_and(|(disturbed, until_ns)| disturbed == id && time_ns <= until_ns)
}
