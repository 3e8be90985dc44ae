//! What the collector hands out to be stored.

use dwell_profile::{ExecutionCount, ImageRecord, PathBurst};

use super::rows::Rows;

/// Everything that was counted since the last [`Collector::take`].
#[derive(Default)]
pub struct Batch {
    /// Counts of samples and derived events.
    pub rows: Rows,
    /// Images that occur in the counts or bursts, or got symbols.
    pub images: Vec<ImageRecord>,
    /// Path bursts and counted windows.
    pub paths: Vec<PathBurst>,
    /// Execution counts.
    pub executions: Vec<ExecutionCount>,
}
