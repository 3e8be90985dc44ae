//! Sums of periods by place, in little memory.
//!
//! Enters: samples in any order. Leaves: their sums in the order of places. Never here: what a place is. Memory: 16 bytes for
//! each place, and a buffer. A place is a slot (what is sampled, by whom, by which event) and an offset; the upper half of
//! an offset is part of the slot, since few images have more than 4 GiB.

use rustc_hash::FxHashMap;

/// Samples that are added up at a time.
const BUFFER_ROWS: usize = 1 << 17;

/// Sums by (slot, offset).
pub struct Ledger<S> {
    /// Each slot with the upper half of its offsets.
    slots: Vec<(S, u32)>,
    by_slot: FxHashMap<(S, u32), u32>,
    last: Option<(S, u32, u32)>,
    /// Key (slot above offset) and sum, sorted, each key once.
    sums: Vec<(u64, u64)>,
    buffer: Vec<(u64, u64)>,
}

impl<S: Copy + Eq + std::hash::Hash> Default for Ledger<S> {
    fn default() -> Self {
        Ledger {
            slots: Vec::new(),
            by_slot: FxHashMap::default(),
            last: None,
            sums: Vec::new(),
            buffer: Vec::new(),
        }
    }
}

impl<S: Copy + Eq + std::hash::Hash> Ledger<S> {
    /// Adds a sample.
    pub fn add(&mut self, slot: S, offset: u64, period: u64) {
        let upper = (offset >> 32) as u32;
        let number = match self.last {
            Some((last, of, number)) if last == slot && of == upper => number,
            _ => self.intern(slot, upper),
        };
        if self.buffer.len() == BUFFER_ROWS {
            self.settle();
        }
        self.buffer.push((u64::from(number) << 32 | offset & 0xffff_ffff, period));
    }

    /// All sums: the slots, and for each the place of its sums in the other list, which are of ascending offsets.
    pub fn finish(mut self) -> Settled<S> {
        self.settle();
        self.buffer = Vec::new();
        let mut starts = Vec::with_capacity(self.slots.len() + 1);
        for number in 0..=self.slots.len() as u64 {
            starts.push(self.sums.partition_point(|(key, _)| key >> 32 < number));
        }
        Settled { slots: self.slots, starts, sums: self.sums }
    }

    fn intern(&mut self, slot: S, upper: u32) -> u32 {
        let fresh = self.slots.len() as u32;
        let number = *self.by_slot.entry((slot, upper)).or_insert(fresh);
        if number == fresh {
            self.slots.push((slot, upper));
        }
        self.last = Some((slot, upper, number));
        number
    }

    /// Adds the buffer to the sums: a merge from behind, in place.
    fn settle(&mut self) {
        self.buffer.sort_unstable_by_key(|(key, _)| *key);
        self.buffer.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            if same {
                sum.1 = sum.1.saturating_add(next.1);
            }
            same
        });
        let fresh = self.add_known();
        let (mut from, mut at) = (self.sums.len(), self.sums.len() + fresh);
        self.sums.reserve_exact(fresh);
        self.sums.resize(at, (0, 0));
        for row in self.buffer.drain(..).rev() {
            while from > 0 && self.sums[from - 1].0 > row.0 {
                (from, at) = (from - 1, at - 1);
                self.sums[at] = self.sums[from];
            }
            at -= 1;
            self.sums[at] = row;
        }
        debug_assert!(self.sums.is_sorted_by(|a, b| a.0 < b.0));
    }

    /// Adds what is known already and leaves the rest in the buffer; how much that is.
    fn add_known(&mut self) -> usize {
        let mut at = 0;
        let sums = &mut self.sums;
        self.buffer.retain(|row| {
            // Both are sorted: steps are short where there is much, long where there is little.
            at += sums[at..].partition_point(|sum| sum.0 < row.0);
            match sums.get_mut(at).filter(|sum| sum.0 == row.0) {
                Some(sum) => {
                    sum.1 = sum.1.saturating_add(row.1);
                    false
                }
                None => true,
            }
        });
        self.buffer.len()
    }
}

/// A ledger that is complete.
pub struct Settled<S> {
    slots: Vec<(S, u32)>,
    starts: Vec<usize>,
    sums: Vec<(u64, u64)>,
}

impl<S: Copy> Settled<S> {
    /// The slots by number; a slot comes once for each upper half of offsets.
    pub fn slots(&self) -> impl Iterator<Item = S> + '_ {
        self.slots.iter().map(|(slot, _)| *slot)
    }

    /// Offsets and sums of a slot by its number, ascending.
    pub fn of(&self, number: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let upper = u64::from(self.slots[number].1) << 32;
        let sums = &self.sums[self.starts[number]..self.starts[number + 1]];
        sums.iter().map(move |(key, sum)| (upper | key & 0xffff_ffff, *sum))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn sums_are_those_of_a_map() {
        let (mut ledger, mut expected) = (Ledger::default(), BTreeMap::<(u8, u64), u64>::new());
        let mut random = 3_u64;
        for _ in 0..3 * BUFFER_ROWS + 77 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (slot, upper) = ((random >> 60) as u8, random >> 40 & 1);
            let offset = upper << 35 | random >> 33 & 0x3fff;
            ledger.add(slot, offset, random >> 50);
            *expected.entry((slot, offset)).or_default() += random >> 50;
        }
        let settled = ledger.finish();
        let slots: Vec<u8> = settled.slots().collect();
        let mut found = BTreeMap::new();
        for (number, slot) in slots.into_iter().enumerate() {
            assert!(settled.of(number).is_sorted());
            found.extend(settled.of(number).map(|(offset, sum)| ((slot, offset), sum)));
        }
        assert_eq!(found, expected);
    }
}
