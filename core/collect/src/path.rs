//! The path of a thread, added up.
//!
//! Enters: the blocks of code that a thread passed, by number. Leaves: how often each step from the end of one block to the
//! beginning of the next was made. Never here: what an address means. The cost is constant for each block, and linear in the
//! number of different steps in the end. While blocks are passed, addresses are numbers, as the emulator has them in registers.

use dwell_profile::VirtualAddress;
use rustc_hash::FxHashMap;

/// How often a thread went from one address to another. Steps within a block, always to the next instruction, are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Where it began and ended.
    pub first: VirtualAddress,
    pub last: VirtualAddress,
    /// Number of all its steps.
    pub steps: u64,
    /// From, to, and how often, in order.
    pub transfers: Vec<Transfer>,
}

/// Where a step leads from, where it leads to, and how often it was made.
pub type Transfer = (VirtualAddress, VirtualAddress, u64);

impl Path {
    /// Adds up the path through these addresses.
    pub fn through(pcs: &[u64]) -> Path {
        let mut counter = PathCounter::new(0);
        pcs.iter().for_each(|pc| counter.pass_one(*pc));
        counter.path()
    }
}

impl Path {
    /// Returns this path with its transfers in order, each once.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn in_order(mut self) -> Path {
        self.transfers.sort_unstable();
        self.transfers.dedup_by(|next, before| {
            let is_same = (next.0, next.1) == (before.0, before.1);
            before.2 += if is_same { next.2 } else { 0 };
            is_same
        });
        self
    }

    /// Returns the transfers with plain numbers for addresses.
    #[cfg(test)]
    pub fn numbers(&self) -> Vec<(u64, u64, u64)> {
        self.transfers.iter().map(|(from, to, count)| (from.0, to.0, *count)).collect()
    }

    /// Returns the part of this path since `earlier`, which is its beginning.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn since(&self, earlier: &Path) -> Path {
        let before: FxHashMap<(VirtualAddress, VirtualAddress), u64> =
            earlier.transfers.iter().map(|t| ((t.0, t.1), t.2)).collect();
        let left = |&(from, to, count): &Transfer| {
            (from, to, count - before.get(&(from, to)).copied().unwrap_or(0).min(count))
        };
        let transfers = self.transfers.iter().map(left).filter(|t| t.2 > 0).collect();
        Path {
            first: earlier.last,
            last: self.last,
            steps: self.steps.saturating_sub(earlier.steps),
            transfers,
        }
    }
}

/// A block: instructions that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The addresses of its first and its last instruction.
    pub first: u64,
    pub last: u64,
    /// Number of its instructions.
    pub steps: u8,
}

/// Adds up a path whose beginning does not count: a number of steps, or half of a path that is shorter than twice as many.
#[derive(Default)]
pub struct PathCounter {
    before: usize,
    made: usize,
    /// The blocks in the beginning.
    beginning: Vec<u32>,
    /// By number, what the blocks are. No steps: not passed yet.
    lengths: Vec<u8>,
    ends: Vec<(u64, u64)>,
    counted: Counted,
    /// Numbers of blocks that are only known by an address.
    by_pc: FxHashMap<u64, u32>,
}

/// The part that counts.
#[derive(Clone, Default)]
struct Counted {
    first: Option<u32>,
    last: u32,
    steps: usize,
    /// The first two blocks that followed each, by its number, and how often.
    usual: Vec<[(u32, u32); 2]>,
    /// All else that followed, and how often.
    other: FxHashMap<(u32, u32), u32>,
}

impl Counted {
    fn pass(&mut self, number: u32, steps: u8) {
        if self.first.is_none() {
            self.first = Some(number);
        } else {
            self.count(self.last, number);
        }
        self.last = number;
        self.steps += usize::from(steps);
    }

    fn count(&mut self, from: u32, to: u32) {
        if self.usual.len() <= from as usize {
            self.usual.resize(from as usize + 1, [(0, 0); 2]);
        }
        for (known, count) in &mut self.usual[from as usize] {
            if *known == to || *count == 0 {
                (*known, *count) = (to, *count + 1);
                return;
            }
        }
        *self.other.entry((from, to)).or_default() += 1;
    }

    fn path(&self, ends: &[(u64, u64)]) -> Path {
        let Some(first) = self.first else { return Path::default() };
        let end = |number: u32| ends[number as usize];
        let usual = (0..).zip(&self.usual).flat_map(|(from, next)| next.map(|(to, count)| (from, to, count)));
        let other = self.other.iter().map(|((from, to), count)| (*from, *to, *count));
        let counted = usual.chain(other).filter(|(.., count)| *count > 0);
        // Blocks that begin at different addresses may end at the same one.
        let transfer = |(from, to, count): (u32, u32, u32)| {
            (VirtualAddress(end(from).1), VirtualAddress(end(to).0), count.into())
        };
        let transfers = counted.map(transfer).collect();
        let steps = self.steps.saturating_sub(1) as u64;
        let (first, last) = (VirtualAddress(end(first).0), VirtualAddress(end(self.last).1));
        Path { first, last, steps, transfers }.in_order()
    }
}

