//! The key that samples are aggregated by while a profile is read, before images are known, and the places that must be
//! known for its samples and their callers.

use dwell_attribution::ExecutionId;
use dwell_profile::AccumulatedSamples;
use rustc_hash::FxHashMap;

use super::call_stacks::Place;

/// The key of a sample without its offset, before images are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub target: u32,
    pub execution: ExecutionId,
    pub event: u16,
}

/// Sums by place, and the places of the samples' callers.
pub(super) struct UsedPlaces<'a> {
    pub sums: &'a AccumulatedSamples<Slot>,
    /// Offsets of frames by target.
    frames: FxHashMap<u32, Vec<u64>>,
}

impl<'a> UsedPlaces<'a> {
    /// Takes sums, and the places of frames.
    pub fn new(sums: &'a AccumulatedSamples<Slot>, frames: &[Place]) -> Self {
        let mut by_target: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
        frames.iter().for_each(|(target, offset)| by_target.entry(*target).or_default().push(*offset));
        UsedPlaces { sums, frames: by_target }
    }

    /// Returns all targets, some more than once.
    pub fn targets(&self) -> impl Iterator<Item = u32> {
        self.sums.slots().map(|slot| slot.target).chain(self.frames.keys().copied())
    }

    /// Returns the offsets of a target, ascending.
    pub fn offsets(&self, target: u32) -> Vec<u64> {
        let numbers = self.sums.slots().enumerate().filter(|(_, slot)| slot.target == target);
        let mut offsets: Vec<u64> =
            numbers.flat_map(|(number, _)| self.sums.of(number)).map(|(o, _)| o).collect();
        offsets.extend(self.frames.get(&target).into_iter().flatten());
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }
}
