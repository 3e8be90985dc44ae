//! The doors to other tools: their profiles in, as epochs; ours out, in their formats.
//!
//! Enters: files that other profilers wrote, answers of [`dwell_query`]. Leaves: epochs, and what such a file lacked, in
//! words; bytes that other tools read. Never here: a crash or
//! an unbounded allocation, whatever a file says; analysis; sampling.

mod debuginfod;
mod error;
mod export;
mod feedback;
mod import;
mod pprof;

pub use debuginfod::{Artifact, Debuginfod, Fetched, Limits};
pub use error::ExchangeError;
pub use export::{Format, export};
pub use feedback::{Counts, Optimizer, feedback};
pub use import::{ImportFile, Imported, Servers, exercise, import_perf_data};
