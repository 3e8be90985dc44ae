//! The collector's part in path bursts: whose samples to drop, and addresses → places.

use dwell_image::Arch;
use dwell_profile::{ImageId, ImageKind, PathBurst};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Collector,
    code::{RECIPES_MAX, read_code},
};
use crate::{
    host::Host,
    images::ImageIndex,
    items::RawBurst,
    transfers::{self, INSTRUCTION_BYTES_MAX, StepKind},
};

/// The architecture whose threads are stepped.
const STEPPED_ARCH: Arch = Arch::X86_64;

/// What concerns single-stepped threads.
#[derive(Default)]
pub(super) struct Stepping {
    /// The thread that is or was last stepped, and until when.
    pub(super) last: Option<(u32, u64)>,
    pub(super) kinds: FxHashMap<(ImageIndex, u64), Option<StepKind>>,
    pub(super) bursts: Vec<PathBurst>,
    pub(super) images: FxHashSet<ImageIndex>,
    pub(super) number: u32,
    pub(super) tally: SteppingTally,
}

/// What was left out because of stepping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteppingTally {
    /// Samples of a thread while it was stepped.
    pub samples: u64,
    /// Steps in code that could not be read.
    pub opaque_steps: u64,
}

impl<H: Host> Collector<H> {
    /// A sample of a thread that is stepped would show what stepping costs, not what the program does.
    pub(super) fn is_stepped(&self, tid: u32, time_ns: u64) -> bool {
        self.stepping.last.is_some_and(|(stepped, end_ns)| stepped == tid && time_ns <= end_ns)
    }

    pub(super) fn burst(&mut self, raw: &RawBurst) {
        if raw.stepped_until_ns > 0 {
            self.stepping.last = Some((raw.tid, raw.stepped_until_ns));
        }
        let execution = self.execution_of(raw.pid);
        let mut places: FxHashMap<u64, transfers::Place<ImageIndex>> = FxHashMap::default();
        for pc in &raw.pcs {
            if !places.contains_key(pc) {
                let (image, offset) = self.mapped_place(raw.pid, *pc, execution).unwrap_or_else(|| {
                    (self.images.named(ImageId::unknown(), ImageKind::Unknown, "[unknown]"), *pc)
                });
                places.insert(*pc, transfers::Place { image, offset });
            }
        }
        let used: FxHashSet<ImageIndex> = places.values().map(|p| p.image).collect();
        let mut kinds = std::mem::take(&mut self.stepping.kinds);
        if kinds.len() >= RECIPES_MAX {
            kinds.clear();
        }
        let number = self.stepping.number + 1;
        let (images, host) = (&self.images, &mut self.host);
        let kind = |place: transfers::Place<ImageIndex>| {
            *kinds.entry((place.image, place.offset)).or_insert_with(|| {
                let mut code = [0; INSTRUCTION_BYTES_MAX];
                let length = read_code(images, host, place.image, place.offset, &mut code);
                StepKind::of(STEPPED_ARCH, &code[..length])
            })
        };
        let id = |image| images.record(image).id.clone();
        let found = transfers::burst(number, &raw.pcs, |pc| places[&pc], kind, id);
        self.stepping.kinds = kinds;
        let Some((burst, opaque_steps)) = found else { return };
        self.stepping.tally.opaque_steps += opaque_steps;
        self.stepping.number = number;
        self.stepping.images.extend(used);
        self.stepping.bursts.push(burst);
    }

    /// What was left out because of stepping, in this epoch.
    pub fn stepping(&self) -> SteppingTally {
        self.stepping.tally
    }
}
