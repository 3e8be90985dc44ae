//! Branch stacks (LBR, BRBE): the last branches that a processor took before a sample, added up.
//!
//! Enters: stacks, their addresses as places in images. Leaves: transfers of control as path bursts have them: taken branches
//! as they were recorded, and the fall-through of each conditional branch that lies in straight-line code between two of them.
//! Never here: a frequency, code (the caller decodes). Cost: two look-ups for each branch, one decoding for each run of code.
//!
//! Stacks begin at random times, as path bursts do, so slow code has more of them than its share of executions. What is
//! used of them is where branches go, and how often code ran beside other code of its procedure: that bends both little.
//! (Stacks that we record begin at random branches, so that there is nothing to bend.)

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::{ImageId, ImageOffset, PathBurst, PathPlace, PathTransfer};

/// Kinds of branches and runs that are told apart; of more, which only hostile input has, the others are left out.
const KINDS_MAX: usize = 4 << 20;
/// Straight-line code that is longer is a mistake.
const RUN_BYTES_MAX: u64 = 16 << 10;

/// A place, and its image by a number that is cheap to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodePlace<I> {
    /// The image.
    pub image: I,
    /// Where in it.
    pub offset: u64,
}

/// An entry of a stack as the kernel writes it: `struct perf_branch_entry` of `include/uapi/linux/perf_event.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchEntry {
    /// The branch.
    pub from: u64,
    /// Where it led.
    pub to: u64,
    /// What else is told of it, in bits from the lowest on.
    pub flags: u64,
}

impl BranchEntry {
    /// Bytes of an entry.
    pub const BYTES: usize = 24;

    /// Whether the processor only believed that it would come this way (AMD records such branches too, Linux 6.1): it was
    /// not executed.
    pub fn is_wrong_path(self) -> bool {
        /// `spec`, two bits behind mispred, predicted, in_tx, abort, cycles (16) and type (4).
        const SPEC_SHIFT: u32 = 24;
        /// `PERF_BR_SPEC_WRONG_PATH`.
        const WRONG_PATH: u64 = 1;
        self.flags >> SPEC_SHIFT & 3 == WRONG_PATH
    }
}

/// Branches of all stacks.
#[derive(Clone, Debug)]
pub struct BranchSums<I> {
    taken: FxHashMap<(CodePlace<I>, CodePlace<I>), u64>,
    /// From where a branch led to the next branch that was taken.
    straight: FxHashMap<(CodePlace<I>, u64), u64>,
    /// How many branches there were.
    pub branches: u64,
}

impl<I> Default for BranchSums<I> {
    fn default() -> Self {
        BranchSums { taken: FxHashMap::default(), straight: FxHashMap::default(), branches: 0 }
    }
}

impl<I: Copy + Ord + Hash> BranchSums<I> {
    /// Adds a stack, the latest branch first. A taken branch counts with the straight line that led to it, whose branches were
    /// not taken: the oldest one's is not known, and to count it would favour what is taken. An end that nothing explains
    /// breaks the line: what needs it does not count.
    pub fn add(&mut self, stack: impl Iterator<Item = (Option<CodePlace<I>>, Option<CodePlace<I>>)>) {
        let mut later: (Option<CodePlace<I>>, Option<CodePlace<I>>) = (None, None);
        for (from, to) in stack {
            if let (Some(start), (Some(end), Some(next))) = (to, later)
                && start.image == end.image
                && end.offset.checked_sub(start.offset).is_some_and(|bytes| bytes <= RUN_BYTES_MAX)
            {
                self.branches += 1;
                bump(&mut self.straight, (start, end.offset));
                bump(&mut self.taken, (end, next));
            }
            later = (from, to);
        }
    }

