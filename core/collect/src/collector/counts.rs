//! Counts of samples, and the totals of the events in an epoch.
//!
//! Enters: resolved samples, losses. Leaves: counts by slot, totals. Samples in = samples counted + losses by cause +
//! samples of applications that are not kept. Never here: what an address means.

use std::collections::BTreeMap;

use dwell_attribution::{ExecutionId, ImageIndex};
use dwell_profile::{AccumulatedSamples, CountedEvent, Event, EventIndex, SampleAccumulator};

use super::{dimensions::ValuesIndex, unknown::UnknownCauses};
use crate::loss::LossCause;

/// Totals of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples that were counted.
    pub samples: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Number of times that the kernel throttled the event.
    pub throttled: u64,
    /// Counted samples that are under `unknown`.
    pub unknown: u64,
}

/// The key that samples are aggregated by; the offset in the image is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub(super) image: ImageIndex,
    pub(super) execution: ExecutionId,
    pub(super) dimensions: ValuesIndex,
    pub(super) event: CountedEvent,
}

/// Counts since they were last taken, and totals of the epoch.
pub struct SampleCounts {
    events: Vec<Event>,
    counts: SampleAccumulator<Slot>,
    tallies: Vec<Tally>,
    lost: BTreeMap<LossCause, u64>,
    /// Samples of applications that are not kept.
    other_apps: u64,
    pub(super) unknown: UnknownCauses,
}

impl SampleCounts {
    /// Returns empty counts for these events.
    pub(super) fn new(events: Vec<Event>) -> Self {
        SampleCounts {
            tallies: vec![Tally::default(); events.len()],
            events,
            counts: SampleAccumulator::default(),
            lost: BTreeMap::new(),
            other_apps: 0,
            unknown: UnknownCauses::default(),
        }
    }

    /// Begins a new epoch: totals start from zero.
    pub(super) fn begin_epoch(&mut self) {
        self.tallies.fill(Tally::default());
        self.unknown = UnknownCauses::default();
        self.lost.clear();
        self.other_apps = 0;
    }

    /// Adds to the count of a slot at an offset. The totals of the events do not change.
    pub(super) fn add(&mut self, slot: Slot, offset: u64, count: u64) {
        let hint =
            slot.image.0.wrapping_mul(3).wrapping_add(slot.execution.0).wrapping_add(slot.event.hint());
        self.counts.add(slot, hint, offset, count);
    }

    /// Changes the totals of an event.
    pub(super) fn tally(&mut self, event: EventIndex, change: impl FnOnce(&mut Tally)) {
        if let Some(tally) = self.tallies.get_mut(event.index()) {
            change(tally);
        }
    }

    /// Counts samples of an application that is not kept.
    pub(super) fn leave_out(&mut self, event: CountedEvent, count: u64) {
        if let CountedEvent::Sampled(_) = event {
            self.other_apps += count;
        }
    }

    /// Counts lost records.
    pub(super) fn lose(&mut self, event: Option<EventIndex>, records: u64, cause: LossCause) {
        *self.lost.entry(cause).or_default() += records;
        if let Some(event) = event {
            self.tally(event, |t| t.lost = t.lost.saturating_add(records));
        }
    }

    /// Returns the counts since the last call.
    pub(super) fn take(&mut self) -> AccumulatedSamples<Slot> {
        std::mem::take(&mut self.counts).finish()
    }

    /// Returns whether there are no counts.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns the number of counts; some may be for the same key.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns the events in the order of their indices.
    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns whether an event measures time.
    pub(super) fn is_time(&self, event: EventIndex) -> bool {
        self.events.get(event.index()).is_some_and(Event::is_time)
    }

    /// Returns whether an event is the first one that measures time. If there are several, execution counts refer to it.
    pub(super) fn is_first_time_event(&self, event: EventIndex) -> bool {
        self.events.iter().position(Event::is_time) == Some(event.index())
    }

    /// Returns whether samples of an event show how often code runs. Other events are sampled where they happen, which does
    /// not show how often a branch goes which way.
    pub(super) fn shows_executions(&self, event: EventIndex) -> bool {
        self.events.get(event.index()).is_some_and(|e| e.is_time() || *e == Event::INSTRUCTIONS)
    }

    /// Returns the totals of the events in the order of their indices.
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Returns the samples lost in the epoch, by cause.
    pub fn lost(&self) -> &BTreeMap<LossCause, u64> {
        &self.lost
    }

    /// Returns the samples of the epoch that are left out because their applications are not kept.
    pub fn other_apps(&self) -> u64 {
        self.other_apps
    }

    /// Returns why samples of the epoch are under `unknown`.
    pub fn unknown(&self) -> UnknownCauses {
        self.unknown
    }
}
