//! Answers as plain data. Their JSON is a contract: fields may be added, none renamed or removed within a schema.

mod diff;
mod feedback;
mod lines;
mod listing;
mod places;
mod stats;
mod summary;

use std::collections::BTreeMap;

use dwell_profile::Event;
use serde::Serialize;

pub use diff::{
    Diff, DiffChange, DiffFactors, DiffInstruction, DiffLine, DiffPlace, DiffProcedure, DiffSide,
};
pub use feedback::{
    Feedback, FeedbackCall, FeedbackEdge, FeedbackFrame, FeedbackInstruction, FeedbackProcedure,
};
pub use lines::{
    FileChanges, LineCaller, LineChange, LineDetail, LineInstruction, LinePlace, LineStall, ProcedureChange,
};
pub use listing::{
    Listing, ListingBlock, ListingImage, ListingInstruction, ListingKernel, ListingOperand, ListingPerEntry,
    ListingProcedure, ListingScale, ListingSource, ListingStall, ListingSuccessor, Period,
};
pub use places::{InstructionPlace, PlaceEvent, PlaceFrame, Places, ProcedurePlaces};
pub use stats::{Stats, StatsComparison, StatsRow, StatsSet};
pub use summary::{Summary, SummaryPart, SummaryRange, SummaryScope};

/// Counts by event name.
pub type EventCounts = BTreeMap<String, u64>;

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
    /// By procedure: the linkage name, `0x…` where only unwind tables tell of it, or `[no symbol]`.
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

/// Parts of a procedure's cycles (DCPI Figure 4 in three numbers): together 1, but for the error of sampling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CycleSplit {
    /// Issuing instructions.
    pub execution: f64,
    /// Stalls that follow from the instructions alone.
    pub r#static: f64,
    /// Stalls that do not: caches, mispredictions, …
    pub dynamic: f64,
}

/// The costs of one source file's lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileCosts {
    /// Version of this answer's shape.
    pub schema: u32,
    /// Ids of the epochs that were merged.
    pub epochs: Vec<String>,
    /// The file, as asked.
    pub file: String,
    /// How the file as it is relates to the file as it was built.
    pub source: SourceState,
    /// Ascending, only lines with samples. Line numbers are those of the file as it is now.
    pub lines: Vec<LineCost>,
    /// Procedures that begin in this file and have samples, by ascending line.
    pub procedures: Vec<ProcedureCost>,
    /// Lines that were edited since the program was built, ascending; for editors, no part of the JSON.
    #[serde(skip)]
    pub stale: Vec<StaleLine>,
    /// The programs whose samples these are; for editors, no part of the JSON.
    #[serde(skip)]
    pub programs: Vec<Program>,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

/// A line whose text is not what was sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaleLine {
    /// Of the file as it is now, from 1.
    pub line: u32,
    /// What it had of the time samples before the edit, 0 to 1.
    pub share: f64,
}

/// A program that a file was compiled into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// Where it lies.
    pub path: String,
    /// What lies there now was built since, and no sample is of it.
    pub rebuilt: bool,
}

/// Whether line numbers can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// The file is the one that was built.
    Fresh,
    /// It changed; lines were mapped through a diff, those that could not be mapped are left out.
    Mapped,
    /// It changed and cannot be mapped: no line costs are given.
    Stale,
    /// Nothing was recorded of the file as built, so nothing says whether it changed.
    Unchecked,
}

impl SourceState {
    /// The state of a file that several images know: mapped where some of them had to be mapped or left out.
    pub fn of_all(states: &std::collections::BTreeSet<SourceState>) -> SourceState {
        match states.first() {
            None => SourceState::Unchecked,
            Some(only) if states.len() == 1 => *only,
            _ if states.contains(&SourceState::Stale) || states.contains(&SourceState::Mapped) => {
                SourceState::Mapped
            }
            _ => SourceState::Unchecked,
        }
    }
}

