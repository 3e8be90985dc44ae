//! Executions that a program counts by itself while nobody disturbs it.
//!
//! Enters: samples with registers. Leaves: counts of executions of places. Never here: ELF, DWARF, symbols.

#[cfg(target_arch = "x86_64")]
pub mod loops;
