//! The result of the analysis of one procedure.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Interval, Scale};

/// Frequency, CPI and stalls of one procedure. It can be stored and read again as JSON, by the version that wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcedureAnalysis {
    /// Basic blocks by ascending address. Together they contain every instruction once.
    pub blocks: Vec<Block>,
    /// Edges of the control-flow graph between blocks.
    pub edges: Vec<Edge>,
    /// The cost of each instruction of the input.
    pub instructions: Vec<InstructionCost>,
    /// Whether the targets of an indirect jump could not be recovered (DCPI §6.1.1, "missing edges").
    pub missing_edges: bool,
    /// Notes for the reader, such as "no estimate: the function has 3 samples".
    pub notes: Vec<String>,
    /// The evidence of frequencies besides cycles.
    pub basis: Basis,
    /// The scale of the frequencies, which says which of them can be compared.
    pub scale: Scale,
}

/// Evidence of frequencies besides the cycles that every procedure has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Basis {
    /// Number of directions of conditional branches in samples' registers.
    pub directions: u64,
    /// Number of transfers of control in path bursts.
    pub steps: f64,
    /// Number of instructions whose executions breakpoints counted.
    pub counted: u64,
    /// Number of samples of retired instructions.
    pub retired: u64,
    /// Number of instructions whose executions were counted while the program ran undisturbed.
    pub absolute: u64,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Indices of its instructions.
    pub instructions: Range<usize>,
    /// Executions divided by the sampling period (DCPI's F), up to the factor that [`ProcedureAnalysis::scale`] leaves
    /// open; `None` if nothing is known.
    pub frequency: Option<f64>,
    /// The 90 % interval of `frequency`; `None` unless the scale is absolute.
    pub frequency_interval: Option<Interval>,
    /// How far to trust `frequency`.
    pub confidence: Confidence,
    /// Cycles per instruction if the scale of `frequency` is right, and never less than the processor needs; `None`
    /// without a frequency, and where the block is too rare for the absence of samples to mean anything.
    pub cpi: Option<f64>,
    /// The 90 % interval of the cycles per instruction. Without an absolute scale its lower bound is what the processor
    /// needs.
    pub cpi_interval: Interval,
    /// Cycles per instruction if there had been no dynamic stall.
    pub best_case_cpi: f64,
    /// Executions per entry of the loop or procedure around it, which are known whatever the scale is.
    pub per_entry: Option<PerEntry>,
    /// Its frequency-equivalence class (DCPI §6.1.2).
    pub class: usize,
}

/// Executions for each time that the loop or procedure around a block is entered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerEntry {
    /// Number of executions per entry.
    pub executions: f64,
    /// What is entered.
    pub entered: Entered,
}

/// What executions per entry refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Entered {
    /// The innermost loop around the block.
    Loop,
    /// The procedure, if the block is in no loop.
    Procedure,
}

impl Entered {
    /// Returns the name in answers: `loop` or `procedure`.
    pub fn name(self) -> &'static str {
        match self {
            Entered::Loop => "loop",
            Entered::Procedure => "procedure",
        }
    }
}

/// An edge between two blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Index of the block that it leaves.
    pub from: usize,
    /// Index of the block that it enters.
    pub to: usize,
    /// Executions divided by the sampling period, as for blocks.
    pub frequency: Option<f64>,
    /// How far to trust `frequency`.
    pub confidence: Confidence,
}

/// The cost of one instruction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstructionCost {
    /// The frequency of its block.
    pub frequency: Option<f64>,
    /// The interval of its block's frequency.
    pub frequency_interval: Option<Interval>,
    /// How far to trust its block's frequency.
    pub confidence: Confidence,
    /// Average cycles per execution during which it was the oldest instruction, if the scale of `frequency` is right;
    /// `None` without a frequency, and where it is less than a slot of the machine: the instruction issued or retired
    /// together with its predecessor.
    pub cpi: Option<f64>,
    /// The 90 % interval of its cycles per execution, as for blocks.
    pub cpi_interval: Interval,
    /// The least cycles that it can take (DCPI's M): 0 if it issues or retires together with its predecessor.
    pub issue_cycles_min: f64,
    /// Cycles of an execution without dynamic stalls. In order: M plus the average of what predecessors leave behind; out
    /// of order: its share of the front end and its static stalls, which add up to the block's best case.
    pub best_case_cycles: f64,
    /// Cycles by which it was faster than that (DCPI Figure 4, "unexplained gain"); 0 if it was not.
    pub gain_cycles: f64,
    /// Time samples during which it was the oldest instruction: those that landed on it or, out of order, after it
    /// (docs/measured.md). They are its cost; over a procedure they add up to its samples.
    pub head_samples: f64,
    /// The causes of its additional cycles, static ones first. Empty if there are none.
    pub stalls: Vec<Stall>,
    /// Time in the kernel on its behalf, if there were such samples.
    pub kernel: Option<KernelTime>,
}

