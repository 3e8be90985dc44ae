//! AArch64.

use capstone::{Insn, InsnDetail};

use super::{Decoder, Parts};
use crate::Flow;

pub(super) fn parts(decoder: &Decoder, _insn: &Insn<'_>, detail: &InsnDetail<'_>) -> Parts {
    Parts {
        reads: decoder.set(detail.regs_read()),
        writes: decoder.set(detail.regs_write()),
        operands: Default::default(),
        flow: Flow::Next,
    }
}
