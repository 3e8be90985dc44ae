//! Execution counts: how often single instructions were executed while the program ran undisturbed.
//!
//! A path burst or breakpoint counts give ratios of executions; an execution count is absolute. It is a rate: the
//! executions of one instruction during the time in which a number of time samples of its application were taken.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::CodePlace;

/// Executions of one instruction that were counted while the program ran undisturbed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionCount {
    /// The instruction whose executions were counted.
    pub place: CodePlace,
    /// The application, named as in its samples.
    pub app: String,
    /// Number of the application's execution in the epoch, from 1, as in its samples; 0 if executions are not kept
    /// apart.
    pub instance: u32,
    /// How often the instruction was executed.
    pub executions: u64,
    /// Number of time samples of the application and instance, over all threads, in the time that `executions` covers.
    /// It is at least 1. `executions / samples` is a rate, which a reader multiplies by the samples of its selection.
    pub samples: u64,
    /// Standard deviation of the logarithm of `executions`, in millionths. It does not include the sampling noise of
    /// `samples`.
    pub deviation_ppm: u32,
    /// The method that counted.
    pub source: CountSource,
}

/// A method of counting executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountSource {
    /// A word in memory to which the instruction adds a constant, read from outside at two times.
    MemoryWord,
    /// Registers to which a loop adds constants, sampled at two times of one activation of the loop.
    InductionRegister,
    /// A counter that was put into the program's code, or flow that follows from such counters.
    CodeCounter,
}

impl CountSource {
    /// All sources, in the order of their values.
    pub const ALL: [CountSource; 3] =
        [CountSource::MemoryWord, CountSource::InductionRegister, CountSource::CodeCounter];

    /// Returns the source's name as files spell it.
    pub fn name(self) -> &'static str {
        match self {
            CountSource::MemoryWord => "memory-word",
            CountSource::InductionRegister => "induction-register",
            CountSource::CodeCounter => "code-counter",
        }
    }

    /// Returns the source with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }
}

impl ExecutionCount {
    /// Adds up counts of the same place, application, instance and source. Executions and samples are summed, and the
    /// largest deviation is kept, which never understates the error. The result is sorted and has each key once.
    pub fn sum(counts: impl IntoIterator<Item = ExecutionCount>) -> Vec<ExecutionCount> {
        let mut sums: BTreeMap<(CodePlace, String, u32, CountSource), ExecutionCount> = BTreeMap::new();
        for count in counts {
            let key = (count.place.clone(), count.app.clone(), count.instance, count.source);
            match sums.get_mut(&key) {
                Some(sum) => {
                    sum.executions = sum.executions.saturating_add(count.executions);
                    sum.samples = sum.samples.saturating_add(count.samples);
                    sum.deviation_ppm = sum.deviation_ppm.max(count.deviation_ppm);
                }
                None => _ = sums.insert(key, count),
            }
        }
        sums.into_values().collect()
    }
}

/// What counting executions by words in memory, by registers and by counters in code did and cost in an epoch. Fields may be added; each has
/// a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CountsRecord {
    /// The share of the target's CPU time that counting may cost, in percent.
    pub budget_percent: f64,
    /// Number of words in memory that samples suggested as candidates.
    pub candidates: u64,
    /// Number of words whose writers a watchpoint confirmed.
    pub verified: u64,
    /// Number of words whose counts were stored.
    pub words: u64,
    /// Number of reads of a process's words; one read takes all words of the process.
    pub reads: u64,
    /// Number of loops whose register samples were paired.
    pub loops: u64,
    /// Number of pairs of samples in one activation of a loop.
    pub pairs: u64,
    /// Number of procedures whose blocks are counted in their code.
    pub procedures: u64,
    /// Number of counters in code.
    pub counters: u64,
    /// Cost of all counting, in ns: CPU time of the reads, and the traps of watchpoints in the target.
    pub cost_ns: u64,
    /// CPU time of the target, computed from its samples, in ns.
    pub cpu_ns: u64,
    /// Samples of a process that were taken while a watchpoint was set in it, or in the code that counts. They would have
    /// shown the cost of counting, so they are not counted.
    pub samples_dropped: u64,
    /// Number of words and loops that gave no count, by cause.
    pub refused: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ImageId, ImageOffset};

    #[test]
    fn counts_of_one_key_add_up() {
        let count = |offset, executions, samples, deviation_ppm, source| ExecutionCount {
            place: CodePlace { image: ImageId::kernel(), offset: ImageOffset(offset) },
            app: "xz".into(),
            instance: 1,
            executions,
            samples,
            deviation_ppm,
            source,
        };
        let (word, register) = (CountSource::MemoryWord, CountSource::InductionRegister);
        let sums = ExecutionCount::sum([
            count(9, 100, 7, 30_000, word),
            count(4, 5, 1, 0, word),
            count(9, u64::MAX, 3, 50_000, word),
            count(9, 1, 1, 10, register),
        ]);
        assert_eq!(
            sums,
            [count(4, 5, 1, 0, word), count(9, u64::MAX, 10, 50_000, word), count(9, 1, 1, 10, register)]
        );
    }

    #[test]
    fn names_of_sources_lead_back() {
        for source in CountSource::ALL {
            assert_eq!(CountSource::named(source.name()), Some(source));
        }
        assert_eq!(CountSource::named("probe"), None);
    }
}
