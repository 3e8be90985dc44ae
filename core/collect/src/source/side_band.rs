//! The side band of a source that counts samples in the kernel: records of mappings, executions, forks and exits.
//!
//! Enters: sampled events to open beside it, whose samples do not go into rings. Leaves: timed records. Never here: samples.

use std::{collections::BTreeMap, os::fd::BorrowedFd, time::Duration};

use dwell_profile::{CpuId, EventIndex};

use super::{
    Features, Source,
    perf::{Attach, PerfSource},
};
use crate::{
    CollectError,
    source::{events::EventConfig, merge::Merger, owned_record::OwnedRecord},
    sys::event_times::EventTimes,
};

/// An event that counts nothing and reports the side band of the whole machine, on each CPU. The sampled events of the source
/// write into the same rings, so that their losses and throttling are reported in order of time.
pub struct SideBand(PerfSource);

impl SideBand {
    /// Opens the side band and the planned events on these CPUs, disabled. Each planned event is passed to `attach`, since its
    /// samples do not go into the rings.
    pub fn open(configs: &[EventConfig], cpus: &[CpuId], attach: Attach) -> Result<Self, CollectError> {
        PerfSource::open_attached(configs, cpus, attach).map(SideBand)
    }

    /// Returns the abilities of the events, and the bytes of the rings.
    pub fn features(&self) -> Features {
        self.0.features()
    }

    /// Starts the side band without sampling.
    pub fn enable_side_band(&mut self) -> Result<(), CollectError> {
        self.0.enable_side_band()
    }

    /// Starts all events.
    pub fn enable(&mut self) -> Result<(), CollectError> {
        self.0.enable()
    }

    /// Stops all events.
    pub fn disable(&mut self) -> Result<(), CollectError> {
        self.0.disable()
    }

    /// Waits until a ring is half full, a descriptor in `other` is readable, or `timeout` has passed.
    pub fn wait(&mut self, timeout: Duration, other: &[BorrowedFd<'_>]) {
        self.0.wait_with(timeout, other);
    }

    /// Moves the records to the merger. Returns a time before which none of them is missing.
    pub fn drain(&mut self, merger: &mut Merger<OwnedRecord>) -> u64 {
        self.0.drain(merger)
    }

    /// Draws new periods, and looks for CPUs that came or went.
    pub fn tend(&mut self, warn: &mut dyn FnMut(String)) {
        self.0.tend(warn);
    }

    /// Sets new mean periods, by index of the planned event.
    pub fn set_periods(&mut self, periods: &[u64]) {
        self.0.set_periods(periods);
    }

    /// Adds samples of an event on a CPU that the kernel counted. Periods are redrawn after a number of samples.
    pub fn sampled(&mut self, cpu: CpuId, event: EventIndex, samples: u64) {
        self.0.sampled_elsewhere(cpu, event, samples);
    }

    /// Returns the samples that came through rings, by event and CPU: those with call stacks.
    pub fn by_cpu(&self) -> BTreeMap<(EventIndex, CpuId), u64> {
        self.0.tally().by_cpu
    }

    /// Returns how long each planned event has counted.
    pub fn times(&mut self) -> Vec<EventTimes> {
        self.0.times()
    }

    /// Returns the number of records since the last call that could not be parsed.
    pub fn take_malformed(&mut self) -> u64 {
        self.0.take_malformed()
    }
}
