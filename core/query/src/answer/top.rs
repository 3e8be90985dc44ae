//! The answer of `top`.

use std::collections::BTreeMap;

use dwell_profile::Event;
use serde::Serialize;

/// Counts by event name.
pub type EventCounts = BTreeMap<String, u64>;

/// `dwell top --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Top {
    /// Version of this answer's shape.
    pub schema: u32,
    /// Ids of the epochs that were merged.
    pub epochs: Vec<String>,
    /// Samples in all.
    pub total: EventCounts,
    /// Most costly first.
    pub rows: Vec<TopRow>,
    /// Rows beyond the limit.
    pub omitted_rows: usize,
    /// What one must know to read it: losses, images that are gone or have changed, …
    pub notes: Vec<String>,
}

impl Top {
    /// The event that shares are of, with its samples: time where it was sampled, and of several the one with the most
    /// samples.
    pub fn primary(&self) -> Option<(&str, u64)> {
        let rank = |(name, samples): &(&String, &u64)| {
            let event = Event::named(name);
            (!event.is_time(), event.is_derived(), std::cmp::Reverse(**samples))
        };
        self.total.iter().min_by_key(rank).map(|(name, samples)| (name.as_str(), *samples))
    }
}

/// A row of [`Top`]; which keys are present depends on what it is by.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopRow {
    /// By procedure: `IMAGE:NAME`, which names it to `annotate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// By procedure: the linkage name, `0x…` where only unwind tables have it, or `[no symbol]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub procedure: Option<String>,
    /// By procedure: as the programmer wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// By procedure and image: the image's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// By procedure and image: its id (a build id in hex, `kernel`, …).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// By line and, where known, by procedure: the source file …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// … and its line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// By application and instance: its executable's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// By application and instance: which execution of it, from 1; 0: several together, or a kernel thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<u32>,
    /// By thread: its name; empty: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// By CPU: its number; `null`: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Option<u32>>,
    /// By control group: its path; empty: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// By control group: the container, pod, service or session, where the path follows the ways of those who make them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// By data: its name: a symbol, a section (`[.rodata]`), a path, `[stack]`, `[heap]`, …, or in brackets why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// By data: what it is: `symbol` or `image` (data of the image that `image` names), `file`, `anonymous`, `heap`, `stack`,
    /// `thread-local`, `mapping` (another one that has a name), or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<String>,
    /// By event.
    pub samples: EventCounts,
    /// Of the time samples, 0 to 1; by data, of those whose registers were looked at.
    pub share: f64,
    /// This row's and all rows' before it.
    pub cumulative_share: f64,
    /// Estimated cycles; `None` where the clock is unknown.
    pub cycles: Option<f64>,
    /// Cycles per instruction; `None` unless the scale is absolute (and always by image, line and application).
    pub cpi: Option<f64>,
    /// The least that it can be at 90 % …
    pub cpi_min: Option<f64>,
    /// … and the most; `None`: nothing bounds it.
    pub cpi_max: Option<f64>,
    /// By procedure: the kind of the scale of its executions, as in [`ListingScale`], where it was analysed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<String>,
    /// Where its cycles go, where that was asked for and is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<CycleSplit>,
}

/// Parts of a procedure's cycles (DCPI Figure 4 in three numbers): together 1, up to the error of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CycleSplit {
    /// Issuing instructions.
    pub execution: f64,
    /// Stalls that follow from the instructions alone.
    pub r#static: f64,
    /// Stalls that do not: caches, mispredictions, …
    pub dynamic: f64,
}
