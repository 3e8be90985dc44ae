//! The collector's part in branch directions: what sampled registers tell of the code at the sample.
//!
//! Enters: samples with registers. Leaves: counts of the derived events. Never here: how registers decide a branch (that is
//! [`crate::branch`]'s).

use std::collections::hash_map::Entry;

use dwell_profile::{DerivedEvent, ImageKind};

use super::Collector;
use crate::{
    branch::{CODE_BYTES, NextBranch, Registers},
    host::Host,
};
use dwell_attribution::{ExecutionId, ImageIndex, Images};

/// Remembered recipes; beyond that they are decoded anew.
pub(super) const RECIPES_MAX: usize = 1 << 17;
/// The same where the kernel chooses places that are sampled again and again, and it is for good: as many as fill 0.5 MB.
pub(super) const RECIPES_OF_HOT_MAX: usize = 7 << 11;

/// What is known of the code at a sampled place. Of most nothing is, so what is known lies apart.
#[derive(Clone, Debug)]
pub(super) enum Code {
    /// One sample was there. Most places never see a second one, so it has not been looked at. The direction that this
    /// sample would have told is given up, whichever it was, so nothing is biased.
    Unread,
    /// It decides nothing.
    Undecided,
    /// Registers here decide the next branch.
    Decides(Box<NextBranch>),
}

impl Code {
    fn read(code: &[u8]) -> Self {
        NextBranch::decode(code).map_or(Code::Undecided, |branch| Code::Decides(branch.into()))
    }

    /// Returns the event that a sample there with these registers adds, and how many bytes after the sample.
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

/// Code bytes at a place in a file; how many could be read.
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
