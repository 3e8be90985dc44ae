//! What the analysis of one procedure ends with.

use std::ops::Range;

use crate::{Interval, Scale};

/// Frequency, CPI and stalls of one procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcedureAnalysis {
    /// Basic blocks by ascending address; together they cover every instruction once.
    pub blocks: Vec<Block>,
    /// Edges of the control-flow graph.
    pub edges: Vec<Edge>,
    /// One for each instruction of the input.
    pub instructions: Vec<InstructionCost>,
    /// Whether some indirect jump's targets could not be recovered (DCPI §6.1.1, "missing edges").
    pub missing_edges: bool,
    /// What a reader must know: "no estimate: the procedure has 3 samples", …
    pub notes: Vec<String>,
    /// What the frequencies rest on beside cycles.
    pub basis: Basis,
    /// The scale says which of the frequencies can be compared.
    pub scale: Scale,
}

/// Evidence of frequencies beside the cycles that every procedure has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Basis {
    /// Directions of conditional branches in samples' registers.
    pub directions: u64,
    /// Transfers of control seen while single-stepping.
    pub steps: f64,
    /// Instructions whose executions were counted in windows.
    pub counted: u64,
    /// Samples of retired instructions.
    pub retired: u64,
    /// Instructions whose executions were counted while the program ran undisturbed.
    pub absolute: u64,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Indices of its instructions.
    pub instructions: Range<usize>,
    /// Executions over the sampling period (DCPI §6: F), up to the factor that [`ProcedureAnalysis::scale`] leaves open; `None`
    /// where nothing is known.
    pub frequency: Option<f64>,
    /// The 90 % interval of `frequency`; `None` unless the scale is absolute.
    pub frequency_interval: Option<Interval>,
    /// How far to trust `frequency`.
    pub confidence: Confidence,
    /// Cycles per instruction, if the scale of `frequency` is right, and never less than the processor needs; `None` without a
    /// frequency, and where it is too rare for its lack of samples to mean anything.
    pub cpi: Option<f64>,
    /// The 90 % interval of the cycles per instruction; without an absolute scale, what the processor cannot do bounds it.
    pub cpi_interval: Interval,
    /// Cycles per instruction had there been no dynamic stall.
    pub best_case_cpi: f64,
    /// This ratio of executions is known whatever the scale is.
    pub per_entry: Option<PerEntry>,
    /// Its frequency-equivalence class (DCPI §6.1.2).
    pub class: usize,
}

/// Executions for each time that what they lie in is entered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerEntry {
    /// So many executions there are for one entry.
    pub executions: f64,
    /// This is what is entered.
    pub entered: Entered,
}

/// Executions are told for each time that one of these is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The innermost loop around them.
    Loop,
    /// The procedure, for want of a loop.
    Procedure,
}

/// An edge between two blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Index of the block it leaves.
    pub from: usize,
    /// Index of the block it enters.
    pub to: usize,
    /// As for blocks.
    pub frequency: Option<f64>,
    /// As for blocks.
    pub confidence: Confidence,
}

/// One instruction's cost.
#[derive(Clone, Debug, PartialEq)]
pub struct InstructionCost {
    /// Its block's frequency.
    pub frequency: Option<f64>,
    /// Its block has this interval.
    pub frequency_interval: Option<Interval>,
    /// Its block's confidence.
    pub confidence: Confidence,
    /// Average cycles at the head of the machine per execution, if the scale of `frequency` is right; `None` without a frequency, and
    /// where it is less than a slot of the machine: the instruction issued or retired together with its predecessor.
    pub cpi: Option<f64>,
    /// As for blocks.
    pub cpi_interval: Interval,
    /// The least it can take there (DCPI's M): 0 where it issues or retires together with its predecessor.
    pub issue_cycles_min: f64,
    /// What an execution takes without dynamic stalls (in order: M, and what predecessors leave behind on average; out of order: its
    /// share of the front end and its static stalls, which over a block add up to its best case).
    pub best_case_cycles: f64,
    /// Cycles by which it was faster than that (DCPI Figure 4, "unexplained gain"); 0 where it was not.
    pub gain_cycles: f64,
    /// Time samples during which it was at the head of the machine: those that landed on it or, out of order, after it
    /// (docs/measured.md), so that they are its cost. Over a procedure they add up to its samples.
    pub head_samples: f64,
    /// Why it took longer, static causes first. Empty where it did not.
    pub stalls: Vec<Stall>,
    /// Time in the kernel on its behalf, where samples tell.
    pub kernel: Option<KernelTime>,
}

/// Time in the kernel that an instruction of the user's caused: beside its own cycles, no part of its CPI.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelTime {
    /// `PageFault` of what accesses memory, else `System`: a call, or an interrupt.
    pub cause: Cause,
    /// Time samples in the kernel.
    pub samples: u64,
    /// Cycles per execution.
    pub cycles: f64,
}

/// One possible explanation of an instruction's lost cycles. Ranges of several dynamic stalls of one instruction
/// overlap: each may explain up to `cycles_max` of the same excess.
#[derive(Clone, Debug, PartialEq)]
pub struct Stall {
    /// Seen by the model, or inferred from the samples.
    pub kind: StallKind,
    /// Why.
    pub cause: Cause,
    /// Cycles per execution that this cause explains at least …
    pub cycles_min: f64,
    /// … and at most.
    pub cycles_max: f64,
    /// Index of the instruction that is to blame, where one is.
    pub culprit: Option<usize>,
    /// Of data that was not in the first-level cache: where it may have come from, nearest first. Each of these levels
    /// alone can explain what was lost; nearer ones cannot, whatever frequency the interval of the cycles allows. Empty for all
    /// other causes.
    pub sources: Vec<DataSource>,
}

/// A level of the memory that may have held what a load waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DataSource {
    /// Which one.
    pub level: Level,
    /// The part of executions that must have come from it to explain `cycles_max`, were it the only one.
    pub part: f64,
}

/// Levels of the memory beyond the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The second.
    Second,
    /// The last before memory, where that is not the second.
    Last,
    /// Memory.
    Memory,
}

/// Whether a stall follows from the instructions alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallKind {
    /// It does.
    Static,
    /// It depends on what happened at run time.
    Dynamic,
}

/// Why an instruction stalls (DCPI §6.3 and Figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Static: slots or ports of the machine are taken by neighbours.
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
    /// A branch went where it was not predicted to go.
    BranchMispredict,
    /// The divider was busy or its result awaited.
    Divider,
    /// The multiplier was busy or its result awaited.
    Multiplier,
    /// A load needs what an older store holds only in part, and must wait until that has left the store buffer.
    StoreForwarding,
    /// A load looks as if it needed an older store: the low twelve bits of their addresses agree.
    Aliasing4K,
    /// A system call, a trap or an interrupt's return.
    System,
    /// The kernel had to map or fetch the page that an access touched.
    PageFault,
    /// All candidates were ruled out.
    Unexplained,
}

/// How far to trust an estimate (DCPI §6.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// A guess.
    Low,
    /// Right within about 15%, as a rule.
    Medium,
    /// Right within about 10%, as a rule.
    High,
}

impl Confidence {
    /// Returns how many times as large as its estimate a frequency may be.
    pub(crate) fn error_factor_max(self) -> f64 {
        if self > Confidence::Low { 1.0 } else { 2.0 }
    }
}
