//! Sums of branch stacks (LBR, BRBE): the last branches that a processor took before a sample.
//!
//! Enters: stacks, with their addresses as places in images. Leaves: transfers of control as evidence of executions: the
//! taken branches as they were recorded, and the fall-through of each conditional branch that lies in the
//! straight-line code between two of them. Never here: a frequency, or decoding of code (the caller decodes). Cost: two
//! look-ups for each branch, and one decoding for each run of code.
//!
//! Stacks begin at random times, as path bursts do, so slow code has more of them than its share of executions. The
//! analysis uses them only for the directions of branches and for how often code ran relative to other code of its
//! procedure. This bias affects both little. (The stacks that Dwell records itself begin at random branches, so they
//! have no such bias.)

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::{CodePlace, ControlTransfer, ExecutionEvidence, ImageId, ImageOffset, VirtualAddress};

/// Number of distinct branches and of distinct runs that are counted. Only hostile input has more; the others are left
/// out.
const KINDS_MAX: usize = 4 << 20;
/// Length limit of straight-line code, in bytes. A longer run is treated as an error in the stack.
const RUN_BYTES_MAX: u64 = 16 << 10;

/// An entry of a branch stack as the kernel writes it: `struct perf_branch_entry` of `include/uapi/linux/perf_event.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchEntry {
    /// The address of the branch instruction.
    pub from: VirtualAddress,
    /// The address of the branch target.
    pub to: VirtualAddress,
    /// The other attributes of the branch, as bit fields from the lowest bit on.
    pub flags: u64,
}

impl BranchEntry {
    /// Size of an entry, in bytes.
    pub const BYTES: usize = 24;

    /// Returns whether the branch was only speculated and never executed. AMD processors record such branches too
    /// (Linux 6.1).
    pub fn is_wrong_path(self) -> bool {
        /// Position of `spec`, two bits after mispred, predicted, in_tx, abort, cycles (16) and type (4).
        const SPEC_SHIFT: u32 = 24;
        /// `PERF_BR_SPEC_WRONG_PATH`.
        const WRONG_PATH: u64 = 1;
        self.flags >> SPEC_SHIFT & 3 == WRONG_PATH
    }
}

/// The sums of the branches of all stacks.
#[derive(Clone, Debug)]
pub struct BranchSums<I> {
    taken: FxHashMap<(CodePlace<I>, CodePlace<I>), u64>,
    /// Counts of straight-line runs: from the target of a taken branch to the offset of the next taken branch.
    straight: FxHashMap<(CodePlace<I>, ImageOffset), u64>,
    /// Number of branches that were counted.
    pub branches: u64,
}

impl<I> Default for BranchSums<I> {
    fn default() -> Self {
        BranchSums { taken: FxHashMap::default(), straight: FxHashMap::default(), branches: 0 }
    }
}

impl<I: Copy + Ord + Hash> BranchSums<I> {
    /// Adds a stack, the latest branch first.
    ///
    /// A taken branch is counted together with the straight-line code that led to it, in which no branch was taken. The
    /// run that led to the oldest branch is not known, so this branch is not counted: counting it alone would favour
    /// taken branches. If the address of either end belongs to no image, the run is broken, and the branches that need
    /// it are not counted.
    pub fn add(&mut self, stack: impl Iterator<Item = (Option<CodePlace<I>>, Option<CodePlace<I>>)>) {
        let mut later: (Option<CodePlace<I>>, Option<CodePlace<I>>) = (None, None);
        for (from, to) in stack {
            if let (Some(start), (Some(end), Some(next))) = (to, later)
                && start.image == end.image
                && end.offset.0.checked_sub(start.offset.0).is_some_and(|bytes| bytes <= RUN_BYTES_MAX)
            {
                self.branches += 1;
                bump(&mut self.straight, (start, end.offset));
                bump(&mut self.taken, (end, next));
            }
            later = (from, to);
        }
    }