    /// The images of branches and their targets, some more than once.
    pub fn images(&self) -> impl Iterator<Item = I> + '_ {
        self.taken.keys().flat_map(|(from, to)| [from.image, to.image])
    }

    /// All of it as one burst whose ends are not known. `fall_throughs` decodes the code of an image from an offset up to
    /// before another: offsets of its conditional branches, each with that of what comes next; it is asked image by image, in
    /// ascending order. `id` names images, those that count.
    pub fn burst(
        self,
        number: u32,
        mut fall_throughs: impl FnMut(I, u64, u64) -> Vec<(u64, u64)>,
        id: impl Fn(I) -> Option<ImageId>,
    ) -> Option<PathBurst> {
        let mut sums = self.taken;
        let mut straight: Vec<_> = self.straight.into_iter().collect();
        straight.sort_unstable();
        for ((start, end), count) in straight {
            let image = start.image;
            for (from, to) in fall_throughs(image, start.offset, end) {
                let [from, to] = [from, to].map(|offset| CodePlace { image, offset });
                let sum = sums.entry((from, to)).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        let place = |p: CodePlace<I>| Some(PathPlace { image: id(p.image)?, offset: ImageOffset(p.offset) });
        let transfer = |((from, to), count)| Some(PathTransfer { from: place(from)?, to: place(to)?, count });
        let mut transfers: Vec<PathTransfer> = sums.into_iter().filter_map(transfer).collect();
        transfers.sort();
        // Two numbers may have one name.
        transfers.dedup_by(|next, sum| {
            let same = (&next.from, &next.to) == (&sum.from, &sum.to);
            if same {
                sum.count = sum.count.saturating_add(next.count);
            }
            same
        });
        let nowhere = PathPlace { image: ImageId::unknown(), offset: ImageOffset(0) };
        let burst = PathBurst { number, first: nowhere.clone(), last: nowhere, transfers };
        (!burst.transfers.is_empty()).then_some(burst)
    }
}

fn bump<K: Eq + Hash>(sums: &mut FxHashMap<K, u64>, key: K) {
    if sums.len() < KINDS_MAX || sums.contains_key(&key) {
        *sums.entry(key).or_default() += 1;
    }
}

/// What an epoch notes of its stacks.
pub fn stacks_note(stacks: u64, branches: u64) -> String {
    format!("{stacks} samples have branch stacks (LBR, BRBE): frequencies use their {branches} branches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_branches_and_what_lies_between() {
        let at = |offset| Some(CodePlace { image: 0, offset });
        let mut sums = BranchSums::default();
        // Two turns of a loop from 10 to 20, entered from elsewhere.
        sums.add([(at(20), at(10)), (at(20), at(10)), (None, at(12))].into_iter());
        sums.add([(at(5), at(400)), (at(7), at(9))].into_iter());
        let place = |offset| CodePlace { image: 0, offset };
        assert_eq!(sums.taken[&(place(20), place(10))], 2);
        assert_eq!((sums.straight[&(place(10), 20)], sums.straight[&(place(12), 20)]), (1, 1));
        // Backwards is no straight line.
        assert_eq!((sums.straight.len(), sums.branches), (2, 2));
    }

    #[test]
    fn what_has_no_name_does_not_count_and_what_has_one_name_counts_together() {
        let at = |image, offset| Some(CodePlace { image, offset });
        let mut sums = BranchSums::default();
        for image in 0..3 {
            sums.add([(at(image, 20), at(image, 10)), (at(image, 20), at(image, 10))].into_iter());
        }
        let mut asked = Vec::new();
        let decode = |image: u8, start, end| {
            asked.push((image, start, end));
            vec![(15, 17)]
        };
        // The first two are one file; the third is none.
        let burst = sums.burst(7, decode, |image| (image < 2).then(|| ImageId::named("file"))).unwrap();
        let told: Vec<_> =
            burst.transfers.iter().map(|t| (t.from.offset.0, t.to.offset.0, t.count)).collect();
        assert_eq!((told, burst.number), (vec![(15, 17, 2), (20, 10, 2)], 7));
        assert!(burst.window().is_none());
        assert_eq!(asked, [(0, 10, 20), (1, 10, 20), (2, 10, 20)]);
        assert!(BranchSums::<u8>::default().burst(1, |_, _, _| Vec::new(), |_| None).is_none());
    }

    #[test]
    fn a_wrong_path_is_told_by_its_flags() {
        let entry = |flags| BranchEntry { from: 1, to: 2, flags };
        // mispred, 0xffff cycles, type 15: all bits beside it.
        assert!(!entry(0x00ff_ffff).is_wrong_path());
        assert_eq!([0, 1, 2, 3].map(|spec| entry(spec << 24).is_wrong_path()), [false, true, false, false]);
    }
}
