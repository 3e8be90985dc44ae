//! Exchange with other tools: it imports their profiles as epochs, and exports ours in their formats.
//!
//! Enters: files that other profilers wrote, and answers of [`dwell_query`]. Leaves: epochs, with notes on what such a
//! file lacked; bytes that other tools read. Never here: a crash or an unbounded allocation, whatever a file contains;
//! analysis; sampling.

mod debuginfod;
mod error;
mod export;
mod feedback;
mod import;
mod pprof;

pub use debuginfod::{Artifact, Debuginfod, Fetched, Limits};
pub use error::ExchangeError;
pub use export::{
    FlameColor, Format, Stacked, colored_flame_graph, export, flame_diff_graph, flame_graph, otlp_rejection,
};
pub use feedback::{Counts, Optimizer, feedback};
pub use import::{ImportFile, Imported, Servers, fuzzing, import_perf_data};
