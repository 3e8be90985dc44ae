//! Samples in user mode that are kept for the methods that measure executions: threads to follow, places to watch,
//! registers that point to counters in memory.
//!
//! Enters: samples in order of time. Leaves: the same, each time they are taken. Never here: what the methods do with them.

use dwell_profile::{Pid, Tid, VirtualAddress};

use crate::evidence::counts::Seen;

/// Samples since they were last taken.
#[derive(Default)]
pub struct SampleFeed {
    latest: Option<(Pid, Tid)>,
    /// Process and pc of each sample, if they are kept.
    places: Option<Vec<(Pid, VirtualAddress)>>,
    /// Samples for odometers, if they are kept.
    pub(super) seen: Option<Vec<Seen>>,
}

impl SampleFeed {
    /// Adds a sample in user mode.
    pub(super) fn add(&mut self, pid: Pid, tid: Tid, pc: VirtualAddress) {
        self.latest = Some((pid, tid));
        if let Some(places) = &mut self.places {
            places.push((pid, pc));
        }
    }

    /// Starts to keep places for [`SampleFeed::take_places`].
    pub fn keep_places(&mut self) {
        self.places = Some(Vec::new());
    }

    /// Starts to keep samples for [`SampleFeed::take_seen`].
    pub fn keep_seen(&mut self) {
        self.seen = Some(Vec::new());
    }

    /// Returns process and thread of the latest sample since the last call.
    pub fn take_latest(&mut self) -> Option<(Pid, Tid)> {
        self.latest.take()
    }

    /// Returns process and pc of the samples since the last call, if they are kept.
    pub fn take_places(&mut self) -> Vec<(Pid, VirtualAddress)> {
        self.places.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the samples for odometers since the last call, if they are kept.
    pub fn take_seen(&mut self) -> Vec<Seen> {
        self.seen.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