impl PathCounter {
    /// Creates a counter of paths whose first `before` steps do not count.
    pub fn new(before: usize) -> PathCounter {
        PathCounter { before, ..PathCounter::default() }
    }

    /// Adds a block. `span` says what it is, if it is passed for the first time.
    pub fn pass(&mut self, number: u32, span: impl FnOnce() -> Span) {
        let at = number as usize;
        if self.lengths.len() <= at {
            self.lengths.resize(at + 1, 0);
            self.ends.resize(at + 1, (0, 0));
        }
        if self.lengths[at] == 0 {
            let span = span();
            (self.lengths[at], self.ends[at]) = (span.steps.max(1), (span.first, span.last));
        }
        let steps = self.lengths[at];
        if self.made < 2 * self.before {
            self.beginning.push(number);
        }
        if self.made >= self.before {
            self.counted.pass(number, steps);
        }
        self.made += usize::from(steps);
    }

    /// Adds one instruction.
    pub fn pass_one(&mut self, pc: u64) {
        let new = self.by_pc.len() as u32;
        let number = *self.by_pc.entry(pc).or_insert(new);
        self.pass(number, || Span { first: pc, last: pc, steps: 1 });
    }

    /// Returns the path so far, whose last step leads to the instruction at `end`.
    #[cfg(test)]
    pub fn path_so_far(&self, end: u64) -> Path {
        let (mut counted, mut ends) = (self.counted.clone(), self.ends.clone());
        ends.push((end, end));
        counted.pass(ends.len() as u32 - 1, 1);
        counted.path(&ends)
    }

    /// Returns the number of instructions so far.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn made(&self) -> usize {
        self.made
    }

    /// Returns the path, whose last step leads to the instruction at `end`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn path_to(mut self, end: u64) -> Path {
        let number = self.ends.len() as u32;
        self.pass(number, || Span { first: end, last: end, steps: 1 });
        self.path()
    }

    /// Returns the path.
    pub fn path(self) -> Path {
        if self.made >= 2 * self.before {
            return self.counted.path(&self.ends);
        }
        let mut counted = Counted::default();
        let mut made = 0;
        for number in self.beginning {
            let steps = self.lengths[number as usize];
            if 2 * made >= self.made {
                counted.pass(number, steps);
            }
            made += usize::from(steps);
        }
        counted.path(&self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(counter: &mut PathCounter, number: u32, first: u64, steps: u8) {
        counter.pass(number, || Span { first, last: first + u64::from(steps) - 1, steps });
    }

    #[test]
    fn steps_between_blocks_are_counted() {
        let mut counter = PathCounter::new(0);
        for (number, first, steps) in
            [(0, 1, 3), (1, 7, 1), (0, 1, 3), (1, 7, 1), (2, 9, 1), (0, 1, 3), (2, 9, 1)]
        {
            pass(&mut counter, number, first, steps);
        }
        let path = counter.path();
        assert_eq!(path.numbers(), [(3, 7, 2), (3, 9, 1), (7, 1, 1), (7, 9, 1), (9, 1, 1)]);
        assert_eq!((path.first.0, path.last.0, path.steps), (1, 9, 12));
    }

    #[test]
    fn a_block_may_be_followed_by_many_and_overlap_another() {
        let mut counter = PathCounter::new(0);
        for next in [4, 5, 6, 4, 5, 6, 6] {
            pass(&mut counter, 0, 10, 5);
            pass(&mut counter, next, 100 * u64::from(next), 1);
        }
        pass(&mut counter, 1, 12, 3);
        let path = counter.path_to(600);
        let to = |to| path.numbers().into_iter().find(|t| (t.0, t.1) == (14, to)).map(|t| t.2);
        assert_eq!([to(400), to(500), to(600)], [Some(2), Some(2), Some(4)]);
        assert_eq!((path.steps, path.last), (7 * 6 + 3, VirtualAddress(600)));
    }

    #[test]
    fn the_beginning_does_not_count() {
        let counted = |blocks: u32| {
            let mut counter = PathCounter::new(10);
            (0..blocks).for_each(|n| pass(&mut counter, n, 10 * u64::from(n), 2));
            let path = counter.path();
            (path.first.0, path.last.0, path.steps)
        };
        assert_eq!(counted(20), (50, 191, 29));
        assert_eq!(counted(4), (20, 31, 3), "half of a short path");
        assert_eq!(counted(0), (0, 0, 0));
    }
}
