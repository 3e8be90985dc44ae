//! The metadata that an epoch records beside its samples.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher, RandomState},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    BreakpointRecord, BurstsRecord, CallStacksRecord, CollectorRecord, CountsRecord, Event, Pid, Unit,
};

/// An epoch's id: its start in UTC and a random tail, `20261121T110131Z-5f3a9c7k`. Ids sort by start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochId(pub String);

/// Digits of 5 bits that are not taken for each other (Crockford's Base32).
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl EpochId {
    /// Returns a new id for an epoch that starts at `start`. Its tail has 40 random bits, so that hosts that share a database do not
    /// collide, even if ten thousand of them begin an epoch in the same second.
    pub fn new(start: Timestamp) -> Self {
        // The keys of the standard hasher are random, so no further crate is needed for randomness.
        let random = RandomState::new().hash_one(std::process::id());
        let digit = |at: u32| DIGITS[(random >> (5 * at)) as usize % DIGITS.len()] as char;
        let tail: String = (0..8).map(digit).collect();
        EpochId(format!("{}-{tail}", start.strftime("%Y%m%dT%H%M%SZ")))
    }
}

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The profile of a time interval, without its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// The epoch's id.
    pub id: EpochId,
    /// The name that a user gave the epoch.
    #[serde(default)]
    pub name: Option<String>,
    /// When collection started.
    pub start: Timestamp,
    /// When collection ended; `None` while it goes on, or if the collector died.
    #[serde(default)]
    pub end: Option<Timestamp>,
    /// The machine on which the samples were taken.
    pub host: Host,
    /// The processor that was sampled. It determines the machine model.
    pub cpu: Cpu,
    /// The backend that took the samples: `perf`, `bpf`, `kmod` or `import`; `callpaths` for calls that were counted.
    pub backend: String,
    /// Which processes were sampled.
    pub scope: Scope,
    /// The events, each with its period and its numbers of samples.
    pub events: BTreeMap<Event, EventRecord>,
    /// What users must know to read the profile, for example "user mode only: perf_event_paranoid is 2".
    #[serde(default)]
    pub notes: Vec<String>,
    /// What path bursts did and cost; `None` if they were not requested.
    #[serde(default, rename = "paths", skip_serializing_if = "Option::is_none")]
    pub bursts: Option<BurstsRecord>,
    /// What counting executions by hardware breakpoints did and cost; `None` if it was not requested.
    #[serde(default, rename = "windows", skip_serializing_if = "Option::is_none")]
    pub breakpoints: Option<BreakpointRecord>,
    /// What counting executions by words in memory and by registers did and cost; `None` if it was off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsRecord>,
    /// The call stacks that were recorded; `None` if they were off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_stacks: Option<CallStacksRecord>,
    /// What a continuous collection did and cost; `None` for epochs of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<CollectorRecord>,
}

/// The machine on which the sampled code ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The machine's node name.
    pub name: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel_release: String,
}

impl Epoch {
    /// Returns whether the epoch begins more than a day after `now`, so that the clock of its machine must have been wrong.
    pub fn begins_in_future(&self, now: Timestamp) -> bool {
        self.start.as_second() > now.as_second().saturating_add(24 * 60 * 60)
    }
}

/// The processor that was sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// The architecture, as `uname -m` prints it: `x86_64`, `aarch64`, `riscv64`.
    pub arch: String,
    /// CPUID's vendor or the implementer, as `/proc/cpuinfo` spells it.
    pub vendor: String,
    /// The marketing name of the model.
    pub model_name: String,
    /// CPUID family (x86), or implementer (AArch64, RISC-V's mvendorid).
    pub family: u32,
    /// CPUID model (x86), part number (AArch64), or the low half of marchid (RISC-V).
    pub model: u32,
    /// The stepping or revision.
    pub stepping: u32,
    /// Number of CPUs that were online.
    pub count: u32,
    /// Median of the core clock measured beside the samples, in Hz; `None` if it was not measured.
    #[serde(default)]
    pub clock_hz: Option<f64>,
    /// Lowest and highest of those measurements, in Hz.
    #[serde(default)]
    pub clock_hz_range: Option<(f64, f64)>,
    /// The machine model that the user chose (`import --machine`). It takes precedence over the other fields.
    #[serde(default)]
    pub machine_model: Option<String>,
}

/// Which processes were sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All processes on every CPU.
    System,
    /// These processes and their children.
    Processes(Vec<Pid>),
    /// A command and its children.
    Command(Vec<String>),
    /// An imported file or table.
    Import(String),
    /// Those of other recordings, of which this is the sum ([`Epoch::sum`]).
    Sum {
        /// Number of recordings.
        recordings: u64,
        /// Number of hosts.
        hosts: u64,
        /// Sum of the recordings' durations, in ns. One without an end counts as zero.
        sampled_ns: u64,
    },
}

/// If an event ran for less than this share of the time that it should have counted, the user gets a note.
const TOLD_SHARE: f64 = 0.99;

/// The period of an event and its numbers of samples in an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Mean period between samples, in `unit`.
    pub period: u64,
    /// The period's unit.
    pub unit: Unit,
    /// Number of samples that are stored.
    pub samples: u64,
    /// Number of samples that the kernel or the collector dropped.
    pub lost: u64,
    /// Number of times the kernel throttled the event. Each time an unknown number of samples is missing.
    pub throttled: u64,
    /// Number of stored samples that are in the image `unknown`.
    pub unknown: u64,
    /// The share of its time that the event was really counted, 0 to 1: events take turns if the processor has too few
    /// counters. `None` if it was not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_share: Option<f64>,
}

impl EventRecord {
    /// Returns a note for the user if the event shared a counter: its samples cover only a part of the time, and
    /// nothing is scaled.
    pub fn multiplexing_note(&self, event: &Event) -> Option<String> {
        let share = self.running_share.filter(|share| *share < TOLD_SHARE)?;
        let percent = 100.0 * share;
        Some(format!("{event} ran {percent:.0}% of the time (multiplexed); its counts cover only that time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_event_that_shared_its_counter_is_noted() {
        let note = |share: &str| {
            let text = format!(
                r#"{{"period": 1, "unit": "cycles", "samples": 2, "lost": 0, "throttled": 0, "unknown": 0{share}}}"#
            );
            serde_json::from_str::<EventRecord>(&text).unwrap().multiplexing_note(&Event::CYCLES)
        };
        assert_eq!(note(""), None, "an epoch from before");
        assert_eq!(note(r#", "running_share": 0.99"#), None);
        assert_eq!(
            note(r#", "running_share": 0.4321"#).unwrap(),
            "cycles ran 43% of the time (multiplexed); its counts cover only that time"
        );
    }
}
