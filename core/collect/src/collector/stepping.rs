//! The collector's part in path bursts and counted windows: whose samples to drop, and addresses → places.

use dwell_attribution::ImageIndex;
use dwell_image::Arch;
use dwell_profile::{CodePlace, ImageId, ImageKind, ImageOffset, PathBurst, PathPlace, Tid};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Collector,
    code::{RECIPES_MAX, read_code},
};
use crate::{
    host::Host,
    items::{RawBurst, RawWindow},
    transfers::{self, INSTRUCTION_BYTES_MAX, StepKind},
};

/// The architecture whose threads are stepped.
const STEPPED_ARCH: Arch = Arch::X86_64;

/// What concerns single-stepped threads.
#[derive(Default)]
pub(super) struct Stepping {
    /// The thread that is or was last stepped, and until when.
    pub(super) last: Option<(Tid, u64)>,
    /// The thread that is or was last counted in a window, and until when.
    pub(super) window: Option<(Tid, u64)>,
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
    /// Samples of a thread within a counted window.
    pub window_samples: u64,
}

impl<H: Host> Collector<H> {
    /// A sample of a thread that is stepped would show what stepping costs, not what the program does.
    pub(super) fn is_stepped(&self, tid: Tid, time_ns: u64) -> bool {
        self.stepping.last.is_some_and(|(stepped, end_ns)| stepped == tid && time_ns <= end_ns)
    }

    /// The same of one whose executions are counted.
    pub(super) fn is_in_window(&self, tid: Tid, time_ns: u64) -> bool {
        self.stepping.window.is_some_and(|(counted, end_ns)| counted == tid && time_ns <= end_ns)
    }

    pub(super) fn window(&mut self, raw: &RawWindow) {
        self.stepping.window = Some((raw.tid, raw.until_ns));
        let execution = self.execution_of(raw.pid);
        let mut executions = Vec::with_capacity(raw.counts.len());
        for &(pc, count) in &raw.counts {
            // What no image holds cannot be found again.
            if let Some((image, offset)) = self.settled_place(raw.pid, pc, execution) {
                self.stepping.images.insert(image);
                let image = self.images.record(image).id.clone();
                executions.push((PathPlace { image, offset: ImageOffset(offset) }, count));
            }
        }
        let number = self.stepping.number + 1;
        if let Some(burst) = PathBurst::of_window(number, executions) {
            self.stepping.number = number;
            self.stepping.bursts.push(burst);
        }
    }

    pub(super) fn burst(&mut self, raw: &RawBurst) {
        if raw.stepped_until_ns > 0 {
            self.stepping.last = Some((raw.tid, raw.stepped_until_ns));
        }
        let execution = self.execution_of(raw.pid);
        let mut places: FxHashMap<u64, CodePlace<ImageIndex>> = FxHashMap::default();
        for pc in &raw.pcs {
            if !places.contains_key(pc) {
                let (image, offset) = self.settled_place(raw.pid, *pc, execution).unwrap_or_else(|| {
                    (self.images.named(ImageId::unknown(), ImageKind::Unknown, "[unknown]"), *pc)
                });
                places.insert(*pc, CodePlace { image, offset });
            }
        }
        let used: FxHashSet<ImageIndex> = places.values().map(|p| p.image).collect();
        let mut kinds = std::mem::take(&mut self.stepping.kinds);
        if kinds.len() >= RECIPES_MAX {
            kinds.clear();
        }
        let number = self.stepping.number + 1;
        let (images, host) = (&self.images, &mut self.host);
        let kind = |place: CodePlace<ImageIndex>| {
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
