//! Evidence of how often code was executed, observed beside samples, and the records of what observing it cost (DCPI §7,
//! "double sampling", generalized).
//!
//! Enters: what collectors and importers observed. Leaves: the same as plain data. Never here: a frequency, or the format
//! on disk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ImageId, ImageOffset};

/// A place in the code of an image. Where many places are compared, `I` is a number that stands for the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodePlace<I = ImageId> {
    /// The image that contains the place.
    pub image: I,
    /// The offset in the image.
    pub offset: ImageOffset,
}

/// A transfer of control from one instruction to another, with its count. Control that passes to the next instruction
/// is a transfer only after a conditional branch or an indirect jump.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlTransfer {
    /// The instruction that control left.
    pub from: CodePlace,
    /// The instruction that control went to.
    pub to: CodePlace,
    /// Number of times that control took this way; at least 1.
    pub count: u64,
}

/// One observation of how often code was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionEvidence {
    /// A path burst: some thousand consecutive instructions of one thread, which was emulated or single-stepped.
    ///
    /// Between transfers control goes from each instruction to the next, so these fields determine how often each
    /// instruction was executed. If the code of an image could not be read (JIT, vdso), only the transfers into and out
    /// of it are known.
    PathBurst {
        /// The first instruction that was executed.
        first: CodePlace,
        /// The instruction after the last one that was executed.
        last: CodePlace,
        /// The transfers, sorted and without duplicates.
        transfers: Vec<ControlTransfer>,
        /// CPU time that the thread itself, in user mode and in the kernel, took for exactly this path, in ns, at least 1; `None` if
        /// that is not known.
        cpu_ns: Option<u64>,
    },
    /// The executions of places that hardware breakpoints watched during one window of a thread's time, sorted by
    /// place, each place once. They are comparable within the window only.
    BreakpointCounts(Vec<(CodePlace, u64)>),
    /// The sum of many branch stacks (LBR, BRBE), sorted and without duplicates. Where the stacks began and ended is
    /// not known.
    BranchStacks(Vec<ControlTransfer>),
}

impl ExecutionEvidence {
    /// Returns the counts of a window as evidence, or `None` if there are no places. If a place occurs twice, its first
    /// count is kept.
    pub fn breakpoint_counts(mut executions: Vec<(CodePlace, u64)>) -> Option<Self> {
        executions.sort_by(|a, b| a.0.cmp(&b.0));
        executions.dedup_by(|later, earlier| later.0 == earlier.0);
        (!executions.is_empty()).then_some(ExecutionEvidence::BreakpointCounts(executions))
    }

    /// Returns the transfers of control that were observed; breakpoints observe none.
    pub fn transfers(&self) -> &[ControlTransfer] {
        match self {
            ExecutionEvidence::PathBurst { transfers, .. } | ExecutionEvidence::BranchStacks(transfers) => {
                transfers
            }
            ExecutionEvidence::BreakpointCounts(_) => &[],
        }
    }
}

/// What counting executions by hardware breakpoints did and cost in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BreakpointRecord {
    /// The share of the target's CPU time that counting might cost, in percent.
    pub budget_percent: f64,
    /// Number of windows of time in which executions were counted and stored.
    pub windows: u64,
    /// Number of executions that were counted in them.
    pub executions: u64,
    /// Cost of one counted execution on this machine, in ns, as measured at the start; 0 if there are no breakpoints.
    pub execution_ns: f64,
    /// Cost of all windows, in ns: the executions at their cost each, limited to the time that the thread ran, plus the
    /// time to set the breakpoints.
    pub cost_ns: u64,
    /// CPU time of the target, computed from its samples, in ns.
    pub cpu_ns: u64,
    /// Samples of a thread that were taken within a window. They would have shown the cost of counting, so they are not
    /// counted.
    pub samples_dropped: u64,
    /// Number of windows that were not started, by cause.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
}

/// What emulating or single-stepping threads did and cost in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstsRecord {
    /// The share of the target's CPU time that stepping might cost, in percent.
    pub budget_percent: f64,
    /// Number of bursts that were stored.
    pub bursts: u64,
    /// Total number of steps.
    pub steps: u64,
    /// Cost of all bursts, in ns: CPU time of emulation, during which the thread stands still, or the time of single
    /// steps.
    pub stepping_ns: u64,
    /// CPU time of the target, computed from its samples, in ns.
    pub cpu_ns: u64,
    /// Samples of a thread that were taken while it was stepped. They would have shown the cost of stepping, so they
    /// are not counted.
    pub samples_dropped: u64,
    /// Number of bursts that ended before they had all their steps, by cause.
    #[serde(default)]
    pub cut_short: BTreeMap<String, u64>,
    /// Number of bursts that were not started, by cause.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Number of steps in code that cannot be read (JIT, vdso, no mapping). The transfers of such code are not stored.
    #[serde(default)]
    pub opaque_steps: u64,
    /// Number of bursts of which it is known how long the thread itself took for them.
    #[serde(default)]
    pub timed: u64,
    /// The CPU time that the threads took for them, in ns.
    #[serde(default)]
    pub timed_ns: u64,
    /// CPU time of emulation while the threads ran, in ns, at the lowest priority.
    #[serde(default)]
    pub beside_ns: u64,
    /// Number of bursts that were to be timed and could not be, by cause.
    #[serde(default)]
    pub untimed: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoint_counts_are_sorted_and_keep_the_first_count_of_a_place() {
        let place = |offset| CodePlace { image: ImageId::unknown(), offset: ImageOffset(offset) };
        let counts = vec![(place(9), 0), (place(4), 70), (place(9), 5)];
        let evidence = ExecutionEvidence::breakpoint_counts(counts).unwrap();
        assert_eq!(evidence.transfers(), []);
        assert_eq!(evidence, ExecutionEvidence::BreakpointCounts(vec![(place(4), 70), (place(9), 0)]));
        assert_eq!(ExecutionEvidence::breakpoint_counts(Vec::new()), None);
    }
}
