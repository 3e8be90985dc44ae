//! The shapes of a line, and of a file on both sides of a change.

use napi_derive::napi;

use crate::mirror::mirror;

mirror! {
    /// One source line's instructions, apart by where its code ended up.
    pub struct LineDetail {
        /// Ids of the epochs that were merged.
        pub epochs: Vec<String>,
        /// From 1, of the file as it is now.
        pub line: u32,
        /// Most samples first.
        pub places: Vec<LinePlace>,
        /// How many more places the line has.
        pub omitted_places: u32,
    }

    /// One procedure that the line was compiled into, by one chain of inlined calls.
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
        /// How many more instructions the place has; those that cost least are left out.
        pub omitted_instructions: u32,
    }

    /// A call that was inlined.
    pub struct LineCaller {
        /// Who calls, as the source spells it.
        pub function: Option<String>,
        /// The call's source file …
        pub file: Option<String>,
        /// … and its line as it was built, from 1.
        pub line: Option<u32>,
    }

    /// One instruction of the line.
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

    /// See `LineInstruction`.
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

    /// What changed in one source file between two profiles.
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

    /// One line's change.
    pub struct LineChange {
        /// From 1.
        pub line: u32,
        /// How its samples changed.
        pub change: crate::diff::DiffChange,
        /// Cost apart from count.
        pub factors: crate::diff::DiffFactors,
    }

    /// One procedure's change, for the line it begins at.
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
}
