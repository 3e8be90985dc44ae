//! An instruction that took longer than the model says.

use std::cell::OnceCell;

use super::{context::ProcedureContext, producers};

/// An instruction that took longer than the model says.
pub struct StalledInstruction<'a> {
    /// Where.
    pub context: &'a ProcedureContext<'a>,
    /// Its block.
    pub block: usize,
    /// Its index.
    pub i: usize,
    /// Cycles per execution to be explained.
    pub excess_cycles: f64,
    /// The part of its cycles that it takes at least, whatever the scale of frequencies is.
    pub certain_part: f64,
    /// Of its operands, once an inquiry asked for them.
    producers: OnceCell<Vec<usize>>,
}

impl<'a> StalledInstruction<'a> {
    /// Instruction `i`, which lost so many cycles per execution; this part of its cycles is certain.
    pub fn new(
        context: &'a ProcedureContext<'a>,
        i: usize,
        excess_cycles: f64,
        certain_part: f64,
    ) -> StalledInstruction<'a> {
        let block = context.block_of(i);
        StalledInstruction { context, block, i, excess_cycles, certain_part, producers: OnceCell::new() }
    }

    /// The latest writers of its operands that can have run before it.
    pub fn producers(&self) -> impl Iterator<Item = usize> + '_ {
        self.producers.get_or_init(|| producers::producers(self.context, self.i)).iter().copied()
    }

    /// It is the first of its block.
    pub fn is_head(&self) -> bool {
        self.i == self.context.cfg.blocks[self.block].start
    }
}
