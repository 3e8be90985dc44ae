//! An instruction that took longer than the model says.

use std::cell::OnceCell;

use super::{context::ProcedureContext, producers};

/// An instruction that took longer than the model says.
pub struct StalledInstruction<'a> {
    /// The procedure that it is in.
    pub context: &'a ProcedureContext<'a>,
    /// The index of its block.
    pub block: usize,
    /// Its index.
    pub i: usize,
    /// The cycles per execution that are to be explained.
    pub excess_cycles: f64,
    /// The part of its cycles that it takes at least, whatever the scale of frequencies is.
    pub certain_part: f64,
    /// The producers of its operands, computed when first needed.
    producers: OnceCell<Vec<usize>>,
}

impl<'a> StalledInstruction<'a> {
    /// Creates the description of instruction `i`. `excess_cycles` are lost per execution; `certain_part` is the part of
    /// all its cycles that is certain.
    pub fn new(
        context: &'a ProcedureContext<'a>,
        i: usize,
        excess_cycles: f64,
        certain_part: f64,
    ) -> StalledInstruction<'a> {
        let block = context.block_of(i);
        StalledInstruction { context, block, i, excess_cycles, certain_part, producers: OnceCell::new() }
    }

    /// Returns the last writers of its operands that can have run before it.
    pub fn producers(&self) -> impl Iterator<Item = usize> + '_ {
        self.producers.get_or_init(|| producers::producers(self.context, self.i)).iter().copied()
    }

    /// Whether it is the first instruction of its block.
    pub fn is_head(&self) -> bool {
        self.i == self.context.cfg.blocks[self.block].start
    }
}
