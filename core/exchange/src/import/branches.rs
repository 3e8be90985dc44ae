//! Branch stacks (LBR, BRBE): the last branches that a processor took before a sample, added up.
//!
//! Enters: stacks by process, then the images that their code is in. Leaves: transfers of control as path bursts have them:
//! taken branches as they were recorded, and the fall-through of each conditional branch that lies in straight-line code
//! between two of them. Never here: a frequency. Cost: one look-up for each address, one decoding for each run of code.
//!
//! Stacks begin at random times, as path bursts do, so slow code has more of them than its share of executions. What is
//! used of them is where branches go, and how often code ran beside other code of its procedure: that bends both little.

use std::collections::BTreeMap;

use dwell_image::{Flow, Image};
use dwell_profile::{ImageId, ImageKind, ImageOffset, ImageRecord, PathBurst, PathPlace, PathTransfer};
use rustc_hash::FxHashMap;

/// Kinds of branches and runs that are told apart; of more, which only hostile files have, the others are left out.
const KINDS_MAX: usize = 4 << 20;
/// Straight-line code that is longer is a mistake.
const RUN_BYTES_MAX: u64 = 16 << 10;
/// As much code as that is decoded.
const DECODED_BYTES_MAX: u64 = 64 << 20;

/// A place in what is mapped, which is an index of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// What is mapped.
    pub target: u32,
    /// Where in it.
    pub offset: u64,
}

/// Branches of all stacks.
#[derive(Debug, Default)]
pub struct BranchSums {
    taken: FxHashMap<(Place, Place), u64>,
    /// From where a branch led to the next branch that was taken.
    straight: FxHashMap<(Place, u64), u64>,
    /// How many branches there were.
    pub branches: u64,
}

impl BranchSums {
    /// Adds a stack, the latest branch first. A taken branch counts with the straight line that led to it, whose branches were
    /// not taken: the oldest one's is not known, and to count it would favour what is taken.
    pub fn add(&mut self, stack: impl Iterator<Item = (Option<Place>, Option<Place>)>) {
        let mut later: (Option<Place>, Option<Place>) = (None, None);
        for (from, to) in stack {
            if let (Some(start), (Some(end), Some(next))) = (to, later)
                && start.target == end.target
                && end.offset.checked_sub(start.offset).is_some_and(|bytes| bytes <= RUN_BYTES_MAX)
            {
                self.branches += 1;
                bump(&mut self.straight, (start, end.offset));
                bump(&mut self.taken, (end, next));
            }
            later = (from, to);
        }
    }

    /// All of it as one burst whose ends are not known; `records` are the images of the targets.
    pub fn burst(self, records: &BTreeMap<u32, ImageRecord>) -> Option<PathBurst> {
        let mut sums: BTreeMap<(Place, Place), u64> = self.taken.into_iter().collect();
        let mut room = DECODED_BYTES_MAX;
        for (&target, record) in records.iter().filter(|(_, r)| r.kind == ImageKind::File) {
            let runs = self.straight.iter().filter(|((start, _), _)| start.target == target);
            let mut runs = runs.map(|((start, end), count)| (start.offset, *end, *count)).peekable();
            if runs.peek().is_none() {
                continue;
            }
            let Some(image) = open(record) else { continue };
            for (start, end, count) in runs {
                for (from, to) in not_taken(&image, start, end, &mut room) {
                    let [from, to] = [from, to].map(|offset| Place { target, offset });
                    let sum = sums.entry((from, to)).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
        }
        let place = |p: Place| {
            let record = records.get(&p.target).filter(|r| r.kind == ImageKind::File)?;
            Some(PathPlace { image: record.id.clone(), offset: ImageOffset(p.offset) })
        };
        let transfer = |((from, to), count)| Some(PathTransfer { from: place(from)?, to: place(to)?, count });
        let mut transfers: Vec<PathTransfer> = sums.into_iter().filter_map(transfer).collect();
        transfers.sort();
        transfers.dedup_by(|next, sum| {
            let same = (&next.from, &next.to) == (&sum.from, &sum.to);
            if same {
                sum.count = sum.count.saturating_add(next.count);
            }
            same
        });
        let nowhere = PathPlace { image: ImageId::unknown(), offset: ImageOffset(0) };
        let burst = PathBurst { number: 1, first: nowhere.clone(), last: nowhere, transfers };
        (!burst.transfers.is_empty()).then_some(burst)
    }
}

fn bump<K: Eq + std::hash::Hash>(sums: &mut FxHashMap<K, u64>, key: K) {
    if sums.len() < KINDS_MAX || sums.contains_key(&key) {
        *sums.entry(key).or_default() += 1;
    }
}

/// The image, if it is the one that was sampled.
fn open(record: &ImageRecord) -> Option<Image> {
    let image = Image::open(&record.path).ok()?;
    let id = record.id.build_id();
    (id.is_none() || image.build_id() == id.as_ref()).then_some(image)
}

/// Offsets of each conditional branch from `start` up to before `end`, with those of what comes next.
fn not_taken(image: &Image, start: u64, end: u64, room: &mut u64) -> Vec<(u64, u64)> {
    let Some(address) = image.address_of(ImageOffset(start)) else { return Vec::new() };
    if *room < end - start {
        return Vec::new();
    }
    *room -= end - start;
    let offset = |a: dwell_image::ImageAddress| start + (a.0 - address.0);
    let code = image.instructions(address, end - start);
    let branches = code.iter().filter(|i| matches!(i.flow, Flow::Branch { .. }));
    branches.map(|i| (offset(i.address), offset(i.end()))).filter(|(_, next)| *next <= end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_branches_and_what_lies_between() {
        let at = |offset| Some(Place { target: 0, offset });
        let mut sums = BranchSums::default();
        // Two turns of a loop from 10 to 20, entered from elsewhere.
        sums.add([(at(20), at(10)), (at(20), at(10)), (None, at(12))].into_iter());
        sums.add([(at(5), at(400)), (at(7), at(9))].into_iter());
        let place = |offset| Place { target: 0, offset };
        assert_eq!(sums.taken[&(place(20), place(10))], 2);
        assert_eq!((sums.straight[&(place(10), 20)], sums.straight[&(place(12), 20)]), (1, 1));
        // Backwards is no straight line.
        assert_eq!((sums.straight.len(), sums.branches), (2, 2));
    }
}