    /// Returns the images of branches and their targets, some more than once.
    pub fn images(&self) -> impl Iterator<Item = I> + '_ {
        self.taken.keys().flat_map(|(from, to)| [from.image, to.image])
    }

    /// Returns all sums as one piece of evidence, or `None` if there are no transfers.
    ///
    /// `fall_throughs` decodes the code of an image from one offset up to, but not including, another. It returns the
    /// offsets of the conditional branches there, each with the offset of the instruction after it. It is called image
    /// by image, in ascending order. `id` returns the name of an image; transfers of images without a name are left
    /// out.
    pub fn evidence(
        self,
        mut fall_throughs: impl FnMut(I, u64, u64) -> Vec<(u64, u64)>,
        id: impl Fn(I) -> Option<ImageId>,
    ) -> Option<ExecutionEvidence> {
        let mut sums = self.taken;
        let mut straight: Vec<_> = self.straight.into_iter().collect();
        straight.sort_unstable();
        for ((start, end), count) in straight {
            let image = start.image;
            for (from, to) in fall_throughs(image, start.offset.0, end.0) {
                let [from, to] = [from, to].map(|offset| CodePlace { image, offset: ImageOffset(offset) });
                let sum = sums.entry((from, to)).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        let place = |p: CodePlace<I>| Some(CodePlace { image: id(p.image)?, offset: p.offset });
        let transfer =
            |((from, to), count)| Some(ControlTransfer { from: place(from)?, to: place(to)?, count });
        let mut transfers: Vec<ControlTransfer> = sums.into_iter().filter_map(transfer).collect();
        transfers.sort();
        // Two image numbers may have the same name.
        transfers.dedup_by(|next, sum| {
            let same = (&next.from, &next.to) == (&sum.from, &sum.to);
            if same {
                sum.count = sum.count.saturating_add(next.count);
            }
            same
        });
        (!transfers.is_empty()).then_some(ExecutionEvidence::BranchStacks(transfers))
    }
}

fn bump<K: Eq + Hash>(sums: &mut FxHashMap<K, u64>, key: K) {
    if sums.len() < KINDS_MAX || sums.contains_key(&key) {
        *sums.entry(key).or_default() += 1;
    }
}

/// Returns the note that an epoch records about its branch stacks.
pub fn stacks_note(stacks: u64, branches: u64) -> String {
    format!("{stacks} samples have branch stacks (LBR, BRBE): frequencies use their {branches} branches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_branches_and_what_lies_between() {
        let place = |offset| CodePlace { image: 0, offset: ImageOffset(offset) };
        let at = |offset| Some(place(offset));
        let mut sums = BranchSums::default();
        // Two iterations of a loop from 10 to 20, which is entered from elsewhere.
        sums.add([(at(20), at(10)), (at(20), at(10)), (None, at(12))].into_iter());
        sums.add([(at(5), at(400)), (at(7), at(9))].into_iter());
        assert_eq!(sums.taken[&(place(20), place(10))], 2);
        assert_eq!(
            (sums.straight[&(place(10), ImageOffset(20))], sums.straight[&(place(12), ImageOffset(20))]),
            (1, 1)
        );
        // A run that goes backwards is not straight-line code.
        assert_eq!((sums.straight.len(), sums.branches), (2, 2));
    }

    #[test]
    fn unnamed_images_are_not_counted_and_equal_names_are_summed() {
        let at = |image, offset| Some(CodePlace { image, offset: ImageOffset(offset) });
        let mut sums = BranchSums::default();
        for image in 0..3 {
            sums.add([(at(image, 20), at(image, 10)), (at(image, 20), at(image, 10))].into_iter());
        }
        let mut asked = Vec::new();
        let decode = |image: u8, start, end| {
            asked.push((image, start, end));
            vec![(15, 17)]
        };
        // Images 0 and 1 are the same file; image 2 is not a file.
        let sums = sums.evidence(decode, |image| (image < 2).then(|| ImageId::named("file")));
        let Some(ExecutionEvidence::BranchStacks(transfers)) = sums else { panic!("{sums:?}") };
        let told: Vec<_> = transfers.iter().map(|t| (t.from.offset.0, t.to.offset.0, t.count)).collect();
        assert_eq!(told, [(15, 17, 2), (20, 10, 2)]);
        assert_eq!(asked, [(0, 10, 20), (1, 10, 20), (2, 10, 20)]);
        assert!(BranchSums::<u8>::default().evidence(|_, _, _| Vec::new(), |_| None).is_none());
    }

    #[test]
    fn wrong_paths_are_recognized_by_their_flags() {
        let entry = |flags| BranchEntry { from: VirtualAddress(1), to: VirtualAddress(2), flags };
        // mispred, 0xffff cycles, type 15: all bits around `spec` are set.
        assert!(!entry(0x00ff_ffff).is_wrong_path());
        assert_eq!([0, 1, 2, 3].map(|spec| entry(spec << 24).is_wrong_path()), [false, true, false, false]);
    }
}
