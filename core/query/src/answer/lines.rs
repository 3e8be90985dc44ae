//! Answers for an editor about one source file: the instructions of one line, and the changes between two profiles.

use serde::Serialize;

use super::{Confidence, DiffChange, DiffFactors, DiffSide, ListingSource, ScaleKind, StallKind};

/// Instructions of one source line, grouped by the places that the line was compiled into.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LineDetail {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// Ids of the epochs whose samples were merged.
    pub epochs: Vec<String>,
    /// Line number in the current file, from 1.
    pub line: u32,
    /// Places that the line was compiled into, most samples first.
    pub places: Vec<LinePlace>,
    /// Number of places that were left out of `places`.
    pub omitted_places: usize,
}

/// A procedure that the line was compiled into through one particular chain of inlined calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LinePlace {
    /// `IMAGE:NAME` of the procedure, as `annotate` accepts it.
    pub procedure: String,
    /// Demangled name, as the source code spells it.
    pub demangled: String,
    /// Inlined calls that lead to the line, innermost first; empty if the line is the procedure's own.
    pub callers: Vec<LineCaller>,
    /// Share of the epoch's time samples, 0 to 1.
    pub share: f64,
    /// Kind of the scale of the executions, as in [`ListingScale`](super::ListingScale).
    pub scale: ScaleKind,
    /// Measured cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible.
    pub cpi_min: f64,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// Instructions of the line in this place, by ascending address.
    pub instructions: Vec<LineInstruction>,
    /// Number of instructions that were left out of `instructions`: the ones with the least cost.
    pub omitted_instructions: usize,
}

/// A call that was inlined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LineCaller {
    /// Name of the calling function, as the source code spells it.
    pub function: Option<String>,
    /// Source file of the call.
    pub file: Option<String>,
    /// Line of the call in the file as it was built, from 1.
    pub line: Option<u32>,
}

/// One instruction of the line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LineInstruction {
    /// Address of the first byte.
    pub address: u64,
    /// Disassembled text: mnemonic and operands.
    pub text: String,
    /// Time samples during which the instruction was at the head of the queue.
    pub head_samples: f64,
    /// Estimated executions in the epoch; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// Executions up to an unknown factor: only ratios between them are meaningful.
    pub executions_relative: Option<f64>,
    /// Cycles at the head of the queue per execution; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible.
    pub cpi_min: f64,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// How far the estimate can be trusted: `low`, `medium` or `high`.
    pub confidence: Confidence,
    /// Stalls: reasons why the instruction took longer than its best case, static ones first.
    pub stalls: Vec<LineStall>,
}

/// Stall of a [`LineInstruction`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LineStall {
    /// Whether the code itself causes the stall (`static`) or the execution does (`dynamic`).
    pub kind: StallKind,
    /// Cause in kebab-case, as in [`ListingStall`](super::ListingStall).
    pub cause: String,
    /// Name of the cause for users, such as `D-cache miss`.
    pub label: &'static str,
    /// Least number of cycles per execution that the stall takes.
    pub cycles_min: f64,
    /// Largest number of cycles per execution that the stall may take; `None` for a dynamic stall without an absolute scale.
    pub cycles_max: Option<f64>,
    /// Least share of the instruction's time that the stall takes, 0 to 1.
    pub share_min: f64,
    /// Largest share of the instruction's time that the stall may take, 0 to 1.
    pub share_max: f64,
    /// For a `d-cache-miss`: levels that can explain the stall alone, as in [`ListingStall`](super::ListingStall).
    pub levels: Vec<String>,
    /// The same levels with the share of accesses, as in [`ListingStall`](super::ListingStall).
    pub sources: Vec<ListingSource>,
    /// Address of the instruction to blame.
    pub culprit_address: Option<u64>,
    /// Disassembled text of the instruction to blame.
    pub culprit_text: Option<String>,
    /// Source file of the instruction to blame.
    pub file: Option<String>,
    /// Line of the instruction to blame, from 1. It refers to the current text of the file that the request names.
    pub line: Option<u32>,
}

/// What changed in one source file between two profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct FileChanges {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// The profile before the change.
    pub a: DiffSide,
    /// The profile after the change.
    pub b: DiffSide,
    /// Factor by which B would have more samples than A if nothing had changed.
    pub exposure: f64,
    /// Lines with samples on either side, ascending. Line numbers refer to the current file.
    pub lines: Vec<LineChange>,
    /// Procedures that begin in the file, by ascending line.
    pub procedures: Vec<ProcedureChange>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// The change of one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct LineChange {
    /// Line number, from 1.
    pub line: u32,
    /// How the number of samples changed. A sample counts for the line of the instruction at the head of the queue.
    #[serde(flatten)]
    pub change: DiffChange,
    /// The change split into executions and cycles per execution.
    #[serde(flatten)]
    pub factors: DiffFactors,
}

/// The change of one procedure, for an editor to show at the line that the procedure begins at.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ProcedureChange {
    /// Linkage (mangled) name.
    pub procedure: String,
    /// Line that the procedure begins at, from 1.
    pub line: u32,
    /// How the number of samples changed.
    #[serde(flatten)]
    pub change: DiffChange,
    /// The change split into executions and cycles per execution.
    #[serde(flatten)]
    pub factors: DiffFactors,
}
