//! How often code was executed, beside what samples show: branch directions from registers, path bursts of threads that are
//! followed, breakpoint counts, and counters in memory, registers and code.
//!
//! Enters: samples, registers, code and memory of the target. Leaves: transfers and counts by address. Never here: images,
//! which [`crate::collector`] finds; frequencies.

pub mod branch;
pub mod breakpoint_counts;
pub mod bursts;
pub mod code_counters;
pub mod counts;
pub mod operand;
mod timing;
pub mod transfers;
pub mod waiting;
