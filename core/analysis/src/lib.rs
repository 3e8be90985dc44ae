//! Samples of a procedure's instructions → frequency, CPI, stalls and culprits, each with a confidence (DCPI §6).
//!
//! Enters: decoded instructions, samples per instruction, a machine model. Leaves: plain data. Never here: files,
//! symbols, clocks, threads, syscalls; the same input gives the same output on every machine.

mod answer;
mod input;

pub use answer::{Block, Cause, Confidence, Edge, InstructionCost, ProcedureAnalysis, Stall, StallKind};
pub use input::ProcedureInput;
