//! Executions of threads that were followed or counted by breakpoints: finds the places of their addresses.
//!
//! Enters: the program counters of a thread, or the executions of a few places. Leaves: path bursts and breakpoint
//! counts. Never here: how threads are followed ([`crate::evidence::bursts`]) and what a transfer is ([`crate::evidence::transfers`]).

use dwell_attribution::ImageIndex;
use dwell_image::Arch;
use dwell_profile::{CodePlace, ExecutionEvidence, ImageId, ImageOffset, VirtualAddress};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    attribution::Attribution,
    branch_directions::{PLACES_MAX, read_code},
};
use crate::{
    evidence::transfers::{self, INSTRUCTION_BYTES_MAX, StepKind},
    host::Host,
    source::owned_record::{RawBreakpointCounts, RawBurst},
};

/// The architecture on which threads are stepped.
const STEPPED_ARCH: Arch = Arch::X86_64;

/// Evidence of executions that was not taken yet.
#[derive(Default)]
pub(super) struct Bursts {
    evidence: Vec<ExecutionEvidence>,
    images: FxHashSet<ImageIndex>,
    /// Instructions at places that were stepped.
    kinds: FxHashMap<(ImageIndex, u64), Option<StepKind>>,
    /// Steps of the epoch in code that could not be read.
    pub(super) opaque_steps: u64,
}

impl Bursts {
    /// Adds evidence of executions in these images.
    pub(super) fn push(
        &mut self,
        images: impl IntoIterator<Item = ImageIndex>,
        evidence: Option<ExecutionEvidence>,
    ) {
        if let Some(evidence) = evidence {
            self.images.extend(images);
            self.evidence.push(evidence);
        }
    }

    /// Adds the executions that breakpoints counted.
    pub(super) fn add_breakpoint_counts<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        raw: &RawBreakpointCounts,
    ) {
        let execution = attribution.execution_of(raw.pid);
        let (mut executions, mut images) = (Vec::with_capacity(raw.counts.len()), Vec::new());
        for &(pc, count) in &raw.counts {
            // A place in no image could not be found again.
            if let Some((image, offset)) = attribution.settled_place(raw.pid, pc, execution) {
                images.push(image);
                let image = attribution.images.record(image).id.clone();
                executions.push((CodePlace { image, offset: ImageOffset(offset) }, count));
            }
        }
        self.push(images, ExecutionEvidence::breakpoint_counts(executions));
    }

    /// Adds the path of a thread that was followed.
    pub(super) fn add_path<H: Host>(&mut self, attribution: &mut Attribution<H>, raw: &RawBurst) {
        let execution = attribution.execution_of(raw.pid);
        let mut places: FxHashMap<VirtualAddress, CodePlace<ImageIndex>> = FxHashMap::default();
        let ends = [raw.path.first, raw.path.last];
        for pc in raw.path.transfers.iter().flat_map(|&(from, to, _)| [from, to]).chain(ends) {
            places.entry(pc).or_insert_with(|| {
                let place = attribution.settled_place(raw.pid, pc, execution);
                let (image, offset) = place.unwrap_or_else(|| (attribution.unknown_image(), pc.as_offset()));
                CodePlace { image, offset: ImageOffset(offset) }
            });
        }
        let mut kinds = std::mem::take(&mut self.kinds);
        if kinds.len() >= PLACES_MAX {
            kinds.clear();
        }
        let (images, host) = (&attribution.images, &mut attribution.host);
        let kind = |place: CodePlace<ImageIndex>| {
            *kinds.entry((place.image, place.offset.0)).or_insert_with(|| {
                let mut code = [0; INSTRUCTION_BYTES_MAX];
                let length = read_code(images, host, place.image, place.offset.0, &mut code);
                StepKind::decode(STEPPED_ARCH, &code[..length])
            })
        };
        let id = |image| -> ImageId { images.record(image).id.clone() };
        let found = transfers::burst(&raw.path, raw.stepped_until_ns == 0, |pc| places[&pc], kind, id);
        self.kinds = kinds;
        if let Some((mut burst, opaque_steps)) = found {
            if let ExecutionEvidence::PathBurst { cpu_ns, .. } = &mut burst {
                *cpu_ns = raw.cpu_ns;
            }
            self.opaque_steps += opaque_steps;
            self.push(places.values().map(|place| place.image), Some(burst));
        }
    }

    /// Returns the number of transfers and places in memory.
    pub(super) fn len(&self) -> usize {
        self.evidence.iter().map(|evidence| evidence.transfers().len()).sum()
    }

    /// Returns the evidence since the last call, and its images.
    pub(super) fn take(&mut self) -> (Vec<ExecutionEvidence>, FxHashSet<ImageIndex>) {
        (std::mem::take(&mut self.evidence), std::mem::take(&mut self.images))
    }

    /// Forgets code, because images were renumbered.
    pub(super) fn clear_code(&mut self) {
        self.kinds.clear();
    }

    /// Begins a new epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.opaque_steps = 0;
    }
}
