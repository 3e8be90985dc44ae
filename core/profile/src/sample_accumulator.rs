//! Sums by place, of periods or of samples, in little memory.
//!
//! Enters: samples in any order. Leaves: their sums, ordered by place. Never here: what a place is. Memory: 16 bytes
//! for each place, and one buffer (three if a thread adds up). A place is a slot (what was sampled, in which program,
//! by which event) and an offset. The upper half of the offset is stored with the slot, since few images exceed 4 GiB.
//!
//! Samples are put into a buffer, which is sorted and merged into the sums when it is full. A hash map would take 33 to
//! 66 bytes for each place, and one or two cache misses for each sample.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use rustc_hash::FxHashMap;

/// Number of samples in a buffer that a thread adds up.
const BUFFER_ROWS: usize = 1 << 16;
/// Least number of samples in a buffer that is added up without a thread. Such a buffer and its sums fit into most
/// second-level caches. The buffer grows to a quarter of the number of sums, so each sum is moved about five times in
/// all.
const BUFFER_ROWS_MIN: usize = 1 << 13;
const SUMS_PER_BUFFER: usize = 4;
/// Number of slots that are found again without a look-up in the hash map.
const RECENT: usize = 64;

/// A key (the number of the slot in the upper half, the offset in the lower half) and a period or sum.
type Row = (u64, u64);

/// Accumulates sums by slot and offset.
pub struct SampleAccumulator<S> {
    /// The slots by number, each with the upper half of its offsets.
    slots: Vec<(S, u32)>,
    by_slot: FxHashMap<(S, u32), u32>,
    /// Recently used slots with their numbers; the index of a slot is its hint modulo the length.
    recent: Vec<Option<(S, u32, u32)>>,
    buffer: Vec<Row>,
    adding: Adding,
}

/// Where buffers are added up.
enum Adding {
    Here(Sums),
    /// By a thread, which starts when the first buffer is full.
    Beside(Option<Adder>),
}

impl<S: Copy + Eq + std::hash::Hash> Default for SampleAccumulator<S> {
    fn default() -> Self {
        SampleAccumulator::new(Adding::Here(Sums::default()))
    }
}

impl<S: Copy + Eq + std::hash::Hash> SampleAccumulator<S> {
    fn new(adding: Adding) -> Self {
        SampleAccumulator {
            slots: Vec::new(),
            by_slot: FxHashMap::default(),
            recent: vec![None; RECENT],
            buffer: Vec::new(),
            adding,
        }
    }

    /// Returns an accumulator for more samples than one processor should add up: a thread adds up one buffer while the next
    /// one is filled.
    pub fn beside() -> Self {
        SampleAccumulator::new(Adding::Beside(None))
    }

    /// Returns the number of rows held here: sums and buffered samples, so a place may be counted more than once. Sums
    /// that a thread holds are not included.
    pub fn len(&self) -> usize {
        let sums = match &self.adding {
            Adding::Here(sums) => sums.0.len(),
            Adding::Beside(_) => 0,
        };
        sums + self.buffer.len()
    }

    /// Returns whether no sample was added.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a sample. `hint` is any number that few other slots share: slots with different hints are found faster.
    pub fn add(&mut self, slot: S, hint: u32, offset: u64, period: u64) {
        let upper = (offset >> 32) as u32;
        let number = match self.recent[hint as usize % RECENT] {
            Some((last, of, number)) if last == slot && of == upper => number,
            _ => self.intern(slot, hint, upper),
        };
        self.make_room();
        self.buffer.push((u64::from(number) << 32 | offset & 0xffff_ffff, period));
    }

    fn make_room(&mut self) {
        match &mut self.adding {
            Adding::Here(sums) => {
                if self.buffer.len() >= BUFFER_ROWS_MIN.max(sums.0.len() / SUMS_PER_BUFFER) {
                    sums.settle(&mut self.buffer);
                }
            }
            Adding::Beside(adder) if self.buffer.len() == BUFFER_ROWS => {
                let full = std::mem::take(&mut self.buffer);
                self.buffer = adder.get_or_insert_with(Adder::start).exchange(full);
            }
            Adding::Beside(_) => {}
        }
    }

    /// Adds up what is left and returns the sums by slot, each slot's in ascending order of offsets.
    pub fn finish(mut self) -> AccumulatedSamples<S> {
        let mut sums = match self.adding {
            Adding::Here(sums) => sums,
            Adding::Beside(adder) => adder.map_or_else(Sums::default, Adder::finish),
        };
        sums.settle(&mut self.buffer);
        self.buffer = Vec::new();
        let mut starts = Vec::with_capacity(self.slots.len() + 1);
        for number in 0..=self.slots.len() as u64 {
            starts.push(sums.0.partition_point(|(key, _)| key >> 32 < number));
        }
        AccumulatedSamples { slots: self.slots, starts, sums: sums.0 }
    }

