//! Where an observation belongs: in an image, or in generated code whose name is not known yet.

use dwell_attribution::{CodeId, ImageIndex};
use dwell_profile::VirtualAddress;

/// Place of a sample in user code, as far as it is known when the sample is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spot {
    /// An offset in an image.
    Image(ImageIndex, u64),
    /// An address in code that a process generated. The names of the code decide later under which function it is counted.
    Code(CodeId, VirtualAddress),
}

impl From<(ImageIndex, u64)> for Spot {
    fn from((image, offset): (ImageIndex, u64)) -> Self {
        Spot::Image(image, offset)
    }
}
