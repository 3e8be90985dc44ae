//! Branch directions: which way the next branch after a sample goes, from the sampled registers.
//!
//! Enters: samples with registers. Leaves: derived events, and where to count them. Never here: how registers decide a branch
//! (see [`crate::evidence::branch`]).

use std::collections::hash_map::Entry;

use dwell_attribution::{ImageIndex, Images};
use dwell_profile::{DerivedEvent, ImageKind};
use rustc_hash::FxHashMap;

use super::attribution::Attribution;
use crate::{
    evidence::branch::{CODE_BYTES, NextBranch},
    host::Host,
    registers::Registers,
};

/// Most places whose code is remembered. Beyond it all are forgotten and decoded again.
pub(super) const PLACES_MAX: usize = 1 << 17;
/// Most places whose code is remembered if the kernel aggregates samples. Then the same hot places are sampled again and
/// again, and as many are kept for good as fill 0.5 MB.
const HOT_PLACES_MAX: usize = 7 << 11;

/// What is known about the code at a sampled place. The details are boxed, since most places have none.
#[derive(Clone, Debug)]
enum Code {
    /// One sample was taken there. Most places never have a second one, so the code was not read. The direction that this
    /// sample would have decided is dropped, whichever it was, so this introduces no bias.
    Unread,
    /// The registers at this place do not decide a branch.
    Undecided,
    /// The registers at this place decide the next branch.
    Decides(Box<NextBranch>),
}

impl Code {
    fn read(code: &[u8]) -> Self {
        NextBranch::decode(code).map_or(Code::Undecided, |branch| Code::Decides(branch.into()))
    }

    /// Returns the event that a sample there with these registers adds, and the distance in bytes from the sample to
    /// where it is counted.
    fn observe(&self, registers: &Registers) -> Option<(u64, DerivedEvent)> {
        let Code::Decides(branch) = self else { return None };
        Some(match (branch.is_at_branch(), branch.taken(&registers.0)) {
            (true, true) => (u64::from(branch.distance()), DerivedEvent::BranchTaken),
            (true, false) => (u64::from(branch.distance()), DerivedEvent::BranchNotTaken),
            (false, true) => (0, DerivedEvent::AheadTaken),
            (false, false) => (0, DerivedEvent::AheadNotTaken),
        })
    }
}

/// The code at sampled places.
pub(super) struct BranchDirections {
    places: FxHashMap<(ImageIndex, u64), Code>,
    places_max: usize,
}

impl Default for BranchDirections {
    fn default() -> Self {
        BranchDirections { places: FxHashMap::default(), places_max: PLACES_MAX }
    }
}

impl BranchDirections {
    /// Prepares for samples that the kernel aggregates.
    pub(super) fn expect_aggregated(&mut self) {
        self.places_max = HOT_PLACES_MAX;
    }

    /// Forgets all code, because images were renumbered.
    pub(super) fn clear(&mut self) {
        self.places.clear();
    }

    /// Returns the event that a sample at a place with these registers adds, and the offset where it is counted.
    pub(super) fn observe<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        (image, offset): (ImageIndex, u64),
        registers: &Registers,
    ) -> Option<(u64, DerivedEvent)> {
        if self.places.len() >= self.places_max {
            self.places.clear();
        }
        let code = match self.places.entry((image, offset)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(Code::Unread);
                return None;
            }
        };
        if matches!(code, Code::Unread) {
            let mut bytes = [0; CODE_BYTES];
            let length = read_code(&attribution.images, &mut attribution.host, image, offset, &mut bytes);
            *code = Code::read(&bytes[..length]);
        }
        code.observe(registers).map(|(distance, event)| (offset + distance, event))
    }
}

/// Reads code at an offset of a file. Returns the number of bytes.
pub(super) fn read_code(
    images: &Images,
    host: &mut impl Host,
    image: ImageIndex,
    offset: u64,
    code: &mut [u8],
) -> usize {
    let record = images.record(image);
    if record.kind == ImageKind::File { host.code(&record.id, offset, code).min(code.len()) } else { 0 }
}
