//! What a sample counts, and in which unit its period is given.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// The name of an event, as perf spells it: `cycles`, `cpu-clock`, `instructions`, `cache-misses`, …
///
/// Seven events are derived from the registers of a sample rather than sampled:
/// [`Event::BRANCH_TAKEN`] and [`Event::BRANCH_NOT_TAKEN`], whose offset is the conditional branch's own,
/// [`Event::AHEAD_TAKEN`] and [`Event::AHEAD_NOT_TAKEN`], whose offset is the sample's, [`Event::KERNEL_TIME`], whose
/// offset is that of the user's instruction that entered the kernel, and [`Event::DATA`] and [`Event::DATA_PAGE`], whose image and
/// offset are those of the data that the sampled instruction refers to.
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

    /// A sample of time in the kernel once more, at the user's instruction that entered it: by a system call or a fault, or
    /// that was interrupted. It has the period of that sample. Rings and BPF count it.
    pub const KERNEL_TIME: Event = Event(Cow::Borrowed("kernel-time"));

    /// A sample of time in user mode whose instruction refers to this data: where the image is a file, the offset is the distance
    /// from its first byte as it is mapped (an address less that of the first segment), elsewhere 0, and the image says what
    /// the data is (`data:heap`) or why that is not known (`data:none:no memory operand`).
    pub const DATA: Event = Event(Cow::Borrowed("data"));
    /// The same of one of the 4,096 bytes from there on: where too many places are referred to to keep them apart.
    pub const DATA_PAGE: Event = Event(Cow::Borrowed("data-page"));

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
        ["cycles", "cpu-clock"].contains(&self.base_name())
    }

    /// The name of what is counted, without what says how and where: perf's modifiers (`cycles:pp`), the unit that counts
    /// (`cpu_core/cycles/`), the number of a second event of the same name (`cycles#2`). Of two names that perf has for one
    /// thing it is the one that Dwell records by: `cpu-clock` for `task-clock`.
    ///
    /// An import names each event as perf does, so that events that differ in their modifiers only are counted apart; an
    /// analysis looks for `instructions`, whatever modifiers they were counted with.
    pub fn base_name(&self) -> &str {
        let name = match self.name().rsplit_once('#') {
            Some((name, number)) if number.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => self.name(),
        };
        let plain = without_modifiers(name);
        let mut parts = plain.split('/');
        let counted = match (parts.next(), parts.next(), parts.next()) {
            (Some(unit), Some(counted), Some(_)) if unit.starts_with("cpu") => without_modifiers(counted),
            _ => plain,
        };
        match counted {
            "cpu-cycles" => "cycles",
            "task-clock" => "cpu-clock",
            "branch-instructions" => "branches",
            "faults" => "page-faults",
            _ => counted,
        }
    }

    /// Whether the collector derived it from another event's samples (it has no period of its own).
    pub fn is_derived(&self) -> bool {
        let directions =
            [Self::BRANCH_TAKEN, Self::BRANCH_NOT_TAKEN, Self::AHEAD_TAKEN, Self::AHEAD_NOT_TAKEN];
        *self == Self::KERNEL_TIME || self.is_of_data() || directions.contains(self)
    }

    /// Whether its offsets are of data, not of code: [`Event::DATA`] and [`Event::DATA_PAGE`].
    pub fn is_of_data(&self) -> bool {
        [Self::DATA, Self::DATA_PAGE].contains(self)
    }
}

/// A name of perf's without `:u` and the like.
fn without_modifiers(name: &str) -> &str {
    const MODIFIERS: &str = "ukhGHpPSDeIWbR";
    match name.rsplit_once(':') {
        Some((plain, modifiers)) if modifiers.chars().all(|c| MODIFIERS.contains(c)) => plain,
        _ => name,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_known_whatever_the_modifiers_are() {
        let bases = [
            ("cycles", "cycles"),
            ("cycles:P", "cycles"),
            ("cycles:ppu#2", "cycles"),
            ("cpu_core/cycles/", "cycles"),
            ("cpu_atom/cycles/u", "cycles"),
            ("cpu_core/cycles:Pu/", "cycles"),
            ("cpu-cycles:k", "cycles"),
            ("task-clock:u", "cpu-clock"),
            ("cpu-clock#3", "cpu-clock"),
            ("instructions:u", "instructions"),
            ("sched:sched_switch", "sched:sched_switch"),
            ("intel_pt//", "intel_pt//"),
            ("cs_etm/autofdo/u", "cs_etm/autofdo/u"),
            ("", ""),
        ];
        for (name, base) in bases {
            assert_eq!(Event::named(name).base_name(), base, "{name}");
        }
        assert!(Event::named("cycles:k").is_time() && !Event::named("instructions:u").is_time());
    }
}
