//! The answer of `dwell annotate --json`: one procedure, instruction by instruction.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Confidence, Entered, EventCounts, Level, ScaleKind, StallKind};

/// One procedure with the samples, costs and stalls of each instruction: the root object of `dwell annotate --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Listing {
    /// Version of this answer's JSON schema.
    pub schema: u32,
    /// Image that contains the procedure.
    pub image: ListingImage,
    /// The procedure itself, with its samples.
    pub procedure: ListingProcedure,
    /// Id of the epoch; the ids of several merged epochs are joined by `+`.
    pub epoch: String,
    /// Name of the machine model that was used.
    pub machine_model: String,
    /// Sampling period of each event, by event name.
    pub period: BTreeMap<String, Period>,
    /// The event that measures time here (`cycles` or `cpu-clock`).
    pub time_event: String,
    /// Mean number of cycles between two time samples; `None` if the clock rate is unknown.
    pub period_cycles: Option<f64>,
    /// Mean CPU time in seconds between two time samples; `None` if it is unknown.
    pub period_seconds: Option<f64>,
    /// Scale of the executions: whether they are absolute numbers or ratios only.
    pub scale: ListingScale,
    /// Basic blocks, by ascending address.
    pub blocks: Vec<ListingBlock>,
    /// Instructions, by ascending address.
    pub instructions: Vec<ListingInstruction>,
    /// Text of the source lines that instructions refer to, by file and line, as it was when the samples were taken. A file
    /// that is missing, or has changed without a snapshot, is absent.
    pub source_lines: BTreeMap<String, BTreeMap<u32, String>>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// Image that contains the procedure of a [`Listing`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingImage {
    /// Path of the image's file.
    pub path: String,
    /// Id of the image (its build ID in hex, `kernel`, …).
    pub build_id: String,
    /// Instruction set: `x86_64`, `aarch64` or `riscv64`.
    pub arch: String,
}

/// Procedure that a [`Listing`] shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingProcedure {
    /// Linkage (mangled) name.
    pub name: String,
    /// Demangled name, as the source code spells it.
    pub demangled: String,
    /// Image address of the first byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Samples of the procedure by event name.
    pub samples: EventCounts,
    /// Share of all time samples of the epoch, 0 to 1.
    pub share: f64,
}

/// What is known of the scale of a procedure's executions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingScale {
    /// How far executions can be compared. `absolute`: executions are numbers. `program`: only ratios are known, within the
    /// procedure and to other procedures of the program whose scale is `program` or `absolute`. `procedure`: only ratios
    /// within the procedure are known.
    pub kind: ScaleKind,
    /// Observations that the scale is based on, as text.
    pub evidence: Vec<String>,
}

/// Executions per entry of the enclosing loop or procedure. This ratio is known even when the scale of executions is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingPerEntry {
    /// Executions per entry.
    pub executions: f64,
    /// What is entered: `loop` (the innermost enclosing loop) or `procedure`.
    pub of: Entered,
}

/// A sampling period.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct Period {
    /// Mean period, in units of `unit`.
    pub value: u64,
    /// Unit of the period: `cycles`, `ns` or `events`.
    #[cfg_attr(feature = "typescript", ts(type = "'cycles' | 'ns' | 'events'"))]
    pub unit: String,
}

/// Basic block of a [`Listing`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingBlock {
    /// Image address of the first byte.
    pub address: u64,
    /// Executions divided by the sampling period; without an absolute scale, up to an unknown factor.
    pub frequency: Option<f64>,
    /// Estimated executions in the epoch; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// Lower end of the 90 % interval of `executions`; `None` unless the scale is absolute.
    pub executions_min: Option<f64>,
    /// Upper end of the 90 % interval of `executions`; `None` unless the scale is absolute.
    pub executions_max: Option<f64>,
    /// Executions up to an unknown factor: only ratios between them are meaningful.
    pub executions_relative: Option<f64>,
    /// Executions per entry of the loop or procedure that contains the block.
    pub per_entry: Option<ListingPerEntry>,
    /// How far the estimate can be trusted: `low`, `medium` or `high`.
    pub confidence: Confidence,
    /// Measured cycles per instruction; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible.
    pub cpi_min: f64,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// Cycles per instruction without dynamic stalls, by the machine model.
    pub best_case_cpi: f64,
    /// Blocks that control may go to next.
    pub successors: Vec<ListingSuccessor>,
}

/// Edge from a [`ListingBlock`] to one of its successors.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingSuccessor {
    /// Address of the block that the edge leads to.
    pub to: u64,
    /// Executions of the edge divided by the sampling period, as for blocks.
    pub frequency: Option<f64>,
    /// Executions of the edge; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// Executions of the edge up to an unknown factor, as for blocks.
    pub executions_relative: Option<f64>,
}

impl Listing {
    /// Returns whether the listing contains instructions. If the image is not at hand, it contains only the places that the
    /// profile named.
    pub fn has_code(&self) -> bool {
        self.instructions.iter().any(|i| !i.text.is_empty())
    }
}

