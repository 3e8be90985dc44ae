//! The answer of `dwell diff --json`: what changed between two profiles.

use serde::Serialize;

use super::Confidence;

/// Two profiles compared. Wherever samples of B are compared with those of A, they are divided by `exposure`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Diff {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// The profile before the change.
    pub a: DiffSide,
    /// The profile after the change.
    pub b: DiffSide,
    /// What both profiles are assumed to have in common: `run`, `time`, `samples`, or the name of a procedure that did the
    /// same work in both.
    pub normalized_by: String,
    /// Factor by which B would have more samples than A if nothing had changed.
    pub exposure: f64,
    /// The change of all samples together.
    pub total: DiffChange,
    /// Procedures, the largest change first. If the comparison is limited to one procedure, only that procedure.
    pub procedures: Vec<DiffProcedure>,
    /// Source lines, the largest change first.
    pub lines: Vec<DiffLine>,
    /// Instructions, if the comparison is limited to one procedure: those of B in their order, with those of A in between.
    pub instructions: Vec<DiffInstruction>,
    /// Number of procedures whose change may be chance. They are left out of `procedures` unless the request includes all.
    pub insignificant_procedures: usize,
    /// Number of lines whose change may be chance, left out of `lines` likewise.
    pub insignificant_lines: usize,
    /// Number of rows left out because of the limit.
    pub omitted_rows: usize,
    /// Notes that a reader needs to interpret the answer: different machines, different events, …
    pub notes: Vec<String>,
}

/// One of the two profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct DiffSide {
    /// Ids of the epochs of this side.
    pub epochs: Vec<String>,
    /// Marketing name of the processor.
    pub cpu: String,
    /// Name of the machine model that was used.
    pub machine_model: String,
    /// Name of the event that was sampled.
    pub event: String,
    /// Number of samples of the event.
    pub samples: u64,
    /// Mean number of cycles between two samples; `None` if the clock rate is unknown.
    pub period_cycles: Option<f64>,
}

/// How the number of samples changed, and whether the change is more than chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct DiffChange {
    /// Samples in A.
    pub samples_a: f64,
    /// Samples in B, not divided by the exposure.
    pub samples_b: f64,
    /// Samples of B divided by the exposure, minus those of A: positive if B is slower.
    pub change: f64,
    /// The change divided by all samples of A.
    pub change_share: f64,
    /// Samples of B divided by the exposure, over those of A; `None` if A has none.
    pub ratio: Option<f64>,
    /// Probability that chance alone makes a change at least this large.
    pub p: f64,
    /// Expected share of false positives among all rows with a `p` at most as large as this row's.
    pub false_discovery_rate: f64,
    /// Whether `false_discovery_rate` is below 0.05.
    pub significant: bool,
}

/// The change split into two factors: samples = executions × cycles per execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct DiffFactors {
    /// Instructions executed in A (for a row of one instruction: its executions); `None` unless the scale is absolute.
    pub executions_a: Option<f64>,
    /// Instructions executed in B; `None` unless the scale is absolute.
    pub executions_b: Option<f64>,
    /// Cycles per instruction in A; `None` unless the scale is absolute.
    pub cpi_a: Option<f64>,
    /// Cycles per instruction in B; `None` unless the scale is absolute.
    pub cpi_b: Option<f64>,
    /// Executions of B divided by the exposure, over those of A: above 1 if the code ran more often. `None` unless the
    /// scales of both sides are absolute.
    pub count_ratio: Option<f64>,
    /// CPI of B over that of A: above 1 if each execution took longer. `None` unless the scales of both sides are absolute.
    pub cost_ratio: Option<f64>,
    /// Whether the evidence separates count from cost: it is certain at 90 % which of the two changed more.
    pub tells_apart: bool,
}

/// The change of one procedure. Procedures with equal names, in images with equal file names, share one row, so that a
/// rebuilt program can be compared with its predecessor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct DiffProcedure {
    /// Linkage (mangled) name.
    pub procedure: String,
    /// Demangled name, as the source code spells it.
    pub demangled: String,
    /// File name of the image, without folders.
    pub image: String,
    /// How the number of samples changed.
    #[serde(flatten)]
    pub change: DiffChange,
    /// The change split into executions and cycles per execution.
    #[serde(flatten)]
    pub factors: DiffFactors,
    /// The lower of the two sides' confidences in executions and CPI: `low`, `medium` or `high`.
    pub confidence: Confidence,
}

/// The change of one source line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct DiffLine {
    /// The source file, as the debug information of B spells it, or that of A if B does not have the file.
    pub file: String,
    /// Line number in A, from 1; `None` if the line is not in A or was edited.
    pub line_a: Option<u32>,
    /// Line number in B, from 1; `None` if the line is not in B or was edited.
    pub line_b: Option<u32>,
    /// How the number of samples changed. A sample counts for the line of the instruction at the head of the queue.
    #[serde(flatten)]
    pub change: DiffChange,
    /// The change split into executions and cycles per execution.
    #[serde(flatten)]
    pub factors: DiffFactors,
}

/// An instruction that is in A, in B or in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct DiffInstruction {
    /// Place of the instruction in A; `None` if it is not in A.
    pub a: Option<DiffPlace>,
    /// Place of the instruction in B; `None` if it is not in B.
    pub b: Option<DiffPlace>,
    /// `same`, `edited` (another operand or a similar instruction in the same place), `removed` or `added`.
    #[cfg_attr(feature = "typescript", ts(type = "'same' | 'edited' | 'removed' | 'added'"))]
    pub kind: String,
    /// How the number of samples changed.
    #[serde(flatten)]
    pub change: DiffChange,
    /// The change split into executions and cycles per execution.
    #[serde(flatten)]
    pub factors: DiffFactors,
}

/// Place and text of an instruction on one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct DiffPlace {
    /// Address of the first byte.
    pub address: u64,
    /// Disassembled text: mnemonic and operands.
    pub text: String,
    /// Source file, as the debug information spells it.
    pub file: Option<String>,
    /// Line in that file, from 1.
    pub line: Option<u32>,
}
