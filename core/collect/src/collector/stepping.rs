//! The collector's handling of path bursts and counted windows: which samples to drop, and the places of addresses.

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

/// The architecture on which threads are stepped.
const STEPPED_ARCH: Arch = Arch::X86_64;

/// State of path bursts and counted windows.
#[derive(Default)]
pub(super) struct Stepping {
    /// The thread that is single-stepped or was last, and the end of that time.
    pub(super) last: Option<(Tid, u64)>,
    /// The thread that is counted in a window or was last, and the end of that time.
    pub(super) window: Option<(Tid, u64)>,
    pub(super) kinds: FxHashMap<(ImageIndex, u64), Option<StepKind>>,
    pub(super) bursts: Vec<PathBurst>,
    pub(super) images: FxHashSet<ImageIndex>,
    pub(super) number: u32,
    pub(super) tally: SteppingTally,
}

/// Samples and steps that were dropped because of stepping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteppingTally {
    /// Samples of a thread while it was single-stepped.
    pub samples: u64,
    /// Steps in code that could not be read.
    pub opaque_steps: u64,
    /// Samples of a thread within a counted window.
    pub window_samples: u64,
}

impl<H: Host> Collector<H> {
    /// Returns whether a thread was being single-stepped. Its samples would show the cost of stepping.
    pub(super) fn is_stepped(&self, tid: Tid, time_ns: u64) -> bool {
        self.stepping.last.is_some_and(|(stepped, end_ns)| stepped == tid && time_ns <= end_ns)
    }

    /// Returns whether a thread was being counted in a window. Its samples would show the cost of counting.
    pub(super) fn is_in_window(&self, tid: Tid, time_ns: u64) -> bool {
        self.stepping.window.is_some_and(|(counted, end_ns)| counted == tid && time_ns <= end_ns)
    }

    pub(super) fn window(&mut self, raw: &RawWindow) {
        self.stepping.window = Some((raw.tid, raw.until_ns));
        let execution = self.execution_of(raw.pid);
        let mut executions = Vec::with_capacity(raw.counts.len());
        for &(pc, count) in &raw.counts {
            // A place in no image could not be found again.
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

    /// Returns what was dropped in this epoch because of stepping.
    pub fn stepping(&self) -> SteppingTally {
        self.stepping.tally
    }
}
