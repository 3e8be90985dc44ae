//! Pages that are zero wherever they were not read before.
//!
//! Enters: ranges of page numbers. Leaves: whether a page is in one. Complexity: linear in the ranges, of which there are few.

use std::ops::Range;

/// Ranges of page numbers, in no order.
#[derive(Debug, Default)]
pub struct Zeros(Vec<Range<u64>>);

impl Zeros {
    pub fn contains(&self, number: u64) -> bool {
        self.0.iter().any(|range| range.contains(&number))
    }

    pub fn add(&mut self, pages: Range<u64>) {
        self.0.push(pages);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Lets pages from `to` on be zero if those of a range were, as many as it has.
    pub fn relocate(&mut self, from: Range<u64>, to: u64) {
        let target = to..to + (from.end - from.start);
        let moved = |range: &Range<u64>| {
            let part = range.start.max(from.start)..range.end.min(from.end);
            (!part.is_empty()).then(|| part.start - from.start + to..part.end - from.start + to)
        };
        let moved: Vec<Range<u64>> = self.0.iter().filter_map(moved).collect();
        let outside = |range: &Range<u64>| {
            [range.start..range.end.min(target.start), range.start.max(target.end)..range.end]
        };
        self.0 = self.0.iter().flat_map(outside).filter(|range| !range.is_empty()).chain(moved).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_as_zero_as_those_that_were_moved_there() {
        let mut zeros = Zeros::default();
        zeros.add(10..20);
        zeros.add(30..40);
        zeros.relocate(8..14, 32);
        let is_zero = |numbers: [u64; 8]| numbers.map(|number| zeros.contains(number));
        let expected = [true, false, false, true, true, true, false, false];
        assert_eq!(is_zero([31, 32, 33, 34, 37, 38, 40, 9]), expected);
        assert!(zeros.contains(10) && zeros.contains(19) && !zeros.contains(20));
    }
}
