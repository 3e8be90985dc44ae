//! What the collector hands out to be stored.

use dwell_profile::{ExecutionCount, ExecutionEvidence, ImageRecord, StoredCallTree};

use super::rows::Rows;

/// Everything that was counted since the last [`Collector::take`](super::Collector::take).
#[derive(Default)]
pub struct Batch {
    /// Counts of samples and derived events.
    pub rows: Rows,
    /// Images that occur in the counts or the evidence, or got symbols.
    pub images: Vec<ImageRecord>,
    /// Path bursts, breakpoint counts and branch stacks.
    pub evidence: Vec<ExecutionEvidence>,
    /// Execution counts.
    pub executions: Vec<ExecutionCount>,
    /// Call stacks of the samples that have one.
    pub stacks: StoredCallTree,
}
