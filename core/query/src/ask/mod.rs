//! Requests. Each file contains the parameters of one request and the `impl Query` that answers it.

pub mod callers;
pub mod diff;
pub mod epochs;
pub mod feedback;
pub mod file_functions;
pub mod flame;
pub mod hottest_paths;
pub mod keep_sources;
pub mod line_detail;
pub mod listing;
pub mod places;
pub mod rebuilt;
pub mod recorded_stacks;
pub mod source_file;
pub mod stacks;
pub mod stats;
pub mod summary;
pub mod summary_under;
pub mod tables;
pub mod top;
