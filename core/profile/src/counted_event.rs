//! The event under which a sample is counted: a sampled event, or an event that is derived from its samples.
//!
//! Enters: the events that a collection samples. Leaves: an event for each kind of count. Never here: how a count is
//! derived.

use crate::{Event, EventIndex};

/// The event that a count belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedEvent {
    /// An event that is sampled.
    Sampled(EventIndex),
    /// An event that the collector derives from the samples of a sampled event.
    Derived(DerivedEvent),
}

/// The events that are derived from samples; [`DerivedEvent::event`] returns the event, whose documentation says what
/// it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DerivedEvent {
    /// References to data, [`Event::DATA`].
    Data,
    /// References to data by page, [`Event::DATA_PAGE`].
    DataPage,
    /// Time in the kernel, [`Event::KERNEL_TIME`].
    KernelTime,
    /// Time of threads that lost their CPU to others, [`Event::PREEMPTED`].
    Preempted,
    /// Conditional branches about to be taken, [`Event::BRANCH_TAKEN`].
    BranchTaken,
    /// Conditional branches about to fall through, [`Event::BRANCH_NOT_TAKEN`].
    BranchNotTaken,
    /// Samples before a branch about to be taken, [`Event::AHEAD_TAKEN`].
    AheadTaken,
    /// Samples before a branch about to fall through, [`Event::AHEAD_NOT_TAKEN`].
    AheadNotTaken,
}

impl CountedEvent {
    /// Time in the kernel, counted a second time at the user instruction that entered it.
    pub const KERNEL_TIME: CountedEvent = CountedEvent::Derived(DerivedEvent::KernelTime);

    /// Returns the event's name; `sampled` are the events that are sampled, in their order.
    ///
    /// # Panics
    ///
    /// If a sampled event's index is beyond the list.
    pub fn event(self, sampled: &[Event]) -> Event {
        match self {
            CountedEvent::Sampled(index) => sampled[index.index()].clone(),
            CountedEvent::Derived(derived) => derived.event(),
        }
    }

    /// Returns a small number for hashing, which usually differs between events.
    pub fn hint(self) -> u32 {
        match self {
            CountedEvent::Sampled(index) => u32::from(index.0),
            CountedEvent::Derived(derived) => u32::MAX - derived as u32,
        }
    }
}

impl From<EventIndex> for CountedEvent {
    fn from(index: EventIndex) -> Self {
        CountedEvent::Sampled(index)
    }
}

impl From<DerivedEvent> for CountedEvent {
    fn from(derived: DerivedEvent) -> Self {
        CountedEvent::Derived(derived)
    }
}

impl DerivedEvent {
    /// Returns the event that this variant stands for.
    pub fn event(self) -> Event {
        match self {
            DerivedEvent::Data => Event::DATA,
            DerivedEvent::DataPage => Event::DATA_PAGE,
            DerivedEvent::KernelTime => Event::KERNEL_TIME,
            DerivedEvent::Preempted => Event::PREEMPTED,
            DerivedEvent::BranchTaken => Event::BRANCH_TAKEN,
            DerivedEvent::BranchNotTaken => Event::BRANCH_NOT_TAKEN,
            DerivedEvent::AheadTaken => Event::AHEAD_TAKEN,
            DerivedEvent::AheadNotTaken => Event::AHEAD_NOT_TAKEN,
        }
    }
}
