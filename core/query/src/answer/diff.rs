//! `dwell diff --json`: what changed between two profiles.

use serde::Serialize;

/// Two profiles compared. Samples of B are divided by `exposure` wherever they are set against A's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Version of this answer's shape.
    pub schema: u32,
    /// What changed …
    pub a: DiffSide,
    /// … into what.
    pub b: DiffSide,
    /// `run`, `time`, `samples`, or the procedure that did the same work in both.
    pub normalized_by: String,
    /// B's exposure over A's: how many times as many samples B would have had nothing changed.
    pub exposure: f64,
    /// Everything.
    pub total: DiffChange,
    /// Procedures, the largest change first; of one procedure: that one.
    pub procedures: Vec<DiffProcedure>,
    /// Source lines, the largest change first.
    pub lines: Vec<DiffLine>,
    /// Of one procedure: its instructions, those of B in their order with A's between them.
    pub instructions: Vec<DiffInstruction>,
    /// Procedures whose change may be chance (left out unless all were asked for) …
    pub insignificant_procedures: usize,
    /// … and such lines.
    pub insignificant_lines: usize,
    /// Rows beyond the limit.
    pub omitted_rows: usize,
    /// What one must know to read it: unlike machines, events, …
    pub notes: Vec<String>,
}

/// One of the two profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffSide {
    /// Ids of its epochs.
    pub epochs: Vec<String>,
    /// The processor's marketing name.
    pub cpu: String,
    /// Name of the machine model that was used.
    pub machine_model: String,
    /// What was counted.
    pub event: String,
    /// Its samples.
    pub samples: u64,
    /// Cycles between two of them; `None` where the clock is unknown.
    pub period_cycles: Option<f64>,
}

/// How samples changed, and whether that is more than chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiffChange {
    /// Samples in A …
    pub samples_a: f64,
    /// … and in B, as they are.
    pub samples_b: f64,
    /// B's samples over exposure, less A's: positive where it became slower.
    pub change: f64,
    /// The change as a part of all samples of A.
    pub change_share: f64,
    /// B's samples over exposure, over A's; `None` where A has none.
    pub ratio: Option<f64>,
    /// How likely a change as large is if there is none.
    pub p: f64,
    /// The part of false calls among all rows as sure as this one.
    pub false_discovery_rate: f64,
    /// Whether that is below one in twenty.
    pub significant: bool,
}

/// The change factored: samples = executions × cycles per execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiffFactors {
    /// Instructions executed (of an instruction: its executions) in A; `None` unless the scale is absolute …
    pub executions_a: Option<f64>,
    /// … and in B.
    pub executions_b: Option<f64>,
    /// Cycles per instruction in A, likewise …
    pub cpi_a: Option<f64>,
    /// … and in B.
    pub cpi_b: Option<f64>,
    /// B's executions over exposure, over A's: did it run more often? `None` unless the scales of both sides are absolute.
    pub count_ratio: Option<f64>,
    /// B's CPI over A's: did it take longer each time? `None` likewise.
    pub cost_ratio: Option<f64>,
    /// Whether the evidence separates count from cost: which of the two changed further is certain at 90 %.
    pub tells_apart: bool,
}

/// One procedure's change. Procedures of one name in images of one file name are one row, so that rebuilds agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffProcedure {
    /// Linkage name.
    pub procedure: String,
    /// As the programmer wrote it.
    pub demangled: String,
    /// The image's file name.
    pub image: String,
    /// How its samples changed.
    #[serde(flatten)]
    pub change: DiffChange,
    /// Cost apart from count.
    #[serde(flatten)]
    pub factors: DiffFactors,
    /// The lesser of the two sides' confidences in executions and CPI: `low`, `medium`, `high`.
    pub confidence: String,
}

/// One source line's change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffLine {
    /// The file, as the debug information spells it: B's, where it has the file.
    pub file: String,
    /// Its number in A, from 1; `None`: it is not there, or was edited.
    pub line_a: Option<u32>,
    /// The same in B.
    pub line_b: Option<u32>,
    /// How its samples changed, counted at the lines that were waited for.
    #[serde(flatten)]
    pub change: DiffChange,
    /// Cost apart from count.
    #[serde(flatten)]
    pub factors: DiffFactors,
}

/// One instruction of either side, or of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffInstruction {
    /// Where it is in A.
    pub a: Option<DiffPlace>,
    /// Where it is in B.
    pub b: Option<DiffPlace>,
    /// `same`, `edited` (another operand or a like instruction in its place), `removed`, `added`.
    pub kind: String,
    /// How its samples changed.
    #[serde(flatten)]
    pub change: DiffChange,
    /// Cost apart from count.
    #[serde(flatten)]
    pub factors: DiffFactors,
}

/// An instruction on one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffPlace {
    /// First byte.
    pub address: u64,
    /// Mnemonic and operands.
    pub text: String,
    /// Source file.
    pub file: Option<String>,
    /// Its line, from 1.
    pub line: Option<u32>,
}
