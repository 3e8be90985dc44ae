//! Probes: exact counts and call paths of chosen functions in a running program, after Bernat and Miller, "Incremental
//! Call-Path Profiling" (2007).
//!
//! Enters: a process and functions of it. Leaves: for each function its calls by call path, with metrics. Never here: text,
//! arguments of the command line, the database.

#![allow(unsafe_code)] // ptrace, and the memory that is shared with the probed program

pub mod answer;
pub mod calibration;
pub mod channel;
pub mod counters;
pub mod engine;
mod error;
pub mod follower;
pub mod functions;
pub mod layout;
pub mod patch;
mod probes;
pub mod process;
pub mod process_images;
pub mod recording;
pub mod shared_memory;
pub mod source_line;
pub mod unwind_table;

pub use error::ProbeError;
pub use probes::{Probes, clean};