    fn intern(&mut self, slot: S, hint: u32, upper: u32) -> u32 {
        let fresh = self.slots.len() as u32;
        let number = *self.by_slot.entry((slot, upper)).or_insert(fresh);
        if number == fresh {
            self.slots.push((slot, upper));
        }
        self.recent[hint as usize % RECENT] = Some((slot, upper, number));
        number
    }
}

/// The thread that adds up buffers, and its channels.
struct Adder {
    full: SyncSender<Vec<Row>>,
    empty: Receiver<Vec<Row>>,
    thread: JoinHandle<Sums>,
}

impl Adder {
    fn start() -> Adder {
        let (full, filled) = sync_channel::<Vec<Row>>(1);
        let (emptied, empty) = sync_channel(2);
        for _ in 0..2 {
            emptied.send(Vec::with_capacity(BUFFER_ROWS)).expect("its other end is here");
        }
        let thread = std::thread::spawn(move || {
            let mut sums = Sums::default();
            for mut buffer in filled {
                sums.settle(&mut buffer);
                // If the accumulator no longer needs the buffer, it is dropped.
                let _ = emptied.send(buffer);
            }
            sums
        });
        Adder { full, empty, thread }
    }

    /// Hands a full buffer to the thread and returns an empty one.
    fn exchange(&self, full: Vec<Row>) -> Vec<Row> {
        self.full.send(full).expect("it takes buffers until it is finished");
        self.empty.recv().expect("it gives each buffer back")
    }

    fn finish(self) -> Sums {
        let Adder { full, empty, thread } = self;
        drop((full, empty));
        thread.join().expect("adding up does not panic")
    }
}

/// Sums as pairs of key and sum, sorted, each key once.
#[derive(Default)]
struct Sums(Vec<Row>);

impl Sums {
    /// Adds the rows of a buffer and empties it.
    fn settle(&mut self, buffer: &mut Vec<Row>) {
        buffer.sort_unstable_by_key(|(key, _)| *key);
        buffer.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            if same {
                sum.1 = sum.1.saturating_add(next.1);
            }
            same
        });
        self.add_known(buffer);
        self.merge(buffer);
        buffer.clear();
        debug_assert!(self.0.is_sorted_by(|a, b| a.0 < b.0));
    }

    /// Adds the rows whose key is known already, and leaves the other rows in the buffer. Buffer and sums are sorted.
    fn add_known(&mut self, buffer: &mut Vec<Row>) {
        let (mut at, sums) = (0, &mut self.0);
        buffer.retain(|row| {
            while at < sums.len() && sums[at].0 < row.0 {
                at += 1;
            }
            match sums.get_mut(at).filter(|sum| sum.0 == row.0) {
                Some(sum) => {
                    sum.1 = sum.1.saturating_add(row.1);
                    false
                }
                None => true,
            }
        });
    }

    /// Inserts rows with new keys by an in-place merge from the end.
    fn merge(&mut self, fresh: &[Row]) {
        let sums = &mut self.0;
        let (mut from, mut at) = (sums.len(), sums.len() + fresh.len());
        sums.reserve_exact(fresh.len());
        sums.resize(at, (0, 0));
        for &row in fresh.iter().rev() {
            while from > 0 && sums[from - 1].0 > row.0 {
                (from, at) = (from - 1, at - 1);
                sums[at] = sums[from];
            }
            at -= 1;
            sums[at] = row;
        }
    }
}

/// The sums of a completed accumulator.
pub struct AccumulatedSamples<S> {
    slots: Vec<(S, u32)>,
    starts: Vec<usize>,
    sums: Vec<Row>,
}

impl<S: Copy> AccumulatedSamples<S> {
    /// Returns the slots by number; a slot occurs once for each upper half of its offsets.
    pub fn slots(&self) -> impl Iterator<Item = S> + '_ {
        self.slots.iter().map(|(slot, _)| *slot)
    }

    /// Returns the offsets and sums of the slot with this number, by ascending offset.
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
        add_up(SampleAccumulator::default());
        add_up(SampleAccumulator::beside());
    }

    fn add_up(mut accumulator: SampleAccumulator<u8>) {
        let mut expected = BTreeMap::<(u8, u64), u64>::new();
        let mut random = 3_u64;
        for _ in 0..3 * BUFFER_ROWS + 77 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (slot, upper) = ((random >> 60) as u8, random >> 40 & 1);
            let offset = upper << 35 | random >> 33 & 0x3fff;
            accumulator.add(slot, (random >> 59) as u32, offset, random >> 50);
            *expected.entry((slot, offset)).or_default() += random >> 50;
        }
        assert!(!accumulator.is_empty());
        let sums = accumulator.finish();
        let slots: Vec<u8> = sums.slots().collect();
        let mut found = BTreeMap::new();
        for (number, slot) in slots.into_iter().enumerate() {
            assert!(sums.of(number).is_sorted());
            found.extend(sums.of(number).map(|(offset, sum)| ((slot, offset), sum)));
        }
        assert_eq!(found, expected);
    }
}
