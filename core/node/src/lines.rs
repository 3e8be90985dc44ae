//! The shapes of a line and of a file on both sides of a change: one for each type of `dwell_query::answer`, and how they are made of it. Field by field;
//! nothing decided here.

use dwell_query::answer;
use napi_derive::napi;

use crate::convert::{all, number, rows};

/// One source line's instructions, apart by where its code ended up.
#[napi(object, use_nullable = true)]
pub struct LineDetail {
    /// Ids of the epochs that were merged.
    pub epochs: Vec<String>,
    /// From 1, of the file as it is now.
    pub line: u32,
    /// Most samples first.
    pub places: Vec<LinePlace>,
    /// Places beyond the most that are told.
    pub omitted_places: u32,
}

impl From<answer::LineDetail> for LineDetail {
    fn from(a: answer::LineDetail) -> Self {
        LineDetail {
            epochs: a.epochs,
            line: a.line,
            places: all(a.places),
            omitted_places: rows(a.omitted_places),
        }
    }
}

/// One procedure that the line was compiled into, by one chain of inlined calls.
#[napi(object, use_nullable = true)]
pub struct LinePlace {
    /// What `listing` takes.
    pub procedure: String,
    /// As the programmer wrote it.
    pub demangled: String,
    /// The calls that were inlined to get there, innermost first; empty: the line is the procedure's own.
    pub callers: Vec<LineCaller>,
    /// Of the epoch's time samples, 0 to 1.
    pub share: f64,
    /// The kind of the scale of its executions.
    #[napi(ts_type = "'absolute' | 'program' | 'procedure'")]
    pub scale: String,
    /// Cycles per instruction; `null` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// The 90 % interval of the same; without an absolute scale, the least that is possible.
    pub cpi_min: f64,
    /// `null`: nothing bounds it.
    pub cpi_max: Option<f64>,
    /// By ascending address.
    pub instructions: Vec<LineInstruction>,
    /// Instructions that cost least, beyond the most that are told.
    pub omitted_instructions: u32,
}

impl From<answer::LinePlace> for LinePlace {
    fn from(a: answer::LinePlace) -> Self {
        LinePlace {
            procedure: a.procedure,
            demangled: a.demangled,
            callers: all(a.callers),
            share: a.share,
            scale: a.scale,
            cpi: a.cpi,
            cpi_min: a.cpi_min,
            cpi_max: a.cpi_max,
            instructions: all(a.instructions),
            omitted_instructions: rows(a.omitted_instructions),
        }
    }
}

/// A call that was inlined.
#[napi(object, use_nullable = true)]
pub struct LineCaller {
    /// Who calls, as the source spells it.
    pub function: Option<String>,
    /// The call's source file …
    pub file: Option<String>,
    /// … and its line as it was built, from 1.
    pub line: Option<u32>,
}

impl From<answer::LineCaller> for LineCaller {
    fn from(a: answer::LineCaller) -> Self {
        LineCaller { function: a.function, file: a.file, line: a.line }
    }
}

/// One instruction of the line.
#[napi(object, use_nullable = true)]
pub struct LineInstruction {
    /// First byte.
    pub address: f64,
    /// Mnemonic and operands.
    pub text: String,
    /// Time samples during which it was at the head of the machine.
    pub head_samples: f64,
    /// Executions over the epoch; `null` unless the scale is absolute.
    pub executions: Option<f64>,
    /// Executions up to what the scale leaves open.
    pub executions_relative: Option<f64>,
    /// Cycles at the head of the machine, per execution; `null` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// As for places.
    pub cpi_min: f64,
    /// As for places.
    pub cpi_max: Option<f64>,
    /// How far to trust them.
    #[napi(ts_type = "'low' | 'medium' | 'high'")]
    pub confidence: String,
    /// Why it took longer, static causes first.
    pub stalls: Vec<LineStall>,
}

