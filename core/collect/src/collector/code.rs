//! The collector's part in branch directions: what sampled registers tell of the code at the sample.
//!
//! Enters: samples with registers. Leaves: counts of the derived events. Never here: how registers decide a branch (that is
//! [`crate::branch`]'s).

use std::collections::hash_map::Entry;

use dwell_profile::{DerivedEvent, ImageKind};

use super::Collector;
use crate::{
    apps::ExecutionId,
    branch::{AHEAD_BYTES, Ahead, Recipe, Registers, a64},
    host::Host,
    images::{ImageIndex, Images},
};

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
    /// It is the branch, or the comparison before it.
    At(Box<Recipe>),
    /// It decides the first branch after it.
    Before(Box<Ahead>),
    /// The same on AArch64, or it is the branch.
    BeforeA64(Box<a64::Ahead>),
}

impl Code {
    fn read(code: &[u8]) -> Self {
        if cfg!(target_arch = "aarch64") {
            return a64::Ahead::decode(code).map_or(Code::Undecided, |ahead| Code::BeforeA64(ahead.into()));
        }
        match Recipe::decode(code) {
            Some(recipe) => Code::At(recipe.into()),
            None => Ahead::decode(code).map_or(Code::Undecided, |ahead| Code::Before(ahead.into())),
        }
    }

    /// How far off the event is, and which: what a sample there with these registers tells.
    fn observe(&self, registers: &Registers) -> Option<(u64, DerivedEvent)> {
        match self {
            Code::Unread | Code::Undecided => None,
            Code::At(recipe) => {
                let event = if recipe.taken(registers) {
                    DerivedEvent::BranchTaken
                } else {
                    DerivedEvent::BranchNotTaken
                };
                Some((u64::from(recipe.branch_distance), event))
            }
            Code::Before(ahead) => Some((
                0,
                if ahead.taken(registers) { DerivedEvent::AheadTaken } else { DerivedEvent::AheadNotTaken },
            )),
            Code::BeforeA64(ahead) => {
                let event = match (ahead.distance(), ahead.taken(&registers.0)) {
                    (0, true) => DerivedEvent::BranchTaken,
                    (0, false) => DerivedEvent::BranchNotTaken,
                    (_, true) => DerivedEvent::AheadTaken,
                    (_, false) => DerivedEvent::AheadNotTaken,
                };
                Some((0, event))
            }
        }
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
            let mut bytes = [0; AHEAD_BYTES];
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
