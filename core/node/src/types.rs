//! The shapes that JavaScript sees: plain objects, one for each type of `dwell_query::answer`. Numbers are doubles
//! (exact up to 2^53), a missing value is `null`. A listing's keys are those of `dwell annotate --json`, a contract.

use std::collections::BTreeMap;

use napi_derive::napi;

use crate::mirror::{Mirror, mirror};

/// What `Dwell.open` needs.
#[napi(object)]
pub struct OpenOptions {
    /// The profile database's folder.
    pub database: String,
    /// Folders with separate debug files, beside the system's.
    pub debug_dirs: Option<Vec<String>>,
    /// Pairs of a folder of sources as the debug information spells it, and where it is here; the first that fits counts.
    #[napi(ts_type = "Array<[string, string]>")]
    pub source_map: Option<Vec<Vec<String>>>,
}

/// What to rank.
#[napi(object)]
pub struct TopRequest {
    /// Selectors of the epochs to merge: ids, names, `latest`, `latest~N`.
    pub epochs: Vec<String>,
    /// One row for each of these; `procedure` unless said.
    #[napi(ts_type = "'procedure' | 'image' | 'line' | 'app'")]
    pub by: Option<String>,
    /// So many of the most costly rows are passed over.
    pub offset: Option<u32>,
    /// Rows at most, after those.
    pub limit: Option<u32>,
    /// By procedure: leave out CPI, file and line, which take long to compute.
    pub bare: Option<bool>,
    /// Only samples of images whose path, file name or id contains this.
    pub image: Option<String>,
    /// By procedure: also where its cycles go.
    pub split: Option<bool>,
}

/// Executions for each entry of what they lie in.
#[napi(object)]
pub struct PerEntry {
    /// How many.
    pub executions: f64,
    /// What is entered.
    #[napi(ts_type = "'loop' | 'procedure'")]
    pub of: String,
}

impl Mirror<PerEntry> for dwell_query::answer::ListingPerEntry {
    fn mirror(self) -> PerEntry {
        PerEntry { executions: self.executions, of: self.of }
    }
}

