//! The executable mappings of a process: which target is mapped at a virtual address.
//!
//! Enters: mappings as the kernel reports them. Leaves: the target and the offset in it for an address. Never here: which
//! image a target is, processes, I/O. The kernel does not report munmap, so a later mapping simply replaces the parts of
//! earlier mappings that it overlaps.

use std::sync::Arc;

use dwell_profile::{Pid, VirtualAddress};

/// Index of a mapped target in [`crate::Images`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetIndex(pub u32);

/// The range of addresses in which a process maps a target. It finds the file when no path leads to it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// A process that maps the target.
    pub pid: Pid,
    /// First virtual address.
    pub start: VirtualAddress,
    /// First virtual address after it.
    pub end: VirtualAddress,
}

/// Age in ns below which anonymous memory counts as a mere reservation when a file is mapped over it: no code ran there yet.
/// V8 reserves an address range for its code and then maps the program's own builtins into it.
const FRESH_NS: u64 = 20_000_000;

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First virtual address.
    pub start: VirtualAddress,
    /// First virtual address after it.
    pub end: VirtualAddress,
    /// Offset in the target of the mapping's first byte.
    pub file_offset: u64,
    /// The target that is mapped.
    pub target: TargetIndex,
    /// Further facts about anonymous memory. They are boxed because few mappings are anonymous, and the mappings of ended
    /// processes are kept for a while.
    pub anonymous: Option<Box<Anonymous>>,
}

/// This holds what is known about a mapping of anonymous memory beside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anonymous {
    /// The file that the memory was mapped over, if any, and the file offset of the first byte. Text that a program copies
    /// to huge pages is mapped like this. So is JIT code at an address where a library was unmapped earlier, because the
    /// kernel does not report munmap.
    pub over: Option<(TargetIndex, u64)>,
    /// Time of the mapping (CLOCK_MONOTONIC, ns), if it was reported.
    pub since_ns: Option<u64>,
}

/// The mappings of a process, disjoint and in ascending order. Cloning is cheap: a forked child shares its parent's mappings
/// until one of them maps something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSpace(Arc<Vec<Mapping>>);

impl AddressSpace {
    /// Adds a mapping; earlier mappings that it overlaps are cut or dropped. O(mappings).
    pub fn map(&mut self, new: Mapping) {
        if new.start >= new.end {
            return; // A hostile or wrapped-around length maps nothing.
        }
        let all = Arc::make_mut(&mut self.0);
        let first = all.partition_point(|m| m.end <= new.start);
        let last = all.partition_point(|m| m.start < new.end).max(first);
        let head =
            all.get(first).filter(|m| m.start < new.start).map(|m| Mapping { end: new.start, ..m.clone() });
        let tail = all[first..last].last().and_then(|m| m.from(new.end));
        all.splice(first..last, [head, Some(new), tail].into_iter().flatten());
    }

    /// Releases spare capacity, unless the mappings are shared.
    pub fn shrink(&mut self) {
        if let Some(all) = Arc::get_mut(&mut self.0) {
            all.shrink_to_fit();
        }
    }

    /// Returns whether a mapping at this time would give another meaning to addresses that were already mapped. Memory that
    /// was just reserved (`FRESH_NS`) does not count.
    pub fn would_hide(&self, new: &Mapping, time_ns: u64) -> bool {
        let first = self.0.partition_point(|m| m.end <= new.start);
        let overlapped = self.0[first..].iter().take_while(|m| m.start < new.end && new.start < new.end);
        let same_delta = |m: &Mapping| m.offset_of(new.start) == new.file_offset;
        let was_room = |m: &Mapping| {
            new.since_ns().is_none()
                && m.since_ns().is_some_and(|since| time_ns.saturating_sub(since) < FRESH_NS)
        };
        overlapped.into_iter().any(|m| (m.target != new.target || !same_delta(m)) && !was_room(m))
    }

    /// Returns the mapping that contains an address. O(log mappings).
    pub fn find(&self, address: VirtualAddress) -> Option<&Mapping> {
        let at = self.0.partition_point(|m| m.end <= address);
        self.0.get(at).filter(|m| m.start <= address)
    }

    /// Renumbers the targets. `moved` returns a target's new index, or `None` if the target has none.
    pub fn retarget(&mut self, moved: &dyn Fn(TargetIndex) -> Option<TargetIndex>) {
        for mapping in Arc::make_mut(&mut self.0) {
            mapping.target = moved(mapping.target).unwrap_or(mapping.target);
            if let Some(anonymous) = &mut mapping.anonymous {
                anonymous.over = anonymous.over.and_then(|(target, offset)| Some((moved(target)?, offset)));
            }
        }
    }

