//! Executions of threads that were followed or counted by breakpoints: finds the places of their addresses.
//!
//! Enters: the program counters of a thread, or the executions of a few places. Leaves: path bursts and counted windows.
//! Never here: how threads are followed ([`crate::paths`]) and what a transfer is ([`crate::transfers`]).

use dwell_attribution::ImageIndex;
use dwell_image::Arch;
use dwell_profile::{CodePlace, ImageId, ImageOffset, PathBurst, PathPlace};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    attribution::Attribution,
    branch_directions::{PLACES_MAX, read_code},
};
use crate::{
    host::Host,
    items::{RawBurst, RawWindow},
    transfers::{self, INSTRUCTION_BYTES_MAX, StepKind},
};

/// The architecture on which threads are stepped.
const STEPPED_ARCH: Arch = Arch::X86_64;

/// Bursts that were not taken yet.
#[derive(Default)]
pub(super) struct Bursts {
    bursts: Vec<PathBurst>,
    images: FxHashSet<ImageIndex>,
    /// Number of bursts in the epoch.
    number: u32,
    /// Instructions at places that were stepped.
    kinds: FxHashMap<(ImageIndex, u64), Option<StepKind>>,
    /// Steps of the epoch in code that could not be read.
    pub(super) opaque_steps: u64,
}

impl Bursts {
    /// Adds the burst that `make` returns for the next number.
    pub(super) fn push(
        &mut self,
        images: impl IntoIterator<Item = ImageIndex>,
        make: impl FnOnce(u32) -> Option<PathBurst>,
    ) {
        if let Some(burst) = make(self.number + 1) {
            self.number += 1;
            self.images.extend(images);
            self.bursts.push(burst);
        }
    }

    /// Adds the executions that breakpoints counted.
    pub(super) fn add_window<H: Host>(&mut self, attribution: &mut Attribution<H>, raw: &RawWindow) {
        let execution = attribution.execution_of(raw.pid);
        let (mut executions, mut images) = (Vec::with_capacity(raw.counts.len()), Vec::new());
        for &(pc, count) in &raw.counts {
            // A place in no image could not be found again.
            if let Some((image, offset)) = attribution.settled_place(raw.pid, pc, execution) {
                images.push(image);
                let image = attribution.images.record(image).id.clone();
                executions.push((PathPlace { image, offset: ImageOffset(offset) }, count));
            }
        }
        self.push(images, |number| PathBurst::of_window(number, executions));
    }

    /// Adds the path of a thread that was followed.
    pub(super) fn add_path<H: Host>(&mut self, attribution: &mut Attribution<H>, raw: &RawBurst) {
        let execution = attribution.execution_of(raw.pid);
        let mut places: FxHashMap<u64, CodePlace<ImageIndex>> = FxHashMap::default();
        for pc in &raw.pcs {
            if !places.contains_key(pc) {
                let place = attribution.settled_place(raw.pid, *pc, execution);
                let (image, offset) = place.unwrap_or_else(|| (attribution.unknown_image(), *pc));
                places.insert(*pc, CodePlace { image, offset });
            }
        }
        let mut kinds = std::mem::take(&mut self.kinds);
        if kinds.len() >= PLACES_MAX {
            kinds.clear();
        }
        let (images, host) = (&attribution.images, &mut attribution.host);
        let kind = |place: CodePlace<ImageIndex>| {
            *kinds.entry((place.image, place.offset)).or_insert_with(|| {
                let mut code = [0; INSTRUCTION_BYTES_MAX];
                let length = read_code(images, host, place.image, place.offset, &mut code);
                StepKind::of(STEPPED_ARCH, &code[..length])
            })
        };
        let id = |image| -> ImageId { images.record(image).id.clone() };
        let found = transfers::burst(self.number + 1, &raw.pcs, |pc| places[&pc], kind, id);
        self.kinds = kinds;
        if let Some((burst, opaque_steps)) = found {
            self.opaque_steps += opaque_steps;
            self.push(places.values().map(|place| place.image), |_| Some(burst));
        }
    }

    /// Returns the bursts since the last call, and their images.
    pub(super) fn take(&mut self) -> (Vec<PathBurst>, FxHashSet<ImageIndex>) {
        (std::mem::take(&mut self.bursts), std::mem::take(&mut self.images))
    }

    /// Forgets code, because images were renumbered.
    pub(super) fn clear_code(&mut self) {
        self.kinds.clear();
    }

    /// Begins a new epoch.
    pub(super) fn begin_epoch(&mut self) {
        (self.number, self.opaque_steps) = (0, 0);
    }
}
