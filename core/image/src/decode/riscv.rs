//! RISC-V.

use capstone::{Insn, InsnDetail};

use super::{Decoder, Parts};
use crate::Flow;

pub(super) fn parts(_decoder: &Decoder, _insn: &Insn<'_>, _detail: &InsnDetail<'_>) -> Parts {
    Parts {
        reads: Default::default(),
        writes: Default::default(),
        operands: Default::default(),
        flow: Flow::Next,
    }
}
