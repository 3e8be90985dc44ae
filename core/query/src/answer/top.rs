//! The answer of `dwell top --json`.

use std::collections::BTreeMap;

use dwell_profile::Event;
use serde::Serialize;

use super::ScaleKind;

/// Sample counts by event name.
pub type EventCounts = BTreeMap<String, u64>;

/// Table of where the samples are: the root object of `dwell top --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Top {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// Ids of the epochs whose samples were merged.
    pub epochs: Vec<String>,
    /// All samples by event name.
    pub total: EventCounts,
    /// Rows, the most costly first.
    pub rows: Vec<TopRow>,
    /// Number of rows left out because of the limit.
    pub omitted_rows: usize,
    /// Notes that a reader needs to interpret the answer: losses, images that are missing or have changed, …
    pub notes: Vec<String>,
}

impl Top {
    /// Returns the event that shares refer to, with its number of samples. An event that measures time comes first; among
    /// several, the one with the most samples.
    pub fn primary(&self) -> Option<(&str, u64)> {
        let rank = |(name, samples): &(&String, &u64)| {
            let event = Event::named(name);
            (!event.is_time(), event.is_derived(), std::cmp::Reverse(**samples))
        };
        self.total.iter().min_by_key(rank).map(|(name, samples)| (name.as_str(), *samples))
    }
}

/// A row of [`Top`]. The dimension that the rows are grouped by determines which keys are present.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct TopRow {
    /// By procedure: `IMAGE:NAME`, as `annotate` accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// By procedure: the linkage name, `0x…` if the procedure is known from unwind tables only, or `[no symbol]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<String>,
    /// By procedure: the demangled name, as the source code spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// By procedure and image: path of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// By procedure and image: id of the image (a build ID in hex, `kernel`, …).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// By line and, if known, by procedure: the source file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// By line and, if known, by procedure: line in `file`, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// By application and instance: name of the executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// By application and instance: number of this execution of the executable, from 1; 0 for several executions together or
    /// a kernel thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<u32>,
    /// By thread: name of the thread; empty if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// By CPU: number of the CPU; `null` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Option<u32>>,
    /// By control group: its path; empty if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// By control group: the container, pod, service or session, if the path follows a known naming scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// By data: name of the data: a symbol, a section (`[.rodata]`), a path, `[stack]`, `[heap]`, …, or in brackets the
    /// reason why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// By data: kind of the data: `symbol` or `image` (data of the image that `image` names), `file`, `anonymous`, `heap`,
    /// `stack`, `thread-local`, `mapping` (any other mapping that has a name), or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_kind: Option<String>,
    /// Samples of this row by event name.
    pub samples: EventCounts,
    /// Share of the time samples, 0 to 1; by data, share of the time samples whose registers were examined.
    pub share: f64,
    /// Sum of `share` over this row and all rows before it.
    pub cumulative_share: f64,
    /// Estimated cycles of this row; `None` if the clock rate is unknown.
    pub cycles: Option<f64>,
    /// CPU time of this row in seconds; `None` if it is unknown.
    pub seconds: Option<f64>,
    /// Measured cycles per instruction; `None` unless the scale is absolute, and always by image, line and application.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`.
    pub cpi_min: Option<f64>,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// By procedure: kind of the scale of the executions, as in `ListingScale`, if the procedure was analysed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleKind>,
    /// Where the cycles of the row go, if the request includes it and the scale is absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<CycleSplit>,
}

/// Shares of a procedure's cycles (DCPI Figure 4 in three numbers). They add up to 1, except for sampling error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct CycleSplit {
    /// Share of issuing instructions.
    pub execution: f64,
    /// Share of static stalls: those that follow from the instructions alone.
    pub r#static: f64,
    /// Share of dynamic stalls: cache misses, mispredicted branches, …
    pub dynamic: f64,
}