impl From<answer::LineInstruction> for LineInstruction {
    fn from(a: answer::LineInstruction) -> Self {
        LineInstruction {
            address: number(a.address),
            text: a.text,
            head_samples: a.head_samples,
            executions: a.executions,
            executions_relative: a.executions_relative,
            cpi: a.cpi,
            cpi_min: a.cpi_min,
            cpi_max: a.cpi_max,
            confidence: a.confidence,
            stalls: all(a.stalls),
        }
    }
}

/// See `LineInstruction`.
#[napi(object, use_nullable = true)]
pub struct LineStall {
    /// Whether it follows from the instructions alone.
    #[napi(ts_type = "'static' | 'dynamic'")]
    pub kind: String,
    /// As in `ListingStall`.
    pub cause: String,
    /// The cause's name for people.
    pub label: String,
    /// Cycles per execution, at least …
    pub cycles_min: f64,
    /// … and at most; `null` of a dynamic stall unless the scale is absolute.
    pub cycles_max: Option<f64>,
    /// Of the instruction's time, at least …
    pub share_min: f64,
    /// … and at most, 0 to 1.
    pub share_max: f64,
    /// As in `ListingStall`.
    #[napi(ts_type = "Array<'L2' | 'LLC' | 'DRAM'>")]
    pub levels: Vec<String>,
    /// As in `ListingStall`.
    pub sources: Vec<crate::types::ListingSource>,
    /// Address of the instruction to blame …
    pub culprit_address: Option<f64>,
    /// … its text …
    pub culprit_text: Option<String>,
    /// … its source file …
    pub file: Option<String>,
    /// … and its line, from 1; in the file that was asked about, as it is now.
    pub line: Option<u32>,
}

impl From<answer::LineStall> for LineStall {
    fn from(a: answer::LineStall) -> Self {
        LineStall {
            kind: a.kind,
            cause: a.cause,
            label: a.label.to_owned(),
            cycles_min: a.cycles_min,
            cycles_max: a.cycles_max,
            share_min: a.share_min,
            share_max: a.share_max,
            levels: a.levels,
            sources: all(a.sources),
            culprit_address: a.culprit_address.map(number),
            culprit_text: a.culprit_text,
            file: a.file,
            line: a.line,
        }
    }
}

/// What changed in one source file between two profiles.
#[napi(object, use_nullable = true)]
pub struct FileChanges {
    /// What changed …
    pub a: crate::diff::DiffSide,
    /// … into what.
    pub b: crate::diff::DiffSide,
    /// B's exposure over A's.
    pub exposure: f64,
    /// Ascending; numbers are those of the file as it is now.
    pub lines: Vec<LineChange>,
    /// Those that begin in the file, by ascending line.
    pub procedures: Vec<ProcedureChange>,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

impl From<answer::FileChanges> for FileChanges {
    fn from(a: answer::FileChanges) -> Self {
        FileChanges {
            a: a.a.into(),
            b: a.b.into(),
            exposure: a.exposure,
            lines: all(a.lines),
            procedures: all(a.procedures),
            notes: a.notes,
        }
    }
}

/// One line's change.
#[napi(object, use_nullable = true)]
pub struct LineChange {
    /// From 1.
    pub line: u32,
    /// How its samples changed.
    pub change: crate::diff::DiffChange,
    /// Cost apart from count.
    pub factors: crate::diff::DiffFactors,
}

impl From<answer::LineChange> for LineChange {
    fn from(a: answer::LineChange) -> Self {
        LineChange { line: a.line, change: a.change.into(), factors: a.factors.into() }
    }
}

/// One procedure's change, for the line it begins at.
#[napi(object, use_nullable = true)]
pub struct ProcedureChange {
    /// Linkage name.
    pub procedure: String,
    /// Line it begins at, from 1.
    pub line: u32,
    /// How its samples changed.
    pub change: crate::diff::DiffChange,
    /// Cost apart from count.
    pub factors: crate::diff::DiffFactors,
}

impl From<answer::ProcedureChange> for ProcedureChange {
    fn from(a: answer::ProcedureChange) -> Self {
        ProcedureChange {
            procedure: a.procedure,
            line: a.line,
            change: a.change.into(),
            factors: a.factors.into(),
        }
    }
}