/// Time in the kernel that a user's instruction caused. It is not part of the instruction's CPI.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelTime {
    /// `PageFault` if the instruction accesses memory, otherwise `System`: a call or an interrupt.
    pub cause: Cause,
    /// Number of time samples in the kernel.
    pub samples: u64,
    /// Cycles per execution.
    pub cycles: f64,
}

/// One possible explanation of an instruction's lost cycles. The ranges of several dynamic stalls of one instruction
/// overlap: each may explain up to `cycles_max` of the same cycles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Whether the model shows it, or it is inferred from samples.
    pub kind: StallKind,
    /// The cause that may explain the stall.
    pub cause: Cause,
    /// The least cycles per execution that the cause explains.
    pub cycles_min: f64,
    /// The greatest cycles per execution that the cause may explain.
    pub cycles_max: f64,
    /// Index of the instruction that causes the stall, where one does.
    pub culprit: Option<usize>,
    /// For data that was not in the first-level cache, the levels that it may have come from, nearest first. Each of
    /// these levels can explain the lost cycles by itself; nearer ones cannot, whatever frequency the interval allows.
    /// Empty for all other causes.
    pub sources: Vec<DataSource>,
}

/// A level of the memory that may have held the data that a load waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSource {
    /// The level.
    pub level: Level,
    /// The part of executions whose data must have come from it to explain `cycles_max`, if it were the only one.
    pub part: f64,
}

/// Levels of the memory beyond the first-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The second-level cache.
    #[serde(rename = "l2")]
    Second,
    /// The last-level cache, where that is not the second.
    #[serde(rename = "last-level")]
    Last,
    /// Main memory.
    Memory,
}

/// Whether a stall follows from the instructions alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum StallKind {
    /// It follows from the instructions.
    Static,
    /// It depends on what happened at run time.
    Dynamic,
}

/// Why an instruction stalls (DCPI §6.3 and Figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// Static: slots or ports of the machine are taken by neighbouring instructions.
    Slotting,
    /// Static: an operand of an earlier instruction is not ready.
    Dependency,
    /// Static: the functional unit is busy.
    FunctionalUnit,
    /// The instruction's line was not in the instruction cache.
    ICacheMiss,
    /// The instruction's page was not in the instruction TLB.
    ItlbMiss,
    /// A load's line was not in the data cache.
    DCacheMiss,
    /// A load's or store's page was not in the data TLB.
    DtlbMiss,
    /// The write or store buffer was full.
    WriteBuffer,
    /// A barrier, a locked operation or a serializing instruction.
    Synchronization,
    /// A branch was mispredicted.
    BranchMispredict,
    /// The divider was busy, or its result was not ready.
    Divider,
    /// The multiplier was busy, or its result was not ready.
    Multiplier,
    /// A load needs bytes that an older store holds only in part, and waits until the store has left the store buffer.
    StoreForwarding,
    /// A load seems to depend on an older store, because the low twelve bits of their addresses agree.
    Aliasing4K,
    /// A system call, a trap or the return of an interrupt.
    System,
    /// The kernel had to map or fetch the page that an access touched.
    PageFault,
    /// All candidates were ruled out.
    Unexplained,
}

/// How far to trust an estimate (DCPI §6.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "typescript", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The estimate is a guess.
    Low,
    /// The estimate is usually right within about 15%.
    Medium,
    /// The estimate is usually right within about 10%.
    High,
}

impl Confidence {
    /// Returns the name in answers: `low`, `medium` or `high`.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }

    /// Returns how many times as large as its estimate a frequency may be.
    pub(crate) fn error_factor_max(self) -> f64 {
        if self > Confidence::Low { 1.0 } else { 2.0 }
    }
}
