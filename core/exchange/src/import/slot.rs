//! The key that samples are aggregated by while a profile is read, before images are known.

use dwell_attribution::ExecutionId;
use dwell_profile::AccumulatedSamples;

/// The key of a sample without its offset, before images are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub target: u32,
    pub execution: ExecutionId,
    pub event: u16,
}

/// Returns the sampled offsets of a target, ascending.
pub(super) fn offsets(sums: &AccumulatedSamples<Slot>, target: u32) -> Vec<u64> {
    let numbers = sums.slots().enumerate().filter(|(_, slot)| slot.target == target);
    let mut offsets: Vec<u64> = numbers.flat_map(|(number, _)| sums.of(number)).map(|(o, _)| o).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}
