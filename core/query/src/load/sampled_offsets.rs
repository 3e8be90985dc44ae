//! The sampled places of an image, stored compactly.
//!
//! Input: offsets in ascending order, with counts. Output: the same by index. This module does not know what is at the
//! offsets.

use dwell_profile::ImageOffset;

/// Samples by ascending offset. A *point* is an offset with its counts. It takes 4 bytes for the offset and 8 for each
/// count.
#[derive(Debug, Default)]
pub struct SampledOffsets {
    /// Lower halves of the offsets.
    offsets: Vec<u32>,
    /// Upper halves of the offsets, each with the index of its first point. Few images have more than one.
    uppers: Vec<(usize, u32)>,
    /// Counts of all points; for each point there is one count for every event.
    counts: Vec<u64>,
    events: usize,
}

impl SampledOffsets {
    /// Creates an empty table with room for `points` points, each with a count for `events` events.
    pub(crate) fn with_capacity(points: usize, events: usize) -> Self {
        let (offsets, counts) = (Vec::with_capacity(points), Vec::with_capacity(points * events));
        SampledOffsets { offsets, uppers: Vec::new(), counts, events }
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns the offset of a point.
    pub fn offset(&self, index: usize) -> ImageOffset {
        let upper = self.uppers.partition_point(|(first, _)| *first <= index) - 1;
        ImageOffset(u64::from(self.uppers[upper].1) << 32 | u64::from(self.offsets[index]))
    }

    /// Returns the samples of a point, by event.
    pub fn counts(&self, index: usize) -> &[u64] {
        &self.counts[index * self.events..(index + 1) * self.events]
    }

    /// Iterates over all points.
    pub fn iter(&self) -> impl Iterator<Item = (ImageOffset, &[u64])> {
        (0..self.offsets.len()).map(|index| (self.offset(index), self.counts(index)))
    }

    /// Begins a point at an offset, which must not be less than the last one. If it equals the last one, the call does
    /// nothing.
    pub(crate) fn push(&mut self, offset: ImageOffset) {
        let next = self.offsets.len();
        if next > 0 && self.offset(next - 1) == offset {
            return;
        }
        let upper = (offset.0 >> 32) as u32;
        if self.uppers.last().is_none_or(|(_, last)| *last != upper) {
            self.uppers.push((next, upper));
        }
        self.offsets.push(offset.0 as u32);
        self.counts.resize(self.counts.len() + self.events, 0);
    }

    /// Adds samples of an event to the last point.
    pub(crate) fn add(&mut self, event: usize, count: u64) {
        let at = self.counts.len() - self.events + event;
        self.counts[at] = self.counts[at].saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_keep_offsets_of_any_size() {
        let offsets = [3, u64::from(u32::MAX), 1 << 32, (1 << 32) + 3, 5 << 32 | 2, u64::MAX];
        let mut points = SampledOffsets::with_capacity(offsets.len(), 2);
        for (number, offset) in offsets.into_iter().enumerate() {
            points.push(ImageOffset(offset));
            points.push(ImageOffset(offset));
            points.add(1, number as u64);
        }
        assert_eq!(points.uppers.len(), 4);
        let kept: Vec<_> = points.iter().map(|(offset, counts)| (offset.0, counts.to_vec())).collect();
        let expected =
            offsets.into_iter().enumerate().map(|(number, offset)| (offset, vec![0, number as u64]));
        assert_eq!(kept, expected.collect::<Vec<_>>());
    }
}
