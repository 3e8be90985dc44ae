//! The purposes of open perf events, and the rings that their records are written to.

use dwell_profile::EventIndex;

/// The purpose of an open event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Its samples are counted.
    Sampled(EventIndex),
    /// It never occurs: it carries the records of mappings, forks and exits.
    SideBand,
    /// Its samples carry branches, and are not counted.
    BranchStacks,
    /// Its samples carry call stacks, and are counted as those of the event with this index.
    CallStacks(EventIndex),
    /// It reports each context switch, for the event with this index: the time that threads are off the CPU.
    Waits(EventIndex),
}

impl Role {
    /// Returns the event that is sampled with a period.
    pub(super) fn sampled(self) -> Option<EventIndex> {
        match self {
            Role::Sampled(index) | Role::CallStacks(index) => Some(index),
            Role::SideBand | Role::BranchStacks | Role::Waits(_) => None,
        }
    }

    /// Returns the event whose counts come from its records.
    pub(super) fn counted(self) -> Option<EventIndex> {
        match self {
            Role::Waits(index) => Some(index),
            other => other.sampled(),
        }
    }

    /// Returns the ring that its records are written to.
    pub(super) fn ring(self) -> RingKind {
        match self {
            Role::CallStacks(_) => RingKind::Stacks,
            Role::Waits(_) => RingKind::Waits,
            Role::Sampled(_) | Role::SideBand | Role::BranchStacks => RingKind::Records,
        }
    }
}

/// One of the rings of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingKind {
    /// Small records.
    Records,
    /// Samples with call stacks.
    Stacks,
    /// Context switches.
    Waits,
}

/// The size of stacks and of the rings that carry them, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackSizes {
    /// Bytes that are copied of a stack.
    pub(super) stack: u32,
    /// Bytes of a ring.
    pub(super) ring: usize,
}