/// Instruction of a [`Listing`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingInstruction {
    /// Image address of the first byte. It is an offset in the file if the image is not at hand, and 0 if the profile gave
    /// no address.
    pub address: u64,
    /// Disassembled text: mnemonic and operands; empty if the image is not at hand.
    pub text: String,
    /// Source file of the innermost inlined call, as the debug information spells it.
    pub file: Option<String>,
    /// Line in that file, from 1.
    pub line: Option<u32>,
    /// Samples by event name, counted at the instruction that the interrupt reported; events without samples are absent.
    pub samples: EventCounts,
    /// Time samples during which the instruction was at the head of the queue. They differ from `samples` on an out-of-order
    /// processor, where a sample lands on a later instruction than the one that was waited for. CPI and stalls are computed
    /// from these.
    pub head_samples: f64,
    /// Estimated executions in the epoch; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// Lower end of the 90 % interval of `executions`; `None` unless the scale is absolute.
    pub executions_min: Option<f64>,
    /// Upper end of the 90 % interval of `executions`; `None` unless the scale is absolute.
    pub executions_max: Option<f64>,
    /// Executions up to an unknown factor: only ratios between them are meaningful.
    pub executions_relative: Option<f64>,
    /// Cycles at the head of the queue per execution; `None` unless the scale is absolute.
    pub cpi: Option<f64>,
    /// Lower end of the 90 % interval of `cpi`; without an absolute scale, the least CPI that is possible.
    pub cpi_min: f64,
    /// Upper end of the 90 % interval of `cpi`; `None` if nothing bounds it.
    pub cpi_max: Option<f64>,
    /// Least number of cycles at the head of the queue per execution, by the machine model (DCPI's M).
    pub issue_cycles_min: f64,
    /// Unexplained gain: cycles per execution by which the instruction was faster than the model's best case; 0 if it was
    /// not.
    pub gain_cycles: f64,
    /// How far the estimate can be trusted: `low`, `medium` or `high`.
    pub confidence: Confidence,
    /// Stalls: reasons why the instruction took longer than its best case.
    pub stalls: Vec<ListingStall>,
    /// Time spent in the kernel on behalf of the instruction. It is in addition to the instruction's own cycles and not part
    /// of `cpi`.
    pub kernel: Option<ListingKernel>,
    /// Registers that the text names and the instruction reads, each with the instructions that may have written it.
    pub operands: Vec<ListingOperand>,
}

/// Register that a [`ListingInstruction`] reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingOperand {
    /// The register, as the instruction's text spells it.
    pub text: String,
    /// Addresses of the instructions that may have written the register last, ascending.
    pub writers: Vec<u64>,
}

/// Time in the kernel on behalf of a [`ListingInstruction`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingKernel {
    /// Reason for entering the kernel: `page-fault`, or `system` for a system call or an interrupt.
    pub cause: String,
    /// Name of the cause for users, such as `D-cache miss`.
    pub label: &'static str,
    /// Letter of the cause in the bubbles of a listing.
    pub letter: char,
    /// Number of time samples in the kernel.
    pub samples: u64,
    /// Cycles in the kernel per execution; `None` unless the scale is absolute.
    pub cycles: Option<f64>,
}

/// Stall of a [`ListingInstruction`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingStall {
    /// Whether the code itself causes the stall (`static`) or the execution does (`dynamic`).
    pub kind: StallKind,
    /// Cause in kebab-case: `d-cache-miss`, `branch-mispredict`, …
    pub cause: String,
    /// Name of the cause for users, such as `D-cache miss`.
    pub label: &'static str,
    /// Letter of the cause in the bubbles of a listing.
    pub letter: char,
    /// Least number of cycles per execution that the stall takes.
    pub cycles_min: f64,
    /// Largest number of cycles per execution that the stall may take. For a dynamic stall without an absolute scale this is
    /// no bound: it is the value that would hold if `executions_relative` were absolute.
    pub cycles_max: f64,
    /// Least share of the instruction's time that the stall takes, 0 to 1.
    pub share_min: f64,
    /// Largest share of the instruction's time that the stall may take, 0 to 1.
    pub share_max: f64,
    /// Address of the instruction to blame.
    pub culprit_address: Option<u64>,
    /// For a `d-cache-miss`: the levels that can explain the stall alone, nearest first: `L2`, `LLC`, `DRAM`. Nearer levels
    /// cannot explain it.
    pub levels: Vec<String>,
    /// The same levels, each with the share of accesses that would explain the stall.
    pub sources: Vec<ListingSource>,
}

/// Level of the memory hierarchy that may explain a [`ListingStall`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
pub struct ListingSource {
    /// Level in kebab-case: `l2`, `last-level` or `memory`.
    pub level: Level,
    /// Share of executions whose data must have come from this level if it were the only cause; `None` unless the scale is
    /// absolute.
    pub part: Option<f64>,
}
