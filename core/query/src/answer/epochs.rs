//! The answer of `dwell epoch list --json`.

use std::collections::BTreeMap;

use serde::Serialize;

/// List of the epochs of a database: the root object of `dwell epoch list --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct EpochList {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// Epochs, the newest last.
    pub epochs: Vec<EpochSummary>,
    /// Files that were skipped, each with the reason.
    pub warnings: Vec<String>,
}

/// One epoch in an [`EpochList`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct EpochSummary {
    /// Id of the epoch.
    pub id: String,
    /// Name that a user gave the epoch.
    pub name: Option<String>,
    /// Time when the epoch began, as RFC 3339 in UTC.
    pub start: String,
    /// Time when the epoch ended, as RFC 3339 in UTC; `None` while it is being recorded.
    pub end: Option<String>,
    /// Node name of the machine that recorded the epoch.
    pub host: String,
    /// Marketing name of the processor.
    pub cpu: String,
    /// Backend that took the samples: `perf`, `bpf`, `kmod` or `import`.
    pub backend: String,
    /// What was sampled, as text: `system`, `pid 12`, `./a.out 3`, `import table.tsv`.
    pub scope: String,
    /// Events of the epoch, by event name.
    pub events: BTreeMap<String, EventSummary>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// Period and sample counts of one event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct EventSummary {
    /// Mean period, in units of `unit`.
    pub period: u64,
    /// Unit of the period: `cycles`, `ns` or `events`.
    #[cfg_attr(feature = "typescript", ts(type = "'cycles' | 'ns' | 'events'"))]
    pub unit: String,
    /// Number of samples that were stored.
    pub samples: u64,
    /// Number of samples that were lost because there was no room for them.
    pub lost: u64,
    /// Number of times that the kernel throttled the event.
    pub throttled: u64,
    /// Number of `samples` whose image is unknown.
    pub unknown: u64,
    /// Share of the requested time that the event was counted, if known. It is below 1 if several events shared a counter in
    /// turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_share: Option<f64>,
}
