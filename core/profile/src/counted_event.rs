//! What samples are counted as: an event that is sampled, or one that is derived from its samples.
//!
//! Enters: the events that a collection samples. Leaves: an event for each kind of count. Never here: how a count is derived.

use crate::{Event, EventIndex};

/// The event that a count belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedEvent {
    /// A sampled event.
    Sampled(EventIndex),
    /// An event that the collector derives from samples of a sampled one.
    Derived(DerivedEvent),
}

/// The events that are derived from samples; [`DerivedEvent::event`] has what each of them means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DerivedEvent {
    /// [`Event::DATA`].
    Data,
    /// [`Event::DATA_PAGE`].
    DataPage,
    /// [`Event::KERNEL_TIME`].
    KernelTime,
    /// [`Event::BRANCH_TAKEN`].
    BranchTaken,
    /// [`Event::BRANCH_NOT_TAKEN`].
    BranchNotTaken,
    /// [`Event::AHEAD_TAKEN`].
    AheadTaken,
    /// [`Event::AHEAD_NOT_TAKEN`].
    AheadNotTaken,
}

impl CountedEvent {
    /// Time in the kernel, counted once more at the user's instruction that entered it.
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

    /// Returns a small number that differs between events as a rule, for hashing.
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
    /// Returns the event by its name.
    pub fn event(self) -> Event {
        match self {
            DerivedEvent::Data => Event::DATA,
            DerivedEvent::DataPage => Event::DATA_PAGE,
            DerivedEvent::KernelTime => Event::KERNEL_TIME,
            DerivedEvent::BranchTaken => Event::BRANCH_TAKEN,
            DerivedEvent::BranchNotTaken => Event::BRANCH_NOT_TAKEN,
            DerivedEvent::AheadTaken => Event::AHEAD_TAKEN,
            DerivedEvent::AheadNotTaken => Event::AHEAD_NOT_TAKEN,
        }
    }
}
