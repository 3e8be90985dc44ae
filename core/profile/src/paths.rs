//! Path bursts: what a thread did or would do from a moment on (DCPI §7, "double sampling", generalized).

use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

use crate::{ImageId, ImageOffset};

/// A place in an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPlace {
    /// The image.
    pub image: ImageId,
    /// Where in it.
    pub offset: ImageOffset,
}

/// How often control went from one instruction to another: one that is not simply the next, or the next after a
/// conditional branch or an indirect jump.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathTransfer {
    /// The instruction that control left.
    pub from: PathPlace,
    /// The instruction that it went to.
    pub to: PathPlace,
    /// How often.
    pub count: u64,
}

/// About a thousand consecutive instructions of one thread. Between transfers control goes from each instruction to
/// the next, so `first`, `last` and `transfers` tell how often each instruction was executed. Where an image's code
/// could not be read (JIT, vdso) only transfers into and out of it are known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathBurst {
    /// Unique in the epoch.
    pub number: u32,
    /// The first instruction.
    pub first: PathPlace,
    /// The instruction after the last that was executed.
    pub last: PathPlace,
    /// In order, without duplicates.
    pub transfers: Vec<PathTransfer>,
}

impl PathBurst {
    /// A counted window, stored as a burst: executions of places that breakpoints watched during the same stretch of a
    /// thread's time are transfers of each to itself, one more than there were, since none is no transfer. Without
    /// places there is no window. They are put in order; of a place that comes twice the first count stays.
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

    /// Executions by place, if it is a counted window; `None` for a path. (A path that did nothing but jump to itself
    /// looks like a window with one place. Neither tells anything.)
    pub fn window(&self) -> Option<impl Iterator<Item = (&PathPlace, u64)>> {
        let is_window = !self.transfers.is_empty()
            && self.first == self.last
            && self.first == self.transfers[0].from
            && self.transfers.iter().all(|t| t.from == t.to);
        is_window.then(|| self.transfers.iter().map(|t| (&t.from, t.count.saturating_sub(1))))
    }
}

/// What counting in windows did and cost in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowsRecord {
    /// Percent of the target's CPU time that counting might take.
    pub budget_percent: f64,
    /// Windows that were stored.
    pub windows: u64,
    /// Executions that were counted in them.
    pub executions: u64,
    /// What one of these costs here, in ns, as measured at the start; 0 where there are no breakpoints.
    pub execution_ns: f64,
    /// What all cost, in ns: executions by their cost, but no more than the thread ran, and setting the breakpoints.
    pub cost_ns: u64,
    /// CPU time of the target by its samples, in ns.
    pub cpu_ns: u64,
    /// Samples that fell on a thread within a window: they would have shown the counting, and are not counted.
    pub samples_dropped: u64,
    /// Windows that did not begin, by cause.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
}

/// What following or single-stepping threads did and cost in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathsRecord {
    /// Percent of the target's CPU time that stepping might take.
    pub budget_percent: f64,
    /// Bursts that were stored.
    pub bursts: u64,
    /// Steps in all.
    pub steps: u64,
    /// What it cost, in ns: CPU time of following, during which the thread stands still, or the time of single steps.
    pub stepping_ns: u64,
    /// CPU time of the target by its samples, in ns.
    pub cpu_ns: u64,
    /// Samples that fell on a thread while it was stepped: they would have shown the stepping, and are not counted.
    pub samples_dropped: u64,
    /// Bursts that ended before they had all their steps, by cause.
    #[serde(default)]
    pub cut_short: BTreeMap<String, u64>,
    /// Bursts that did not begin, by cause.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Steps in code that cannot be read (JIT, vdso, no mapping), whose transfers are not stored.
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
