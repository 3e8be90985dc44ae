//! Branch stacks: resolves addresses to places, and decodes the code between branches.
//!
//! Enters: stacks in order of time. Leaves: their sum each time counts are handed out. Never here: what a transfer is
//! ([`BranchSums`]).

use dwell_attribution::ImageIndex;
use dwell_image::{Arch, ImageAddress, fall_throughs, instructions};
use dwell_profile::{BranchSums, CodePlace, ImageKind, ImageOffset};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    attribution::Attribution,
    branch_directions::{PLACES_MAX, read_code},
    bursts::Bursts,
};
use crate::{host::Host, source::owned_record::RawStack};

/// The architecture whose branch stacks are recorded.
const OWN_ARCH: Arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };

/// State of the branch stacks.
#[derive(Default)]
pub struct BranchStacks {
    sums: BranchSums<ImageIndex>,
    /// Fall-throughs between two offsets of an image. They are kept because hot code is needed each time counts are handed
    /// out, and decoding costs the most.
    runs: FxHashMap<(ImageIndex, u64, u64), Vec<(u64, u64)>>,
    /// Number of stacks in the epoch.
    stacks: u64,
    /// Number of their branches that counted, up to the last time that counts were handed out.
    branches: u64,
}

impl BranchStacks {
    /// Adds a stack.
    pub(super) fn add<H: Host>(&mut self, attribution: &mut Attribution<H>, raw: &RawStack) {
        self.stacks += 1;
        let execution = attribution.execution_of(raw.pid);
        let mut place = |address| {
            let (image, offset) = attribution.settled_place(raw.pid, address, execution)?;
            let is_file = attribution.images.record(image).kind == ImageKind::File;
            is_file.then_some(CodePlace { image, offset: ImageOffset(offset) })
        };
        let places: Vec<_> = raw.branches.iter().map(|&(from, to)| (place(from), place(to))).collect();
        self.sums.add(places.into_iter());
    }

    /// Adds the stacks since the last call to the other evidence.
    pub(super) fn take_into<H: Host>(&mut self, bursts: &mut Bursts, attribution: &mut Attribution<H>) {
        let sums = std::mem::take(&mut self.sums);
        self.branches += sums.branches;
        let used: FxHashSet<ImageIndex> = sums.images().collect();
        let mut runs = std::mem::take(&mut self.runs);
        if runs.len() >= PLACES_MAX {
            runs.clear();
        }
        let (images, host) = (&attribution.images, &mut attribution.host);
        let decode = |image: ImageIndex, start: u64, end: u64| {
            let decoded = runs.entry((image, start, end)).or_insert_with(|| {
                let mut code = vec![0; (end - start) as usize];
                let length = read_code(images, host, image, start, &mut code);
                let code = instructions(OWN_ARCH, &code[..length], ImageAddress(start));
                fall_throughs(&code).map(|(from, to)| (from.0, to.0)).collect()
            });
            decoded.clone()
        };
        let id = |image: ImageIndex| Some(images.record(image).id.clone());
        bursts.push(used, sums.evidence(decode, id));
        self.runs = runs;
    }

    /// Forgets code, because images were renumbered.
    pub(super) fn clear_code(&mut self) {
        self.runs.clear();
    }

    /// Begins a new epoch.
    pub(super) fn begin_epoch(&mut self) {
        (self.stacks, self.branches) = (0, 0);
    }

    /// Returns the number of stacks in the epoch, and of their branches that counted up to the last time counts were handed out.
    pub fn counted(&self) -> (u64, u64) {
        (self.stacks, self.branches)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{collector, file, side},
        *,
    };
    use crate::source::owned_record::{OwnedRecord, SideBandRecord};
    use dwell_profile::{ExecutionEvidence, Pid, VirtualAddress};

    fn stack(pid: Pid, branches: &[(u64, u64)]) -> OwnedRecord {
        let branch = |&(from, to): &(u64, u64)| (VirtualAddress(from), VirtualAddress(to));
        OwnedRecord::Branches(Box::new(RawStack { pid, branches: branches.iter().map(branch).collect() }))
    }

    /// The code is `cmp; je` at offset 0x10; the process's file is mapped at 0x1000, and JIT code at 0x7000.
    #[test]
    fn branch_stacks_are_summed_between_two_takes() {
        let mut c = collector();
        c.discover([Pid(1)]);
        let map = |start, target| {
            let start = VirtualAddress(start);
            side(SideBandRecord::Map { pid: Pid(1), start, length: 0x1000, file_offset: 0, target })
        };
        c.apply(1, map(0x5000, file("/lib/a.so")));
        c.apply(1, map(0x7000, dwell_attribution::Target::Anonymous));
        let turn = (0x1018, 0x1010);
        c.apply(2, stack(Pid(1), &[turn, turn, (0x5040, 0x1010), (0x5020, 0x5030)]));
        // Branches into the kernel, in JIT code and in no mapping; an unknown process; an empty stack.
        c.apply(
            3,
            stack(Pid(1), &[turn, (u64::MAX, 0x1010), (0x7010, 0x7008), (0x7010, 0x7000), (9, 8), (0, 0)]),
        );
        c.apply(4, stack(Pid(99), &[turn, turn]));
        c.apply(5, stack(Pid(1), &[]));
        let batch = c.take();
        let [ExecutionEvidence::BranchStacks(transfers)] = &batch.evidence[..] else {
            panic!("{:?}", batch.evidence)
        };
        let texts: Vec<String> = transfers
            .iter()
            .map(|t| {
                format!(
                    "{}+{:x} {}+{:x} {}",
                    t.from.image, t.from.offset.0, t.to.image, t.to.offset.0, t.count
                )
            })
            .collect();
        // The oldest of three turns has no known predecessor; the last turn of the second stack follows a kernel branch.
        let expected =
            ["/bin/init+12 /bin/init+14 3", "/bin/init+18 /bin/init+10 3", "/lib/a.so+40 /bin/init+10 1"];
        assert_eq!(texts, expected);
        assert_eq!(c.stacks.counted(), (4, 4));
        let mut images: Vec<&str> = batch.images.iter().map(|i| i.id.as_str()).collect();
        images.sort_unstable();
        assert_eq!(images, ["/bin/init", "/lib/a.so"], "stacks alone led there");
        assert!(batch.rows.counts().is_empty() && c.counts.tallies()[0].samples == 0, "no sample is counted");
        assert!(c.take().evidence.is_empty());
        c.apply(6, stack(Pid(1), &[turn, turn]));
        assert_eq!(c.take().evidence.len(), 1);
        c.begin_epoch();
        c.apply(7, stack(Pid(1), &[turn, turn]));
        assert_eq!((c.take().evidence.len(), c.stacks.counted()), (1, (1, 1)));
    }
}
