//! Requests. Each file contains the parameters of one request and the `impl Query` that answers it.

pub mod callers;
pub mod diff;
pub mod epochs;
pub mod feedback;
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
pub mod tables;
pub mod top;
