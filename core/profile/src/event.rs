//! What a sample counts, and in which unit its period is given.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// The name of an event, as perf spells it: `cycles`, `cpu-clock`, `instructions`, `cache-misses`, …
///
/// Five events are derived from the registers of a sample rather than sampled:
/// [`Event::BRANCH_TAKEN`] and [`Event::BRANCH_NOT_TAKEN`], whose offset is the conditional branch's own,
/// [`Event::AHEAD_TAKEN`] and [`Event::AHEAD_NOT_TAKEN`], whose offset is the sample's, and [`Event::KERNEL_TIME`], whose
/// offset is that of the user's instruction that entered the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Event(Cow<'static, str>);

impl Event {
    /// Processor cycles, from a hardware counter.
    pub const CYCLES: Event = Event(Cow::Borrowed("cycles"));
    /// Time on a CPU in nanoseconds, from a timer: what there is without a PMU.
    pub const CPU_CLOCK: Event = Event(Cow::Borrowed("cpu-clock"));
    /// Retired instructions, from a hardware counter.
    pub const INSTRUCTIONS: Event = Event(Cow::Borrowed("instructions"));
    /// A conditional branch that was about to be taken when the sample was (DCPI §7, "interpretation").
    pub const BRANCH_TAKEN: Event = Event(Cow::Borrowed("branch-taken"));
    /// A conditional branch that was about to fall through when the sample was.
    pub const BRANCH_NOT_TAKEN: Event = Event(Cow::Borrowed("branch-not-taken"));

    /// A sample before a conditional branch, the first that its code reaches, which was about to be taken. A sample on
    /// the branch or on the comparison right before it is no such event, but one of the two above.
    pub const AHEAD_TAKEN: Event = Event(Cow::Borrowed("branch-ahead-taken"));
    /// The same where it was about to fall through.
    pub const AHEAD_NOT_TAKEN: Event = Event(Cow::Borrowed("branch-ahead-not-taken"));

    /// Read, but not yet written by any collector: a sample of time in the kernel, at the user's instruction that entered it: by a system call or a fault, or that was
    /// interrupted. It has the period of that sample.
    pub const KERNEL_TIME: Event = Event(Cow::Borrowed("kernel-time"));

    /// The event of that name.
    pub fn named(name: &str) -> Self {
        Event(Cow::Owned(name.to_owned()))
    }

    /// The name, as stored and shown.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Whether its samples measure time at the head of the machine, so that CPI can be had from them.
    pub fn is_time(&self) -> bool {
        *self == Self::CYCLES || *self == Self::CPU_CLOCK
    }

    /// Whether the collector derived it from another event's samples (it has no period of its own).
    pub fn is_derived(&self) -> bool {
        let directions =
            [Self::BRANCH_TAKEN, Self::BRANCH_NOT_TAKEN, Self::AHEAD_TAKEN, Self::AHEAD_NOT_TAKEN];
        *self == Self::KERNEL_TIME || directions.contains(self)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The unit of an event's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Processor cycles.
    #[serde(rename = "cycles")]
    Cycles,
    /// Nanoseconds on a CPU.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Occurrences of the event.
    #[serde(rename = "events")]
    Events,
}

impl Unit {
    /// `cycles`, `ns` or `events`, as the contracts spell it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Cycles => "cycles",
            Unit::Nanoseconds => "ns",
            Unit::Events => "events",
        }
    }
}
