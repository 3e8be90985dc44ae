//! Joins what was counted between two readings with the samples of that time.
//!
//! Enters: readings of a process's counters, and samples, each in order of time, but samples later. Leaves: executions with the number of
//! samples that they stand for. Complexity: linear in the samples and in the blocks of all readings.

use std::collections::{BTreeMap, VecDeque};

use dwell_profile::VirtualAddress;

/// Executions by the address of each block's first instruction.
type BlockCounts = Vec<(VirtualAddress, u64)>;

/// Executions and samples of one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Executions of blocks.
    pub executions: BlockCounts,
    /// Number of samples.
    pub samples: u64,
}

/// Readings whose samples are not all known yet.
#[derive(Default)]
pub struct Readings {
    /// What was counted until each time since the reading before; nothing if that is not known.
    waiting: VecDeque<(u64, Option<BlockCounts>)>,
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

    /// Adds a reading: the executions since the one before, or none if they are not certain.
    pub fn read(&mut self, time_ns: u64, executions: Option<BlockCounts>) {
        self.waiting.push_back((time_ns, executions));
    }

    /// Leaves out the time since the reading before.
    pub fn skip(&mut self, time_ns: u64) {
        self.waiting.push_back((time_ns, None));
    }

    /// Returns what was counted in the intervals that end before `complete_ns`, from when on samples may be missing.
    pub fn take(&mut self, complete_ns: u64) -> Vec<Counted> {
        let mut all = Vec::new();
        while self.waiting.front().is_some_and(|(until_ns, _)| *until_ns < complete_ns)
            && let Some((until_ns, executions)) = self.waiting.pop_front()
        {
            let later = self.samples.split_off(&(until_ns + 1));
            let samples = std::mem::replace(&mut self.samples, later).values().sum();
            self.since_ns = until_ns;
            all.extend(executions.map(|executions| Counted { executions, samples }));
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
        readings.skip(10);
        (11..=20).for_each(|time_ns| readings.sample(time_ns));
        let (first, second) = (VirtualAddress(1), VirtualAddress(2));
        readings.read(15, Some(vec![(first, 50)]));
        readings.skip(17);
        readings.read(20, Some(vec![(first, 10), (second, 10)]));
        let counted = |executions: &[(VirtualAddress, u64)], samples| Counted {
            executions: executions.to_vec(),
            samples,
        };
        assert_eq!(readings.take(10), []);
        assert_eq!(readings.take(16), [counted(&[(first, 50)], 5)]);
        assert_eq!(readings.take(20), []);
        assert_eq!(readings.take(u64::MAX), [counted(&[(first, 10), (second, 10)], 3)]);
    }
}
