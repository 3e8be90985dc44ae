//! Finds the instructions of a procedure by their offsets in the image.
//!
//! Enters: an image, the instructions of one of its procedures, offsets that evidence of executions names. Leaves: indexes
//! of instructions. Never here: samples, or what was counted. Cost: a binary search for each offset.

use std::ops::RangeInclusive;

use crate::{Image, ImageOffset, Instruction};

/// The offsets in the image at which the instructions of a procedure begin.
#[derive(Clone, Copy, Debug)]
pub struct ProcedureOffsets<'a> {
    instructions: &'a [Instruction],
    start: ImageOffset,
    end: ImageOffset,
}

impl<'a> ProcedureOffsets<'a> {
    /// Returns the offsets of `instructions`, which are in ascending order and follow each other without a gap.
    ///
    /// No offset leads to an instruction if there are fewer than two, if they are not in the file, or if the offsets do
    /// not ascend as the addresses do: then segments of the file overlap, so it is damaged.
    pub fn new(image: &Image, instructions: &'a [Instruction]) -> Self {
        let ends = match instructions {
            [first, .., last] => image.offset_of(first.address).zip(image.offset_of(last.address)),
            _ => None,
        };
        match ends.filter(|(start, end)| start <= end) {
            Some((start, end)) => ProcedureOffsets { instructions, start, end },
            None => ProcedureOffsets { instructions: &[], start: ImageOffset(0), end: ImageOffset(0) },
        }
    }

    /// Returns the offsets from the first to the last instruction.
    pub fn range(&self) -> RangeInclusive<ImageOffset> {
        self.start..=self.end
    }

    /// Returns the index of the instruction that begins at `offset`.
    pub fn index_of(&self, offset: ImageOffset) -> Option<usize> {
        let address = self.instructions.first()?.address.offset(offset.0.checked_sub(self.start.0)?);
        self.instructions.binary_search_by_key(&address, |i| i.address).ok()
    }
}