mirror! {
    /// The database's epochs.
    pub struct EpochList {
        /// Newest last.
        pub epochs: Vec<EpochSummary>,
        /// Files that were skipped, each with its reason.
        pub warnings: Vec<String>,
    }

    /// One epoch in a list.
    pub struct EpochSummary {
        /// Its id.
        pub id: String,
        /// The name a user gave it.
        pub name: Option<String>,
        /// RFC 3339, UTC.
        pub start: String,
        /// RFC 3339, UTC; `null` while it is being collected.
        pub end: Option<String>,
        /// Node name.
        pub host: String,
        /// The processor's marketing name.
        pub cpu: String,
        /// `perf`, `bpf`, `kmod`, `import`.
        pub backend: String,
        /// What was sampled, in words.
        pub scope: String,
        /// By event name.
        pub events: BTreeMap<String, EventSummary>,
        /// What one must know to read it.
        pub notes: Vec<String>,
    }

    /// An event's tallies.
    pub struct EventSummary {
        /// Mean period, in `unit`.
        pub period: f64,
        /// The period's unit.
        #[napi(ts_type = "'cycles' | 'ns' | 'events'")]
        pub unit: String,
        /// Samples stored.
        pub samples: f64,
        /// Samples dropped.
        pub lost: f64,
        /// Times the kernel throttled.
        pub throttled: f64,
        /// Of `samples`, those without an image.
        pub unknown: f64,
        /// Part of the time for which the event counted, 0 to 1. Below 1, events took turns. `null`: not recorded.
        pub running_share: Option<f64>,
    }

    /// Where the time went.
    pub struct Top {
        /// Ids of the epochs that were merged.
        pub epochs: Vec<String>,
        /// Samples in all.
        pub total: BTreeMap<String, f64>,
        /// Most costly first.
        pub rows: Vec<TopRow>,
        /// Rows beyond the limit.
        pub omitted_rows: u32,
        /// What one must know to read it.
        pub notes: Vec<String>,
    }

    /// A row of `Top`; which keys are not `null` depends on what it is by.
    pub struct TopRow {
        /// By procedure: what `listing` takes, unique among the procedures.
        pub id: Option<String>,
        /// By procedure: the linkage name, or `0x…` where there is no symbol.
        pub procedure: Option<String>,
        /// By procedure: as the programmer wrote it.
        pub demangled: Option<String>,
        /// By procedure and image: the image's path.
        pub image: Option<String>,
        /// By procedure and image: its id.
        pub build_id: Option<String>,
        /// By line and, where known, by procedure: the source file …
        pub file: Option<String>,
        /// … and its line, from 1.
        pub line: Option<u32>,
        /// By application: its executable's name.
        pub app: Option<String>,
        /// By application: which execution of it.
        pub instance: Option<u32>,
        /// By event.
        pub samples: BTreeMap<String, f64>,
        /// Of the time samples, 0 to 1.
        pub share: f64,
        /// This row's and all rows' before it.
        pub cumulative_share: f64,
        /// Estimated cycles; `null` where the clock is unknown.
        pub cycles: Option<f64>,
        /// The kind of the scale of its executions, where it was analysed.
        #[napi(ts_type = "'absolute' | 'program' | 'procedure' | null")]
        pub scale: Option<String>,
        /// Cycles per instruction; `null` unless the scale is absolute.
        pub cpi: Option<f64>,
        /// The least that it can be at 90 % …
        pub cpi_min: Option<f64>,
        /// … and the most; `null`: nothing bounds it.
        pub cpi_max: Option<f64>,
        /// Where its cycles go, where that was asked for and is known.
        pub split: Option<CycleSplit>,
    }

    /// Parts of a procedure's cycles (DCPI Figure 4 in three numbers). Their sum is 1, up to the error of sampling.
    pub struct CycleSplit {
        /// Issuing instructions.
        pub execution: f64,
        /// Stalls that follow from the instructions alone.
        pub r#static: f64,
        /// Stalls that do not: caches, mispredictions, …
        pub dynamic: f64,
    }

    /// One procedure's instructions with their costs: `dwell annotate --json`.
    pub struct Listing {
        /// Version of this answer's shape.
        pub schema: u32,
        /// Where the procedure lies.
        pub image: ListingImage,
        /// Which it is.
        pub procedure: ListingProcedure,
        /// The epoch's id (several merged: joined by `+`).
        pub epoch: String,
        /// Name of the machine model that was used.
        #[napi(js_name = "machine_model")]
        pub machine_model: String,
        /// By event name.
        pub period: BTreeMap<String, Period>,
        /// The event that measures time here.
        #[napi(js_name = "time_event")]
        pub time_event: String,
        /// Cycles between two time samples; `null` where the clock is unknown.
        #[napi(js_name = "period_cycles")]
        pub period_cycles: Option<f64>,
        /// What is known of the scale of executions.
        pub scale: ListingScale,
        /// By ascending address.
        pub blocks: Vec<ListingBlock>,
        /// By ascending address.
        pub instructions: Vec<ListingInstruction>,
        /// Text of the source lines named above as it was when it was built, by file and line.
        #[napi(js_name = "source_lines")]
        pub source_lines: BTreeMap<String, BTreeMap<String, String>>,
        /// What one must know to read it.
        pub notes: Vec<String>,
    }

    /// See `Listing`.
    pub struct ListingImage {
        /// Path.
        pub path: String,
        /// Image id.
        #[napi(js_name = "build_id")]
        pub build_id: String,
        /// `x86_64`, `aarch64`, `riscv64`.
        pub arch: String,
    }

    /// See `Listing`.
    pub struct ListingProcedure {
        /// Linkage name.
        pub name: String,
        /// As the programmer wrote it.
        pub demangled: String,
        /// First byte.
        pub address: f64,
        /// Size in bytes.
        pub size: f64,
        /// Its samples by event.
        pub samples: BTreeMap<String, f64>,
        /// Of all time samples of the epoch, 0 to 1.
        pub share: f64,
    }

    /// What is known of the scale of a procedure's executions.
    pub struct ListingScale {
        /// `absolute`: executions are numbers; `program`: ratios between procedures of the program are known; `procedure`: ratios within
        /// the procedure.
        #[napi(ts_type = "'absolute' | 'program' | 'procedure'")]
        pub kind: String,
        /// What that rests on, in words.
        pub evidence: Vec<String>,
    }

    /// A sampling period.
    pub struct Period {
        /// Mean.
        pub value: f64,
        /// Its unit.
        #[napi(ts_type = "'cycles' | 'ns' | 'events'")]
        pub unit: String,
    }

    /// See `Listing`.
    pub struct ListingBlock {
        /// First byte.
        pub address: f64,
        /// Executions over the sampling period, up to what the scale leaves open.
        pub frequency: Option<f64>,
        /// Executions over the epoch; `null` unless the scale is absolute.
        pub executions: Option<f64>,
        /// The 90 % interval of the same …
        #[napi(js_name = "executions_min")]
        pub executions_min: Option<f64>,
        /// … `null` likewise.
        #[napi(js_name = "executions_max")]
        pub executions_max: Option<f64>,
        /// Executions up to what the scale leaves open: only their ratios mean something.
        #[napi(js_name = "executions_relative")]
        pub executions_relative: Option<f64>,
        /// Executions for each entry of what the block lies in.
        #[napi(js_name = "per_entry")]
        pub per_entry: Option<PerEntry>,
        /// How far to trust them.
        #[napi(ts_type = "'low' | 'medium' | 'high'")]
        pub confidence: String,
        /// Measured cycles per instruction; `null` unless the scale is absolute.
        pub cpi: Option<f64>,
        /// The 90 % interval of the same; without an absolute scale, the least that is possible.
        #[napi(js_name = "cpi_min")]
        pub cpi_min: f64,
        /// `null`: nothing bounds it.
        #[napi(js_name = "cpi_max")]
        pub cpi_max: Option<f64>,
        /// The same without dynamic stalls.
        #[napi(js_name = "best_case_cpi")]
        pub best_case_cpi: f64,
        /// Where control goes next.
        pub successors: Vec<ListingSuccessor>,
    }

    /// See `ListingBlock`.
    pub struct ListingSuccessor {
        /// Address of the block.
        pub to: f64,
        /// As for blocks.
        pub frequency: Option<f64>,
        /// As for blocks.
        pub executions: Option<f64>,
        /// As for blocks.
        #[napi(js_name = "executions_relative")]
        pub executions_relative: Option<f64>,
    }

    /// See `Listing`.
    pub struct ListingInstruction {
        /// First byte.
        pub address: f64,
        /// Mnemonic and operands.
        pub text: String,
        /// Source file of the innermost inlined call.
        pub file: Option<String>,
        /// Its line, from 1.
        pub line: Option<u32>,
        /// By event name, where they landed; absent events have none.
        pub samples: BTreeMap<String, f64>,
        /// Time samples during which it was at the head of the machine.
        #[napi(js_name = "head_samples")]
        pub head_samples: f64,
        /// Executions over the epoch; `null` unless the scale is absolute.
        pub executions: Option<f64>,
        /// As for blocks.
        #[napi(js_name = "executions_min")]
        pub executions_min: Option<f64>,
        /// As for blocks.
        #[napi(js_name = "executions_max")]
        pub executions_max: Option<f64>,
        /// As for blocks.
        #[napi(js_name = "executions_relative")]
        pub executions_relative: Option<f64>,
        /// Cycles at the head of the machine, per execution; `null` unless the scale is absolute.
        pub cpi: Option<f64>,
        /// As for blocks.
        #[napi(js_name = "cpi_min")]
        pub cpi_min: f64,
        /// As for blocks.
        #[napi(js_name = "cpi_max")]
        pub cpi_max: Option<f64>,
        /// The least of them.
        #[napi(js_name = "issue_cycles_min")]
        pub issue_cycles_min: f64,
        /// Cycles by which it was faster than the model's best case, unexplained; 0 where it was not.
        #[napi(js_name = "gain_cycles")]
        pub gain_cycles: f64,
        /// How far to trust them.
        #[napi(ts_type = "'low' | 'medium' | 'high'")]
        pub confidence: String,
        /// Why it took longer.
        pub stalls: Vec<ListingStall>,
        /// Time in the kernel on its behalf: beside its own cycles, no part of `cpi`.
        pub kernel: Option<ListingKernel>,
        /// Registers that the text names and that it reads, with who wrote them.
        pub operands: Vec<ListingOperand>,
    }

    /// See `ListingInstruction`.
    pub struct ListingOperand {
        /// The register, as the text spells it.
        pub text: String,
        /// Addresses of the instructions that may have written it last, ascending.
        pub writers: Vec<f64>,
    }

    /// See `ListingInstruction`.
    pub struct ListingKernel {
        /// `page-fault`, or `system`: a call or an interrupt.
        pub cause: String,
        /// The cause's name for people.
        pub label: String,
        /// The cause's letter in the bubbles of a listing.
        pub letter: String,
        /// Time samples in the kernel.
        pub samples: f64,
        /// Cycles per execution; `null` unless the scale is absolute.
        pub cycles: Option<f64>,
    }

    /// See `ListingInstruction`.
    pub struct ListingStall {
        /// Whether it follows from the instructions alone.
        #[napi(ts_type = "'static' | 'dynamic'")]
        pub kind: String,
        /// `d-cache-miss`, `branch-mispredict`, …
        pub cause: String,
        /// The cause's name for people.
        pub label: String,
        /// The cause's letter in the bubbles of a listing.
        pub letter: String,
        /// Cycles per execution, at least …
        #[napi(js_name = "cycles_min")]
        pub cycles_min: f64,
        /// … and at most. Of a dynamic stall, unless the scale is absolute, that is what it would be if `executions_relative` were
        /// absolute: no bound.
        #[napi(js_name = "cycles_max")]
        pub cycles_max: f64,
        /// Of the instruction's time, at least …
        #[napi(js_name = "share_min")]
        pub share_min: f64,
        /// … and at most, 0 to 1.
        #[napi(js_name = "share_max")]
        pub share_max: f64,
        /// Address of the instruction to blame.
        #[napi(js_name = "culprit_address")]
        pub culprit_address: Option<f64>,
        /// Of a `d-cache-miss`: the levels that alone can explain it, nearest first; nearer ones cannot.
        #[napi(ts_type = "Array<'L2' | 'LLC' | 'DRAM'>")]
        pub levels: Vec<String>,
        /// The same levels with what each would have to do.
        pub sources: Vec<ListingSource>,
    }

    /// See `ListingStall`.
    pub struct ListingSource {
        /// Where the data may have come from.
        #[napi(ts_type = "'l2' | 'last-level' | 'memory'")]
        pub level: String,
        /// The part of executions whose data must have come from there, were it the only one; `null` unless the scale is absolute.
        pub part: Option<f64>,
    }

    /// The costs of one source file's lines.
    pub struct FileCosts {
        /// Ids of the epochs that were merged.
        pub epochs: Vec<String>,
        /// How the file as it is relates to the file as it was built.
        #[napi(ts_type = "'fresh' | 'mapped' | 'stale' | 'unchecked'")]
        pub source: String,
        /// Ascending, only lines with samples.
        pub lines: Vec<LineCost>,
        /// Procedures that begin in this file and have samples, by ascending line.
        pub procedures: Vec<ProcedureCost>,
        /// Lines that were edited since the program was built, ascending.
        pub stale: Vec<StaleLine>,
        /// The programs whose samples these are.
        pub programs: Vec<Program>,
        /// What one must know to read it.
        pub notes: Vec<String>,
    }

    /// A line whose text is not what was sampled.
    pub struct StaleLine {
        /// Of the file as it is now, from 1.
        pub line: u32,
        /// What it had of the time samples before the edit, 0 to 1.
        pub share: f64,
    }

    /// A program that a file was compiled into.
    pub struct Program {
        /// Where it lies.
        pub path: String,
        /// What lies there now was built since, and no sample is of it.
        pub rebuilt: bool,
    }

    /// One source line's cost, inlined copies included.
    pub struct LineCost {
        /// From 1.
        pub line: u32,
        /// By event name.
        pub samples: BTreeMap<String, f64>,
        /// Of the epoch's time samples, 0 to 1.
        pub share: f64,
        /// Cycles over the epoch; `null` where the clock is unknown.
        pub cycles: Option<f64>,
        /// CPU time over the epoch in seconds; `null`: not known.
        pub seconds: Option<f64>,
        /// The least that is known of the scale of its executions.
        #[napi(ts_type = "'absolute' | 'program' | 'procedure'")]
        pub scale: String,
        /// Executions of the line's most executed instruction; `null` unless the scale is absolute.
        pub executions: Option<f64>,
        /// The 90 % interval of the same …
        pub executions_min: Option<f64>,
        /// … `null` likewise.
        pub executions_max: Option<f64>,
        /// Executions of its most executed instruction for each entry of what that lies in.
        pub per_entry: Option<PerEntry>,
        /// Cycles per instruction; `null` unless the scale is absolute.
        pub cpi: Option<f64>,
        /// The 90 % interval of the same; without an absolute scale, the least that is possible.
        pub cpi_min: f64,
        /// `null`: nothing bounds it.
        pub cpi_max: Option<f64>,
        /// Cycles per instruction without dynamic stalls: the model's.
        pub best_case_cpi: Option<f64>,
        /// How far to trust them.
        #[napi(ts_type = "'low' | 'medium' | 'high'")]
        pub confidence: String,
        /// Leading causes of lost cycles, most costly first.
        pub culprits: Vec<LineCulprit>,
        /// The same causes, those that cannot be told apart together, most costly first.
        pub ties: Vec<LineTie>,
        /// `IMAGE:NAME` of the procedures the line's instructions lie in, most samples first.
        pub procedures: Vec<String>,
    }

    /// Who is to blame for a line's lost cycles.
    pub struct LineCulprit {
        /// Whether it follows from the instructions alone.
        #[napi(ts_type = "'static' | 'dynamic'")]
        pub kind: String,
        /// As in `ListingStall`.
        pub cause: String,
        /// The cause's name for people.
        pub label: String,
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

    /// Causes that may explain the same lost cycles of a line, and that cannot be told apart.
    pub struct LineTie {
        /// What the line waits for: `waits for memory (D-cache or DTLB miss)`.
        pub text: String,
        /// Indices of its causes among the line's culprits, the likeliest first.
        pub culprits: Vec<u32>,
        /// Of the line's time that they explain together at most, 0 to 1.
        pub share_max: f64,
        /// Cycles over the epoch, at least …
        pub cycles_min: Option<f64>,
        /// … and at most.
        pub cycles_max: Option<f64>,
    }

    /// One procedure's cost, for the line it begins at.
    pub struct ProcedureCost {
        /// `IMAGE:NAME`, which names it to `listing`.
        pub id: String,
        /// As the programmer wrote it.
        pub demangled: String,
        /// Line it begins at, from 1.
        pub line: u32,
        /// By event name.
        pub samples: BTreeMap<String, f64>,
        /// Of the epoch's time samples, 0 to 1.
        pub share: f64,
        /// Cycles; `null` where the clock is unknown.
        pub cycles: Option<f64>,
        /// CPU time in seconds; `null`: not known.
        pub seconds: Option<f64>,
        /// The kind of the scale of its executions.
        #[napi(ts_type = "'absolute' | 'program' | 'procedure'")]
        pub scale: String,
        /// Cycles per instruction; `null` unless the scale is absolute.
        pub cpi: Option<f64>,
        /// The 90 % interval of the same; without an absolute scale, the least that is possible.
        pub cpi_min: f64,
        /// `null`: nothing bounds it.
        pub cpi_max: Option<f64>,
        /// Cycles per instruction without dynamic stalls: the model's.
        pub best_case_cpi: Option<f64>,
    }
}