    /// Iterates over the mappings in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.0.iter()
    }

    /// Returns the number of mappings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a number that is equal for address spaces that share their memory.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Checks the invariant: no mapping is empty, and none overlaps the next one.
    #[cfg(test)]
    pub fn verify(&self) {
        assert!(self.0.iter().all(|m| m.start < m.end));
        assert!(self.0.windows(2).all(|w| w[0].end <= w[1].start));
    }
}

impl Mapping {
    /// Returns the part of this mapping at or after `address`.
    fn from(&self, address: VirtualAddress) -> Option<Mapping> {
        let start = self.start.max(address);
        let cut = start.bytes_since(self.start);
        (address < self.end).then(|| {
            let mut left = self.clone();
            left.start = start;
            left.file_offset = left.file_offset.wrapping_add(cut);
            if let Some((_, offset)) = left.anonymous.as_mut().and_then(|a| a.over.as_mut()) {
                *offset = offset.wrapping_add(cut);
            }
            left
        })
    }

    /// Returns the file that anonymous memory was mapped over, and the file offset of the first byte.
    pub fn over(&self) -> Option<(TargetIndex, u64)> {
        self.anonymous.as_ref()?.over
    }

    fn since_ns(&self) -> Option<u64> {
        self.anonymous.as_ref()?.since_ns
    }

    /// Returns the mapped range in the process `pid`, with which the target's file can be found.
    pub fn place(&self, pid: Pid) -> MappedRange {
        MappedRange { pid, start: self.start, end: self.end }
    }

    /// Returns the offset in the target for an address inside the mapping.
    pub fn offset_of(&self, address: VirtualAddress) -> u64 {
        self.file_offset.wrapping_add(address.bytes_since(self.start))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const NONE: Mapping = Mapping {
        start: VirtualAddress(0),
        end: VirtualAddress(0),
        file_offset: 0,
        target: TargetIndex(0),
        anonymous: None,
    };

    fn anonymous(since_ns: u64) -> Option<Box<Anonymous>> {
        Some(Box::new(Anonymous { over: None, since_ns: Some(since_ns) }))
    }

    #[test]
    fn a_file_mapped_into_reserved_memory_is_not_hidden() {
        let (room, file) = (TargetIndex(1), TargetIndex(2));
        let since_ns = 1_000_000_000;
        let mut space = AddressSpace::default();
        space.map(Mapping {
            start: VirtualAddress(0x1000),
            end: VirtualAddress(0x9000),
            file_offset: 0x1000,
            target: room,
            anonymous: anonymous(since_ns),
        });
        let (start, end) = (VirtualAddress(0x3000), VirtualAddress(0x5000));
        let laid = Mapping { start, end, file_offset: 0x7000, target: file, ..NONE };
        assert!(!space.would_hide(&laid, 1_000_000_500) && space.would_hide(&laid, 1_100_000_000));
        space.map(laid.clone());
        let code =
            Mapping { target: room, file_offset: start.as_offset(), anonymous: anonymous(since_ns), ..laid };
        assert!(space.would_hide(&code, 1_000_000_600), "a file's code ran");
    }

    proptest! {
        /// Compares with a page table, where each page holds the last thing that was mapped there.
        #[test]
        fn maps_like_a_page_table(ops in prop::collection::vec((0_u64..60, 0_u64..20, 0_u32..9), 0..40)) {
            let (mut space, mut pages) = (AddressSpace::default(), BTreeMap::new());
            for (start, length, target) in ops {
                let file_offset = u64::from(target) * 1000;
                let (first, target_index) = (VirtualAddress(start), TargetIndex(target));
                space.map(Mapping { start: first, end: first.offset(length), file_offset, target: target_index, ..NONE });
                (0..length).for_each(|i| { pages.insert(start + i, (target, file_offset + i)); });
                space.verify();
            }
            for address in 0..90 {
                let in_space = VirtualAddress(address);
                let found = space.find(in_space).map(|m| (m.target.0, m.offset_of(in_space)));
                prop_assert_eq!(found, pages.get(&address).copied());
            }
        }
    }

    #[test]
    fn wrapped_lengths_map_nothing() {
        let mut space = AddressSpace::default();
        space.map(Mapping { start: VirtualAddress(9), end: VirtualAddress(3), ..NONE });
        assert_eq!(space.iter().count(), 0);
    }
}
