//! Path bursts: the instructions that a thread executed, or would execute, from a moment on (DCPI §7, "double
//! sampling", generalized).

use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

use crate::{ImageId, ImageOffset};

/// A place in an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPlace {
    /// The image that contains the place.
    pub image: ImageId,
    /// The offset in the image.
    pub offset: ImageOffset,
}

/// A transfer of control from one instruction to another, with its count. Control that passes to the next instruction
/// is a transfer only after a conditional branch or an indirect jump.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathTransfer {
    /// The instruction that control left.
    pub from: PathPlace,
    /// The instruction that control went to.
    pub to: PathPlace,
    /// Number of times that control took this way.
    pub count: u64,
}

/// About a thousand consecutive instructions of one thread.
///
/// Between transfers control goes from each instruction to the next, so `first`, `last` and `transfers` determine how
/// often each instruction was executed. If the code of an image could not be read (JIT, vdso), only the transfers into
/// and out of it are known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathBurst {
    /// Number of the burst, unique in the epoch.
    pub number: u32,
    /// The first instruction that was executed.
    pub first: PathPlace,
    /// The instruction after the last one that was executed.
    pub last: PathPlace,
    /// The transfers, sorted and without duplicates.
    pub transfers: Vec<PathTransfer>,
}

impl PathBurst {
    /// Returns a counted window, stored as a burst; `None` if there are no places.
    ///
    /// The executions of places that breakpoints watched during one stretch of a thread's time are stored as transfers
    /// of each place to itself. The stored count is one more than the executions, because a transfer with a count of
    /// zero does not exist. The places are sorted; if a place occurs twice, its first count is kept.
    pub fn of_window(number: u32, mut executions: Vec<(PathPlace, u64)>) -> Option<PathBurst> {
        executions.sort_by(|a, b| a.0.cmp(&b.0));
        executions.dedup_by(|later, earlier| later.0 == earlier.0);
        let first = executions.first()?.0.clone();
        let transfer = |(place, count): (PathPlace, u64)| PathTransfer {
            from: place.clone(),
            to: place,
            count: count.saturating_add(1),
        };
        let transfers = executions.into_iter().map(transfer).collect();
        Some(PathBurst { number, last: first.clone(), first, transfers })
    }

    /// Returns the executions by place if this burst is a counted window; `None` if it is a path. (A path that did
    /// nothing but jump to itself looks like a window with one place. Neither carries information.)
    pub fn window(&self) -> Option<impl Iterator<Item = (&PathPlace, u64)>> {
        let is_window = !self.transfers.is_empty()
            && self.first == self.last
            && self.first == self.transfers[0].from
            && self.transfers.iter().all(|t| t.from == t.to);
        is_window.then(|| self.transfers.iter().map(|t| (&t.from, t.count.saturating_sub(1))))
    }
}

/// What counted windows did and cost in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowsRecord {
    /// The share of the target's CPU time that counting might cost, in percent.
    pub budget_percent: f64,
    /// Number of windows that were stored.
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
pub struct PathsRecord {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64) -> PathPlace {
        PathPlace { image: ImageId::unknown(), offset: ImageOffset(offset) }
    }

    #[test]
    fn a_window_is_a_burst_and_back() {
        let burst = PathBurst::of_window(3, vec![(place(9), 0), (place(4), 70), (place(9), 5)]).unwrap();
        let executions: Vec<_> = burst.window().unwrap().map(|(p, n)| (p.offset.0, n)).collect();
        assert_eq!(executions, [(4, 70), (9, 0)]);
        assert!(burst.transfers.iter().all(|t| t.count > 0), "a row without a count opens a burst");
        assert_eq!(PathBurst::of_window(1, Vec::new()), None);
    }

    #[test]
    fn a_path_is_no_window() {
        let to = |from, to| PathTransfer { from: place(from), to: place(to), count: 2 };
        let path =
            PathBurst { number: 1, first: place(1), last: place(1), transfers: vec![to(1, 1), to(2, 1)] };
        assert!(path.window().is_none());
        assert!(PathBurst { transfers: Vec::new(), ..path }.window().is_none());
    }
}
