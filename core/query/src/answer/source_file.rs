//! The costs of the lines of one source file, as an editor shows them.

use serde::Serialize;

use super::{EventCounts, ListingPerEntry};

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
    /// CPU time over the epoch in seconds; `None` where that is unknown.
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
    /// The name of the cause for people: `D-cache miss`.
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

/// Causes that may explain the same lost cycles of a line, and that no evidence separates.
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
    /// CPU time in seconds; `None` where that is unknown.
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
