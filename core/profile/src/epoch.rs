//! What an epoch records beside its samples.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher, RandomState},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{CollectorRecord, CountsRecord, Event, PathsRecord, Pid, Unit, WindowsRecord};

/// An epoch's id: its start in UTC and a random tail, `20261121T110131Z-5f3a9c`. Ids sort by start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochId(pub String);

impl EpochId {
    /// A new id for an epoch that starts at `start`. Its tail is random, so that two hosts that share a database
    /// never collide.
    pub fn new(start: Timestamp) -> Self {
        // The standard hasher's keys are the randomness that needs no further crate.
        let random = RandomState::new().hash_one(std::process::id()) & 0xff_ffff;
        EpochId(format!("{}-{random:06x}", start.strftime("%Y%m%dT%H%M%SZ")))
    }
}

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A time interval's profile: everything about it but the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its id.
    pub id: EpochId,
    /// The name a user gave it.
    #[serde(default)]
    pub name: Option<String>,
    /// When collection started.
    pub start: Timestamp,
    /// When it ended; `None` while it goes on, or where the collector died.
    #[serde(default)]
    pub end: Option<Timestamp>,
    /// Where it was taken.
    pub host: Host,
    /// The processor that was sampled: what the machine model follows from.
    pub cpu: Cpu,
    /// `perf`, `bpf`, `kmod`, `import`.
    pub backend: String,
    /// What was sampled.
    pub scope: Scope,
    /// The events, their periods and their tallies.
    pub events: BTreeMap<Event, EventRecord>,
    /// What the user must know to read it: "user mode only: perf_event_paranoid is 2", …
    #[serde(default)]
    pub notes: Vec<String>,
    /// What single-stepping did, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<PathsRecord>,
    /// What counting in windows did, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<WindowsRecord>,
    /// What counting executions by words in memory and by registers did; `None` where it was off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsRecord>,
    /// What a continuous collection did and cost; `None` for epochs of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<CollectorRecord>,
}

/// The machine that ran the samples' code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its node name.
    pub name: String,
    /// `uname -r`.
    pub kernel_release: String,
}

/// The processor that was sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// `uname -m`: `x86_64`, `aarch64`, `riscv64`.
    pub arch: String,
    /// CPUID's vendor or the implementer, as `/proc/cpuinfo` spells it.
    pub vendor: String,
    /// The marketing name.
    pub model_name: String,
    /// CPUID family (x86), or implementer (AArch64, RISC-V's mvendorid).
    pub family: u32,
    /// CPUID model (x86), part number (AArch64), or the low half of marchid (RISC-V).
    pub model: u32,
    /// Stepping or revision.
    pub stepping: u32,
    /// How many were online.
    pub count: u32,
    /// The core clock measured beside the samples, in Hz (median); `None` where it was not.
    #[serde(default)]
    pub clock_hz: Option<f64>,
    /// Lowest and highest of those measurements.
    #[serde(default)]
    pub clock_hz_range: Option<(f64, f64)>,
    /// A machine model chosen by the user (`import --machine`), which then counts before the rest.
    #[serde(default)]
    pub machine_model: Option<String>,
}

/// What was sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Every CPU.
    System,
    /// These processes and their children.
    Processes(Vec<Pid>),
    /// A command and its children.
    Command(Vec<String>),
    /// A file or a table that was imported.
    Import(String),
}

/// Below that share of the time that it was to count, an event is told to have run for a part of it only.
const TOLD_SHARE: f64 = 0.99;

/// One event's period and tallies in an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Mean period between samples, in `unit`.
    pub period: u64,
    /// The period's unit.
    pub unit: Unit,
    /// Samples stored.
    pub samples: u64,
    /// Samples that the kernel or the collector dropped.
    pub lost: u64,
    /// How often the kernel throttled the event (each time an unknown number of samples is missing).
    pub throttled: u64,
    /// Of `samples`, those that landed under the image `unknown`.
    pub unknown: u64,
    /// Of the time that it was to count, the share that it did, 0 to 1: events take turns where counters are few. `None`
    /// where nobody told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_share: Option<f64>,
}

impl EventRecord {
    /// What its user must know where the event shared a counter: its samples are of a part of the time, and nothing is scaled.
    pub fn multiplexing_note(&self, event: &Event) -> Option<String> {
        let share = self.running_share.filter(|share| *share < TOLD_SHARE)?;
        let percent = 100.0 * share;
        Some(format!("{event} ran {percent:.0}% of the time: multiplexed; counts are those of that time"))
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
            "cycles ran 43% of the time: multiplexed; counts are those of that time"
        );
    }
}
