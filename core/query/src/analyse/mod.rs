//! Computes procedures, their costs, the costs of lines and the significance of differences from samples and images.
//!
//! This module knows no requests and reads no databases.

pub mod costs;
pub mod coverage;
pub mod file_index;
pub mod line_culprits;
pub mod line_sums;
pub mod listing;
pub mod procedure_names;
pub mod procedures;
pub mod reaching_definitions;
pub mod sampled;
pub mod scales;
pub mod significance;
pub mod similar_names;
pub mod stored;
pub mod totals;
