//! Joins what was counted between two readings with the samples of that time.
//!
//! Enters: readings of a process's counters, and samples, each in order of time, but samples later. Leaves: executions with the number of
//! samples that they stand for. Complexity: linear in the samples and in the blocks of all readings.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

/// Executions and samples of one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Executions by the address of each block's first instruction.
    pub executions: Vec<(u64, u64)>,
    /// Number of samples.
    pub samples: u64,
}

/// Readings whose samples are not all known yet.
#[derive(Default)]
pub struct Readings {
    /// The latest total of each block.
    totals: FxHashMap<u64, u64>,
    /// What was counted until each time since the reading before.
    waiting: VecDeque<(u64, Vec<(u64, u64)>)>,
    /// Number of samples by time.
    samples: BTreeMap<u64, u64>,
    /// Time of the latest reading whose samples were all known.
    since_ns: u64,
}

impl Readings {
    /// Adds a sample.
    pub fn sample(&mut self, time_ns: u64) {
        if time_ns > self.since_ns {
            *self.samples.entry(time_ns).or_default() += 1;
        }
    }

    /// Adds a reading of totals. A block that was not among those before begins to count with it, unless the first
    /// reading has just been made.
    pub fn read(&mut self, time_ns: u64, totals: Vec<(u64, u64)>) {
        let mut counted = Vec::with_capacity(totals.len());
        for (block, total) in totals {
            if let Some(before) = self.totals.insert(block, total) {
                // What follows from other counters may be a few less than before, since they are not read at one instant.
                counted.push((block, total.saturating_sub(before)));
            }
        }
        self.waiting.push_back((time_ns, counted));
    }

    /// Returns what was counted in the intervals that end before `complete_ns`, from when on samples may be missing.
    pub fn take(&mut self, complete_ns: u64) -> Vec<Counted> {
        let mut all = Vec::new();
        while let Some((until_ns, executions)) = self.waiting.pop_front_if(|(until_ns, _)| *until_ns < complete_ns) {
            let later = self.samples.split_off(&(until_ns + 1));
            let samples = std::mem::replace(&mut self.samples, later).values().sum();
            self.since_ns = until_ns;
            all.push(Counted { executions, samples });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_go_with_the_samples_of_their_time() {
        let mut readings = Readings::default();
        readings.sample(5);
        readings.read(10, vec![(1, 100)]);
        (11..=20).for_each(|time_ns| readings.sample(time_ns));
        readings.read(15, vec![(1, 150), (2, 7)]);
        readings.read(20, vec![(1, 160), (2, 17)]);
        let counted = |executions: &[(u64, u64)], samples| Counted { executions: executions.to_vec(), samples };
        assert_eq!(readings.take(10), []);
        assert_eq!(readings.take(16), [counted(&[], 1), counted(&[(1, 50)], 5)]);
        assert_eq!(readings.take(20), []);
        assert_eq!(readings.take(u64::MAX), [counted(&[(1, 10), (2, 10)], 5)]);
    }

    #[test]
    fn a_total_that_goes_back_counts_nothing() {
        let mut readings = Readings::default();
        readings.read(10, vec![(1, 100)]);
        readings.read(20, vec![(1, 99)]);
        assert_eq!(readings.take(u64::MAX)[1].executions, [(1, 0)]);
    }
}
