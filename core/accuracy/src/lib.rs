//! Judges the analysis: captures with known truth → shares of samples whose estimates are right, reliability of the
//! confidence, scores of the culprits.
//!
//! Enters: captures (see [`capture`]). Leaves: tables, JSON, pictures. Never here: code that users run; an estimate that
//! uses the truth, except for scales.

pub mod capture;
pub mod culprits;
pub mod estimators;
pub mod export_capture;
pub mod metrics;
pub mod points;
pub mod program;
pub mod random;
pub mod random_programs;
pub mod reliability;
pub mod report;
pub mod sensitivity;
pub mod truth;
pub mod verdict;
/// The command's verbs, one file for each.
pub mod commands {
    pub mod judge;
    pub mod speed;
}

pub use capture::{Capture, CaptureError};
