//! The costs of the lines of one source file, as an editor shows them.

use serde::Serialize;

use super::{Confidence, EventCounts, ListingPerEntry, ScaleKind, StallKind};

/// The costs of the lines and procedures of one source file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FileCosts {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// Ids of the epochs whose samples were merged.
    pub epochs: Vec<String>,
    /// Path of the file, as the request spells it.
    pub file: String,
    /// How the current file relates to the file that was built.
    pub source: SourceState,
    /// Lines with samples, ascending. Line numbers refer to the current file.
    pub lines: Vec<LineCost>,
    /// Procedures that begin in this file and have samples, by ascending line.
    pub procedures: Vec<ProcedureCost>,
    /// Lines that were edited since the program was built, ascending.
    pub stale: Vec<StaleLine>,
    /// Programs that the samples are from.
    pub programs: Vec<Program>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// A line that was edited after the program was built, so that its current text is not what was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct StaleLine {
    /// Line number in the current file, from 1.
    pub line: u32,
    /// Share of the time samples that the line had before the edit, 0 to 1.
    pub share: f64,
}

/// A program that a file was compiled into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Program {
    /// Path of the program.
    pub path: String,
    /// Whether the program was rebuilt after it was sampled, so that no sample is from the file that is at `path` now.
    pub rebuilt: bool,
}

/// Whether line numbers in the current file can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// The current file is the one that was built.
    Fresh,
    /// The file changed. Lines were mapped through a diff; lines that could not be mapped are left out.
    Mapped,
    /// The file changed and cannot be mapped: there are no line costs.
    Stale,
    /// The file as built was not recorded, so it is unknown whether the file changed.
    Unchecked,
}

impl SourceState {
    /// Returns the state of a file that several images were compiled from: `Mapped` if some of them had to be mapped or left
    /// out.
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

/// The cost of one source line, including inlined copies. Cycles and shares are computed from the time that the line's
/// instructions spent at the head of the queue; `samples` are counted at the instruction that the interrupt reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LineCost {
    /// Line number, from 1.
    pub line: u32,
    /// Sample counts by event name.
    pub samples: EventCounts,
    /// Share of the epoch's time samples, 0 to 1.
    pub share: f64,
    /// Cycles in the epoch; `None` if the clock rate is unknown.
    pub cycles: Option<f64>,
    /// CPU time in the epoch in seconds; `None` if it is unknown.
    pub seconds: Option<f64>,
    /// Kind of the scale of the executions, as in `ListingScale`: the weakest one of the line's instructions.
    pub scale: ScaleKind,
    /// Executions of the line's most executed instruction; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// Lower end of the 90 % interval of `executions`; `None` unless the scale is absolute.
    pub executions_min: Option<f64>,
    /// Upper end of the 90 % interval of `executions`; `None` unless the scale is absolute.
    pub executions_max: Option<f64>,
    /// Executions of the most executed instruction per entry of the loop or procedure that contains it.
    pub per_entry: Option<ListingPerEntry>,
    /// Measured cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible.
    pub cpi_min: f64,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// Cycles per instruction without dynamic stalls, by the machine model.
    pub best_case_cpi: Option<f64>,
    /// The lowest confidence among the instructions that matter: `low`, `medium` or `high`.
    pub confidence: Confidence,
    /// Main causes of lost cycles, most costly first.
    pub culprits: Vec<LineCulprit>,
    /// The same causes, grouped so that causes that cannot be told apart are together; most costly first.
    pub ties: Vec<LineTie>,
    /// `IMAGE:NAME` of the procedures that contain the line's instructions, most samples first.
    pub procedures: Vec<String>,
}

/// A cause of a line's lost cycles, with the place of the instruction to blame.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LineCulprit {
    /// Whether the code itself causes the stall (`static`) or the execution does (`dynamic`).
    pub kind: StallKind,
    /// Cause in kebab-case, as in `ListingStall`.
    pub cause: String,
    /// Name of the cause for users, such as `D-cache miss`.
    pub label: &'static str,
    /// Least number of cycles in the epoch that the cause takes.
    pub cycles_min: Option<f64>,
    /// Largest number of cycles in the epoch that the cause may take.
    pub cycles_max: Option<f64>,
    /// Largest share of the line's cycles that the cause may explain, 0 to 1.
    pub share_max: f64,
    /// Source file of the instruction to blame.
    pub file: Option<String>,
    /// Line of the instruction to blame, from 1.
    pub line: Option<u32>,
}

/// Causes that may explain the same lost cycles of a line and that no evidence separates.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LineTie {
    /// What the line waits for, as text: `waits for memory (D-cache or DTLB miss)`.
    pub text: String,
    /// Indices of the causes in the line's `culprits`, the most likely first.
    pub culprits: Vec<usize>,
    /// Largest share of the line's time that the causes together may explain, 0 to 1.
    pub share_max: f64,
    /// Least number of cycles in the epoch that the causes together take.
    pub cycles_min: Option<f64>,
    /// Largest number of cycles in the epoch that the causes together may take.
    pub cycles_max: Option<f64>,
}

/// The cost of one procedure, for an editor to show at the line that the procedure begins at.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ProcedureCost {
    /// `IMAGE:NAME` of the procedure, as `annotate` accepts it.
    pub id: String,
    /// Demangled name, as the source code spells it.
    pub demangled: String,
    /// Line that the procedure begins at, from 1.
    pub line: u32,
    /// Sample counts by event name.
    pub samples: EventCounts,
    /// Share of the epoch's time samples, 0 to 1.
    pub share: f64,
    /// Cycles in the epoch; `None` if the clock rate is unknown.
    pub cycles: Option<f64>,
    /// CPU time in seconds; `None` if it is unknown.
    pub seconds: Option<f64>,
    /// Kind of the scale of the executions, as in `ListingScale`.
    pub scale: ScaleKind,
    /// Measured cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible.
    pub cpi_min: f64,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// Cycles per instruction without dynamic stalls, by the machine model.
    pub best_case_cpi: Option<f64>,
}
