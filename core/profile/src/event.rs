//! The event that a sample counts, and the unit of its period.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// The name of an event, as perf spells it: `cycles`, `cpu-clock`, `instructions`, `cache-misses`, …
///
/// Eight events are not sampled but derived from samples, and differ in what their offset means:
///
/// - [`Event::BRANCH_TAKEN`] and [`Event::BRANCH_NOT_TAKEN`]: the offset of the conditional branch.
/// - [`Event::AHEAD_TAKEN`] and [`Event::AHEAD_NOT_TAKEN`]: the offset of the sample.
/// - [`Event::KERNEL_TIME`]: the offset of the user instruction that entered the kernel.
/// - [`Event::PREEMPTED`]: the offset of the user instruction that was interrupted or had entered the kernel.
/// - [`Event::DATA`] and [`Event::DATA_PAGE`]: the image and the offset of the data that was waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Event(Cow<'static, str>);

impl Event {
    /// Processor cycles, from a hardware counter.
    pub const CYCLES: Event = Event(Cow::Borrowed("cycles"));
    /// Time on a CPU in nanoseconds, from a timer. It is available on machines without a PMU.
    pub const CPU_CLOCK: Event = Event(Cow::Borrowed("cpu-clock"));
    /// Time in nanoseconds that threads were not on a CPU: they waited, or were ready while other threads ran. A wait is
    /// counted at the user instruction that entered the kernel, once for each period that it lasts.
    pub const OFF_CPU: Event = Event(Cow::Borrowed("off-cpu"));
    /// Retired instructions, from a hardware counter.
    pub const INSTRUCTIONS: Event = Event(Cow::Borrowed("instructions"));
    /// A conditional branch that was about to be taken at the time of the sample (DCPI §7, "interpretation").
    pub const BRANCH_TAKEN: Event = Event(Cow::Borrowed("branch-taken"));
    /// A conditional branch that was about to fall through at the time of the sample.
    pub const BRANCH_NOT_TAKEN: Event = Event(Cow::Borrowed("branch-not-taken"));

    /// A sample before a conditional branch that was about to be taken. The branch is the first one that the sampled
    /// code reaches. A sample on the branch itself, or on the comparison right before it, is not counted here but as
    /// [`Event::BRANCH_TAKEN`] or [`Event::BRANCH_NOT_TAKEN`].
    pub const AHEAD_TAKEN: Event = Event(Cow::Borrowed("branch-ahead-taken"));
    /// A sample before a conditional branch that was about to fall through; otherwise as [`Event::AHEAD_TAKEN`].
    pub const AHEAD_NOT_TAKEN: Event = Event(Cow::Borrowed("branch-ahead-not-taken"));

    /// A sample of time in the kernel, counted a second time at the user instruction that entered the kernel by a
    /// system call or a fault, or that was interrupted. Its period is that of the sample. The backends with rings and
    /// BPF count it.
    pub const KERNEL_TIME: Event = Event(Cow::Borrowed("kernel-time"));

    /// The part of [`Event::OFF_CPU`], counted a second time at the same instruction, in which the kernel had taken the CPU from
    /// the thread, which could have gone on. Its period is that of the time off the CPU.
    pub const PREEMPTED: Event = Event(Cow::Borrowed("preempted"));

    /// A sample of time in user mode, counted at the data that the instruction waited for refers to. If the image is a file, the
    /// offset is the distance from its first byte as it is mapped (the address minus that of the first segment).
    /// Otherwise the offset is 0, and the image says what the data is (`data:heap`) or why that is not known
    /// (`data:none:no memory operand`).
    pub const DATA: Event = Event(Cow::Borrowed("data"));
    /// A reference to one of the 4,096 bytes from the offset on; otherwise as [`Event::DATA`]. It is used if samples
    /// refer to too many places to keep them apart.
    pub const DATA_PAGE: Event = Event(Cow::Borrowed("data-page"));

    /// Returns the event with this name.
    pub fn named(name: &str) -> Self {
        Event(Cow::Owned(name.to_owned()))
    }

    /// Returns the name as it is stored and shown.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns whether samples of the event measure time at the head of the queue, so that CPI can be computed from
    /// them.
    pub fn is_time(&self) -> bool {
        ["cycles", "cpu-clock"].contains(&self.base_name())
    }

    /// Returns the name of what is counted, without how and where it is counted: it drops perf's modifiers
    /// (`cycles:pp`), the unit that counts (`cpu_core/cycles/`) and the number of a second event with the same name
    /// (`cycles#2`). If perf has two names for one thing, it returns the name that Dwell records: `cpu-clock` for
    /// `task-clock`.
    ///
    /// An import names each event as perf does, so that events that differ only in their modifiers are counted apart.
    /// An analysis looks for `instructions`, whatever modifiers they were counted with.
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

    /// Returns whether the collector derives the event from the samples of another event. A derived event has no period
    /// of its own.
    pub fn is_derived(&self) -> bool {
        let directions =
            [Self::BRANCH_TAKEN, Self::BRANCH_NOT_TAKEN, Self::AHEAD_TAKEN, Self::AHEAD_NOT_TAKEN];
        [Self::KERNEL_TIME, Self::PREEMPTED].contains(self) || self.is_of_data() || directions.contains(self)
    }

    /// Returns whether the event's offsets are of data instead of code: [`Event::DATA`] and [`Event::DATA_PAGE`].
    pub fn is_of_data(&self) -> bool {
        [Self::DATA, Self::DATA_PAGE].contains(self)
    }
}

/// Removes perf's modifiers, such as `:u`, from a name.
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
    /// Nanoseconds: on a CPU, or for [`Event::OFF_CPU`] off it.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Occurrences of the event.
    #[serde(rename = "events")]
    Events,
}

impl Unit {
    /// Returns `cycles`, `ns` or `events`, as the contracts spell it.
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
    fn modifiers_do_not_change_what_an_event_counts() {
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