/// One source line's cost, inlined copies included. Cycles and shares are of the time that its instructions were at
/// the head of the machine, `samples` are counted where they landed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineCost {
    /// From 1.
    pub line: u32,
    /// By event name.
    pub samples: EventCounts,
    /// Of the epoch's time samples, 0 to 1.
    pub share: f64,
    /// Cycles over the epoch; `None` where the clock is unknown.
    pub cycles: Option<f64>,
    /// CPU time over the epoch in seconds; `None` where nothing tells.
    pub seconds: Option<f64>,
    /// The least that is known of the scale of its executions, as in [`ListingScale`].
    pub scale: String,
    /// Executions of the line's most executed instruction; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// The 90 % interval of the same …
    pub executions_min: Option<f64>,
    /// … `None` likewise.
    pub executions_max: Option<f64>,
    /// Executions of its most executed instruction for each entry of what that lies in.
    pub per_entry: Option<ListingPerEntry>,
    /// Cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// The 90 % interval of the same; without an absolute scale, the least that is possible.
    pub cpi_min: f64,
    /// `None`: nothing bounds it.
    pub cpi_max: Option<f64>,
    /// Cycles per instruction without dynamic stalls: the model's.
    pub best_case_cpi: Option<f64>,
    /// The least trusted of the instructions' confidences that matter: `low`, `medium`, `high`.
    pub confidence: String,
    /// Leading causes of lost cycles, most costly first.
    pub culprits: Vec<LineCulprit>,
    /// The same causes, those that cannot be told apart together, most costly first.
    pub ties: Vec<LineTie>,
    /// `IMAGE:NAME` of the procedures the line's instructions lie in, most samples first.
    pub procedures: Vec<String>,
}

/// Who is to blame for a line's lost cycles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineCulprit {
    /// `static` or `dynamic`.
    pub kind: String,
    /// As in [`ListingStall`].
    pub cause: String,
    /// The cause's name for people: `D-cache miss`.
    pub label: &'static str,
    /// Cycles over the epoch, at least …
    pub cycles_min: Option<f64>,
    /// … and at most.
    pub cycles_max: Option<f64>,
    /// Of the line's cycles that it may explain at most, 0 to 1.
    pub share_max: f64,
    /// Source file of the instruction to blame …
    pub file: Option<String>,
    /// … and its line, from 1.
    pub line: Option<u32>,
}

/// Causes that may explain the same lost cycles of a line, and that nothing tells apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineTie {
    /// What the line waits for: `waits for memory (D-cache or DTLB miss)`.
    pub text: String,
    /// Indices of its causes among the line's culprits, the likeliest first.
    pub culprits: Vec<usize>,
    /// Of the line's time that they explain together at most, 0 to 1.
    pub share_max: f64,
    /// Cycles over the epoch, at least …
    pub cycles_min: Option<f64>,
    /// … and at most.
    pub cycles_max: Option<f64>,
}

/// One procedure's cost, for the line it begins at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcedureCost {
    /// `IMAGE:NAME`, which names it to `annotate`.
    pub id: String,
    /// As the programmer wrote it.
    pub demangled: String,
    /// Line it begins at, from 1.
    pub line: u32,
    /// By event name.
    pub samples: EventCounts,
    /// Of the epoch's time samples, 0 to 1.
    pub share: f64,
    /// Cycles; `None` where the clock is unknown.
    pub cycles: Option<f64>,
    /// CPU time in seconds; `None` where nothing tells.
    pub seconds: Option<f64>,
    /// The kind of the scale of its executions, as in [`ListingScale`].
    pub scale: String,
    /// Cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// The 90 % interval of the same; without an absolute scale, the least that is possible.
    pub cpi_min: f64,
    /// `None`: nothing bounds it.
    pub cpi_max: Option<f64>,
    /// The same without dynamic stalls.
    pub best_case_cpi: Option<f64>,
}
