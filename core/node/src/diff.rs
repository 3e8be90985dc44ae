//! The shapes of comparisons.

use napi_derive::napi;

use crate::mirror::mirror;

/// What to compare.
#[napi(object)]
pub struct DiffRequest {
    /// Selectors of the epochs before the change …
    pub a: Vec<String>,
    /// … and after it.
    pub b: Vec<String>,
    /// This procedure alone (`NAME` or `IMAGE:NAME`), instruction by instruction.
    pub procedure: Option<String>,
    /// What makes them comparable: `run` (unless said), `time`, `samples`, or a procedure that did the same work in both.
    pub normalize: Option<String>,
    /// What may be chance, too.
    pub all: Option<bool>,
    /// Procedures and lines at most.
    pub limit: Option<u32>,
}

mirror! {
    /// What changed between two profiles.
    pub struct Diff {
        /// What changed …
        pub a: DiffSide,
        /// … into what.
        pub b: DiffSide,
        /// As in the request.
        pub normalized_by: String,
        /// B's exposure over A's: B's samples are divided by it wherever they are set against A's.
        pub exposure: f64,
        /// Everything.
        pub total: DiffChange,
        /// The largest change first.
        pub procedures: Vec<DiffProcedure>,
        /// The largest change first.
        pub lines: Vec<DiffLine>,
        /// Of one procedure: those of B in their order with A's between them.
        pub instructions: Vec<DiffInstruction>,
        /// Procedures whose change may be chance …
        pub insignificant_procedures: u32,
        /// … and such lines.
        pub insignificant_lines: u32,
        /// Rows beyond the limit.
        pub omitted_rows: u32,
        /// What one must know to read it.
        pub notes: Vec<String>,
    }

    /// One of the two profiles.
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
        pub samples: f64,
        /// Cycles between two of them; `null` where the clock is unknown.
        pub period_cycles: Option<f64>,
    }

    /// How samples changed, and whether that is more than chance.
    pub struct DiffChange {
        /// Samples in A …
        pub samples_a: f64,
        /// … and in B, as they are.
        pub samples_b: f64,
        /// B's samples over exposure, less A's: positive where it became slower.
        pub change: f64,
        /// The same as a part of all of A's samples.
        pub change_share: f64,
        /// B's samples over exposure, over A's; `null` where A has none.
        pub ratio: Option<f64>,
        /// How likely a change as large is if there is none.
        pub p: f64,
        /// The part of false calls among all rows as sure as this one.
        pub false_discovery_rate: f64,
        /// Whether that is below one in twenty.
        pub significant: bool,
    }

    /// The change factored: samples = executions × cycles per execution.
    pub struct DiffFactors {
        /// Instructions executed (of an instruction: its executions) in A; `null` unless the scale is absolute …
        pub executions_a: Option<f64>,
        /// … and in B.
        pub executions_b: Option<f64>,
        /// Cycles per instruction in A, likewise …
        pub cpi_a: Option<f64>,
        /// … and in B.
        pub cpi_b: Option<f64>,
        /// B's executions over exposure, over A's: did it run more often? `null` unless the scales of both sides are absolute.
        pub count_ratio: Option<f64>,
        /// B's CPI over A's: did it take longer each time? `null` likewise.
        pub cost_ratio: Option<f64>,
        /// Whether the evidence separates count from cost: which of the two changed further is certain at 90 %.
        pub tells_apart: bool,
    }

    /// One procedure's change.
    pub struct DiffProcedure {
        /// Linkage name.
        pub procedure: String,
        /// As the programmer wrote it.
        pub demangled: String,
        /// The image's file name.
        pub image: String,
        /// How its samples changed.
        pub change: DiffChange,
        /// Cost apart from count.
        pub factors: DiffFactors,
        /// The lesser of the two sides' confidences.
        #[napi(ts_type = "'low' | 'medium' | 'high'")]
        pub confidence: String,
    }

    /// One source line's change.
    pub struct DiffLine {
        /// The file, as the debug information spells it.
        pub file: String,
        /// Its number in A, from 1; `null`: it is not there, or was edited.
        pub line_a: Option<u32>,
        /// The same in B.
        pub line_b: Option<u32>,
        /// How its samples changed.
        pub change: DiffChange,
        /// Cost apart from count.
        pub factors: DiffFactors,
    }

    /// One instruction of either side, or of both.
    pub struct DiffInstruction {
        /// Where it is in A.
        pub a: Option<DiffPlace>,
        /// Where it is in B.
        pub b: Option<DiffPlace>,
        /// How they relate: `edited` has another operand or a like instruction in its place.
        #[napi(ts_type = "'same' | 'edited' | 'removed' | 'added'")]
        pub kind: String,
        /// How its samples changed.
        pub change: DiffChange,
        /// Cost apart from count.
        pub factors: DiffFactors,
    }

    /// An instruction on one side.
    pub struct DiffPlace {
        /// First byte.
        pub address: f64,
        /// Mnemonic and operands.
        pub text: String,
        /// Source file.
        pub file: Option<String>,
        /// Its line, from 1.
        pub line: Option<u32>,
    }
}
