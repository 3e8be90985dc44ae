//! The answer of `epoch list`.

use std::collections::BTreeMap;

use serde::Serialize;

/// `dwell epoch list --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpochList {
    /// Version of this answer's shape.
    pub schema: u32,
    /// Newest last.
    pub epochs: Vec<EpochSummary>,
    /// Files that were skipped, each with its reason.
    pub warnings: Vec<String>,
}

/// One epoch in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpochSummary {
    /// Its id.
    pub id: String,
    /// The name a user gave it.
    pub name: Option<String>,
    /// RFC 3339, UTC.
    pub start: String,
    /// RFC 3339, UTC; `None` while it is being collected.
    pub end: Option<String>,
    /// Node name.
    pub host: String,
    /// The processor's marketing name.
    pub cpu: String,
    /// `perf`, `bpf`, `kmod`, `import`.
    pub backend: String,
    /// What was sampled, in words: `system`, `pid 12`, `./a.out 3`, `import table.tsv`.
    pub scope: String,
    /// By event name.
    pub events: BTreeMap<String, EventSummary>,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

/// An event's tallies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventSummary {
    /// Mean period, in `unit`.
    pub period: u64,
    /// `cycles`, `ns` or `events`.
    pub unit: String,
    /// Samples stored.
    pub samples: u64,
    /// Samples dropped.
    pub lost: u64,
    /// Times the kernel throttled.
    pub throttled: u64,
    /// Of `samples`, those without an image.
    pub unknown: u64,
    /// Of the time that it was to count, the share that it did, where that is known: below 1 events took turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_share: Option<f64>,
}
