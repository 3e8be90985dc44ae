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

/// A virtual address in a process or in the running kernel: that of an instruction, of a return address, or of data. It means
/// something only together with the process and the time.
///
/// Differences and sums wrap as the processor's do, unless a method's name says otherwise. The default is address 0, where no
/// process has anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(transparent)]
#[serde(transparent)]
pub struct VirtualAddress(pub u64);

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

impl VirtualAddress {
    /// Returns the address `bytes` further on.
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns the address `bytes` further on, or the highest address if there is none.
    pub fn saturating_offset(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Returns the address `bytes` further on; `None` if there is none.
    pub fn checked_offset(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }

    /// Returns the address `bytes` before this one.
    pub fn back(self, bytes: u64) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }

    /// Returns the address `bytes` before this one, or address 0 if there is none.
    pub fn saturating_back(self, bytes: u64) -> Self {
        Self(self.0.saturating_sub(bytes))
    }

    /// Returns the number of bytes from `start` to this address.
    pub fn bytes_since(self, start: VirtualAddress) -> u64 {
        self.0.wrapping_sub(start.0)
    }

    /// Returns the number of bytes from `start` to this address; `None` if this address is lower.
    pub fn checked_bytes_since(self, start: VirtualAddress) -> Option<u64> {
        self.0.checked_sub(start.0)
    }

    /// Returns the number of bytes between two addresses, whichever is lower.
    pub fn distance(self, other: VirtualAddress) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// Returns the offset of the address in an image that stands for memory without a file: the address itself.
    pub fn as_offset(self) -> u64 {
        self.0
    }
}

impl fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_addresses_wrap_unless_the_name_of_the_method_says_otherwise() {
        let [low, high] = [4, u64::MAX - 3].map(VirtualAddress);
        assert_eq!((high.offset(8), low.back(8)), (low, high));
        assert_eq!((low.bytes_since(high), high.bytes_since(low)), (8, u64::MAX - 7));
        assert_eq!(
            (low.checked_bytes_since(high), high.checked_bytes_since(low)),
            (None, Some(u64::MAX - 7))
        );
        assert_eq!((low.checked_offset(8), high.checked_offset(8)), (Some(VirtualAddress(12)), None));
        let (first, last) = (VirtualAddress(0), VirtualAddress(u64::MAX));
        assert_eq!((high.saturating_offset(8), low.saturating_back(8)), (last, first));
        assert_eq!((low.distance(high), high.distance(low)), (u64::MAX - 7, u64::MAX - 7));
        assert_eq!(VirtualAddress(0x7f00_1234).to_string(), "7f001234");
    }
}
