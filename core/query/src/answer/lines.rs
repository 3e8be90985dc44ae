//! What an editor asks of one source file: a line instruction by instruction, and what changed between two profiles.

use serde::Serialize;

use super::{DiffChange, DiffFactors, DiffSide, ListingSource};

/// One source line's instructions, apart by where its code ended up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineDetail {
    /// Version of this answer's shape.
    pub schema: u32,
    /// Ids of the epochs that were merged.
    pub epochs: Vec<String>,
    /// The line, from 1, of the file as it is now.
    pub line: u32,
    /// Most samples first.
    pub places: Vec<LinePlace>,
    /// Number of places that were left out.
    pub omitted_places: usize,
}

/// One procedure that the line was compiled into, by one chain of inlined calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinePlace {
    /// `IMAGE:NAME`, which names it to `annotate`.
    pub procedure: String,
    /// As the programmer wrote it.
    pub demangled: String,
    /// The calls that were inlined to get there, innermost first; empty: the line is the procedure's own.
    pub callers: Vec<LineCaller>,
    /// Of the epoch's time samples, 0 to 1.
    pub share: f64,
    /// The kind of the scale of its executions, as in [`ListingScale`](super::ListingScale).
    pub scale: String,
    /// Cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// The 90 % interval of the same; without an absolute scale, the least that is possible.
    pub cpi_min: f64,
    /// `None`: nothing bounds it.
    pub cpi_max: Option<f64>,
    /// By ascending address.
    pub instructions: Vec<LineInstruction>,
    /// Number of instructions that were left out, those that cost least.
    pub omitted_instructions: usize,
}

/// A call that was inlined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LineCaller {
    /// Who calls, as the source spells it.
    pub function: Option<String>,
    /// The call's source file …
    pub file: Option<String>,
    /// … and its line as it was built, from 1.
    pub line: Option<u32>,
}

/// One instruction of the line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineInstruction {
    /// First byte.
    pub address: u64,
    /// Mnemonic and operands.
    pub text: String,
    /// Time samples during which it was at the head of the machine.
    pub head_samples: f64,
    /// Executions over the epoch; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// Executions up to what the scale leaves open.
    pub executions_relative: Option<f64>,
    /// Cycles at the head of the machine, per execution; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// As for places.
    pub cpi_min: f64,
    /// As for places.
    pub cpi_max: Option<f64>,
    /// `low`, `medium`, `high`.
    pub confidence: String,
    /// Why it took longer, static causes first.
    pub stalls: Vec<LineStall>,
}

/// See [`LineInstruction`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineStall {
    /// `static` or `dynamic`.
    pub kind: String,
    /// As in [`ListingStall`](super::ListingStall).
    pub cause: String,
    /// The cause's name for people: `D-cache miss`.
    pub label: &'static str,
    /// Cycles per execution, at least …
    pub cycles_min: f64,
    /// … and at most; `None` of a dynamic stall unless the scale is absolute.
    pub cycles_max: Option<f64>,
    /// Of the instruction's time, at least …
    pub share_min: f64,
    /// … and at most, 0 to 1.
    pub share_max: f64,
    /// As in [`ListingStall`](super::ListingStall).
    pub levels: Vec<String>,
    /// As in [`ListingStall`](super::ListingStall).
    pub sources: Vec<ListingSource>,
    /// Address of the instruction to blame …
    pub culprit_address: Option<u64>,
    /// … its text …
    pub culprit_text: Option<String>,
    /// … its source file …
    pub file: Option<String>,
    /// … and its line, from 1; in the file that was asked about, as it is now.
    pub line: Option<u32>,
}

/// What changed in one source file between two profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileChanges {
    /// Version of this answer's shape.
    pub schema: u32,
    /// What changed …
    pub a: DiffSide,
    /// … into what.
    pub b: DiffSide,
    /// B's exposure over A's.
    pub exposure: f64,
    /// Ascending, only lines with samples on either side; numbers are those of the file as it is now.
    pub lines: Vec<LineChange>,
    /// Procedures that begin in the file, by ascending line.
    pub procedures: Vec<ProcedureChange>,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

/// One line's change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineChange {
    /// From 1.
    pub line: u32,
    /// How its samples changed, counted at the lines that were waited for.
    #[serde(flatten)]
    pub change: DiffChange,
    /// Cost apart from count.
    #[serde(flatten)]
    pub factors: DiffFactors,
}

/// One procedure's change, for the line it begins at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcedureChange {
    /// Linkage name.
    pub procedure: String,
    /// Line it begins at, from 1.
    pub line: u32,
    /// How its samples changed.
    #[serde(flatten)]
    pub change: DiffChange,
    /// Cost apart from count.
    #[serde(flatten)]
    pub factors: DiffFactors,
}
