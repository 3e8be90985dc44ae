//! What is read: the samples of epochs, merged; images; sources; what else was recorded of executions.
//!
//! Enters: a database, files. Leaves: plain data. Never here: the analysis, answers.

pub mod containers;
pub mod execution_counts;
pub mod filter;
pub mod images;
pub mod import;
pub mod kernel_text;
pub mod merge;
pub mod points;
pub mod samples;
pub mod selection;
pub mod source;
pub mod stepped;
pub mod windows;
