//! A type for each address space, so that no bare `u64` crosses a module boundary.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The location of a sampled instruction in its image, independent of where the image was loaded.
///
/// For a file, it is the offset in the file (`pc − mapping start + mapping's file offset`), which needs no ELF to
/// compute. For the kernel, it is the distance from `_text`; for a kernel module, the distance from the address of its
/// first section. For code without an image (JIT, unknown), it is the virtual address itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageOffset(pub u64);

/// A virtual address as the image's own headers and debug information state it (before relocation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageAddress(pub u64);

impl ImageAddress {
    /// Returns the address `bytes` further on, wrapping as the processor does.
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl fmt::Display for ImageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Display for ImageOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:x}", self.0)
    }
}
