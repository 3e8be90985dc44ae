//! Samples of a procedure's instructions → frequency, CPI, stalls and culprits, each with a confidence (DCPI §6).
//!
//! Enters: decoded instructions, samples per instruction, a machine model. Leaves: plain data. Never here: files,
//! symbols, clocks, threads, syscalls; the same input gives the same output on every machine.

mod analyze;
mod answer;
mod bounds;
pub mod breakpoint_counts;
mod certainty;
pub mod cfg;
mod culprits;
mod directions;
mod entries;
pub mod equivalence;
pub mod frequency;
mod graph;
mod input;
mod jump_table;
mod linear;
pub mod machine;
pub mod program;
mod scale;
pub mod schedule;

pub use analyze::{analyze, analyze_keeping, analyze_verified, verify_analysis};
pub use answer::{
    Basis, Block, Cause, Confidence, DataSource, Edge, Entered, InstructionCost, KernelTime, Level, PerEntry,
    ProcedureAnalysis, Stall, StallKind,
};
pub use culprits::events_that_bound;
pub use directions::directions;
pub use input::{AbsoluteCount, Counted, ProcedureInput, Transfer};
pub use jump_table::recover_jump_targets;
pub use machine::MachineModel;
pub use scale::{CHANCE_SAMPLES_MAX, Interval, OuterScale, Scale, ScaleKind};
