//! Branch directions from samples: what sampled registers say about the code at the sample.
//!
//! Enters: samples with registers. Leaves: counts of the derived events. Never here: how registers decide a branch, which
//! is in [`crate::branch`].

use std::collections::hash_map::Entry;

use dwell_attribution::{ExecutionId, ImageIndex, Images};
use dwell_profile::{DerivedEvent, ImageKind};

use super::Collector;
use crate::{
    branch::{CODE_BYTES, NextBranch, Registers},
    host::Host,
};

/// Most places whose code is remembered. Beyond it all are forgotten and decoded again.
pub(super) const RECIPES_MAX: usize = 1 << 17;
/// Most places whose code is remembered if the kernel aggregates samples. Then the same hot places are sampled again and
/// again, and as many are kept for good as fill 0.5 MB.
pub(super) const RECIPES_OF_HOT_MAX: usize = 7 << 11;

/// What is known about the code at a sampled place. The details are boxed, since most places have none.
#[derive(Clone, Debug)]
pub(super) enum Code {
    /// One sample was taken there. Most places never have a second one, so the code was not read. The direction that this
    /// sample would have decided is dropped, whichever it was, so this introduces no bias.
    Unread,
    /// Registers here decide no branch.
    Undecided,
    /// Registers here decide the next branch.
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

impl<H: Host> Collector<H> {
    pub(super) fn observe_branch(
        &mut self,
        image: ImageIndex,
        offset: u64,
        execution: ExecutionId,
        registers: &Registers,
    ) {
        if self.recipes.len() >= self.recipes_max {
            self.recipes.clear();
        }
        let code = match self.recipes.entry((image, offset)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(Code::Unread);
                return;
            }
        };
        if matches!(code, Code::Unread) {
            let mut bytes = [0; CODE_BYTES];
            let length = read_code(&self.images, &mut self.host, image, offset, &mut bytes);
            *code = Code::read(&bytes[..length]);
        }
        if let Some((distance, event)) = code.observe(registers) {
            let execution = self.apps.counted_as(execution);
            self.add(offset + distance, image, execution, event.into(), 1);
        }
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
