//! `dwell annotate --json`: one procedure, instruction by instruction.

use std::collections::BTreeMap;

use serde::Serialize;

use super::EventCounts;

/// `dwell annotate --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    pub machine_model: String,
    /// By event name.
    pub period: BTreeMap<String, Period>,
    /// The event that measures time here (`cycles` or `cpu-clock`).
    pub time_event: String,
    /// Cycles between two time samples; `None` where the clock is unknown.
    pub period_cycles: Option<f64>,
    /// What is known of the scale of executions.
    pub scale: ListingScale,
    /// By ascending address.
    pub blocks: Vec<ListingBlock>,
    /// By ascending address.
    pub instructions: Vec<ListingInstruction>,
    /// Text of the lines that instructions name, by file and line, as it was when the samples were taken; files that
    /// are gone or have changed without a snapshot are absent.
    pub source_lines: BTreeMap<String, BTreeMap<u32, String>>,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

/// See [`Listing`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingImage {
    /// Path.
    pub path: String,
    /// Image id.
    pub build_id: String,
    /// `x86_64`, `aarch64`, `riscv64`.
    pub arch: String,
}

/// See [`Listing`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingProcedure {
    /// Linkage name.
    pub name: String,
    /// As the programmer wrote it.
    pub demangled: String,
    /// First byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Its samples by event.
    pub samples: EventCounts,
    /// Of all time samples of the epoch, 0 to 1.
    pub share: f64,
}

/// What is known of the scale of a procedure's executions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingScale {
    /// `absolute`: executions are numbers; `program`: only ratios between procedures of the program with this kind or `absolute` are
    /// known; `procedure`: only ratios within the procedure.
    pub kind: String,
    /// What that rests on, in words.
    pub evidence: Vec<String>,
}

/// A ratio that needs no scale: executions for each entry of what they lie in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingPerEntry {
    /// How many.
    pub executions: f64,
    /// What is entered: `loop`, the innermost one, or `procedure`.
    pub of: String,
}

/// A sampling period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Period {
    /// Mean.
    pub value: u64,
    /// `cycles`, `ns` or `events`.
    pub unit: String,
}

/// See [`Listing`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingBlock {
    /// First byte.
    pub address: u64,
    /// Executions over the sampling period, up to what the scale leaves open.
    pub frequency: Option<f64>,
    /// Executions over the epoch; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// The 90 % interval of the same …
    pub executions_min: Option<f64>,
    /// … `None` likewise.
    pub executions_max: Option<f64>,
    /// Executions up to what the scale leaves open: only their ratios mean something.
    pub executions_relative: Option<f64>,
    /// Executions for each entry of what the block lies in.
    pub per_entry: Option<ListingPerEntry>,
    /// `low`, `medium`, `high`.
    pub confidence: String,
    /// Measured cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// The 90 % interval of the same; without an absolute scale, the least that is possible.
    pub cpi_min: f64,
    /// `None`: nothing bounds it.
    pub cpi_max: Option<f64>,
    /// The same without dynamic stalls.
    pub best_case_cpi: f64,
    /// Where control goes next.
    pub successors: Vec<ListingSuccessor>,
}

/// See [`ListingBlock`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingSuccessor {
    /// Address of the block.
    pub to: u64,
    /// As for blocks.
    pub frequency: Option<f64>,
    /// As for blocks.
    pub executions: Option<f64>,
    /// As for blocks.
    pub executions_relative: Option<f64>,
}

impl Listing {
    /// Whether it has instructions, not only the places that a profile named of an image that is not at hand.
    pub fn has_code(&self) -> bool {
        self.instructions.iter().any(|i| !i.text.is_empty())
    }
}

/// See [`Listing`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingInstruction {
    /// First byte; an offset where the image is not at hand, and 0 where the profile gave no address.
    pub address: u64,
    /// Mnemonic and operands; empty where the image is not at hand.
    pub text: String,
    /// Source file of the innermost inlined call, as the debug information spells it.
    pub file: Option<String>,
    /// Its line, from 1.
    pub line: Option<u32>,
    /// By event name, where they landed; absent events have none.
    pub samples: EventCounts,
    /// Time samples during which it was at the head of the machine: on an out-of-order processor a sample lands on a
    /// later instruction than the one that was waited for. CPI and stalls are made of these.
    pub head_samples: f64,
    /// Executions over the epoch; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// As for blocks.
    pub executions_min: Option<f64>,
    /// As for blocks.
    pub executions_max: Option<f64>,
    /// As for blocks.
    pub executions_relative: Option<f64>,
    /// Cycles at the head of the machine, per execution; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// As for blocks.
    pub cpi_min: f64,
    /// As for blocks.
    pub cpi_max: Option<f64>,
    /// The least of them.
    pub issue_cycles_min: f64,
    /// Cycles by which it was faster than the model's best case, unexplained; 0 where it was not.
    pub gain_cycles: f64,
    /// `low`, `medium`, `high`.
    pub confidence: String,
    /// Why it took longer.
    pub stalls: Vec<ListingStall>,
    /// Time in the kernel on its behalf: beside its own cycles, no part of `cpi`.
    pub kernel: Option<ListingKernel>,
    /// Registers that the text names and that it reads, with who wrote them; for editors, no part of the JSON.
    #[serde(skip)]
    pub operands: Vec<ListingOperand>,
}

/// See [`ListingInstruction`].
#[derive(Clone, Debug, PartialEq)]
pub struct ListingOperand {
    /// The register, as the text spells it.
    pub text: String,
    /// Addresses of the instructions that may have written it last, ascending.
    pub writers: Vec<u64>,
}

/// See [`ListingInstruction`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingKernel {
    /// `page-fault`, or `system`: a call or an interrupt.
    pub cause: String,
    /// The cause's name for people: `D-cache miss`.
    pub label: &'static str,
    /// The cause's letter in the bubbles of a listing; for editors, no part of the JSON.
    #[serde(skip)]
    pub letter: char,
    /// Time samples in the kernel.
    pub samples: u64,
    /// Cycles per execution; `None` unless the scale is absolute.
    pub cycles: Option<f64>,
}

/// See [`ListingInstruction`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingStall {
    /// `static` or `dynamic`.
    pub kind: String,
    /// `d-cache-miss`, `branch-mispredict`, …
    pub cause: String,
    /// The cause's name for people: `D-cache miss`.
    pub label: &'static str,
    /// The cause's letter in the bubbles of a listing; for editors, no part of the JSON.
    #[serde(skip)]
    pub letter: char,
    /// Cycles per execution, at least …
    pub cycles_min: f64,
    /// … and at most. Of a dynamic stall, unless the scale is absolute, that is what it would be if `executions_relative` were
    /// absolute: no bound.
    pub cycles_max: f64,
    /// Of the instruction's time, at least …
    pub share_min: f64,
    /// … and at most, 0 to 1.
    pub share_max: f64,
    /// Address of the instruction to blame.
    pub culprit_address: Option<u64>,
    /// Of a `d-cache-miss`: the levels that alone can explain it, nearest first: `L2`, `LLC`, `DRAM`; nearer ones cannot.
    pub levels: Vec<String>,
    /// These levels, each with the accesses that would explain the stall.
    pub sources: Vec<ListingSource>,
}

/// See [`ListingStall`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListingSource {
    /// `l2`, `last-level`, `memory`.
    pub level: String,
    /// The part of executions whose data must have come from there, were it the only one; `None` unless the scale is absolute.
    pub part: Option<f64>,
}
