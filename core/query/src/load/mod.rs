//! Reads merged samples of epochs, images, sources and other observations of executions.
//!
//! Input: a database, files. Output: plain data. This module knows neither the analysis nor the answers.

pub mod breakpoint_counts;
pub mod bursts;
pub mod call_stacks;
pub mod containers;
pub mod execution_counts;
pub mod filter;
pub mod images;
pub mod import;
pub mod kernel_text;
pub mod merge;
pub mod period_weights;
pub mod programs;
pub mod sampled_offsets;
pub mod samples;
pub mod selection;
pub mod source;
pub mod stored_analyses;
pub mod transfers;
