//! Values that the dynamic linker writes into an image: `R_*_RELATIVE` of `.rela.dyn`. Addresses are those for an image that
//! is loaded at its own addresses. Tables of labels and of functions are zeros in the file and get their addresses this way.
//!
//! Input: headers and bytes. Output: values by address. Other relocations (symbols of other images) are left out. Packed
//! ones (`SHT_RELR`) need no handling, since their values are in the file.

use object::elf as raw;

use crate::Arch;
use crate::elf::Elf;

/// Size of an entry in bytes: offset, information, addend.
const ENTRY_BYTES: usize = 24;
/// Number of bytes that a relocation writes.
const VALUE_BYTES: u64 = 8;

/// Relocated values by ascending address.
#[derive(Debug, Default)]
pub(crate) struct Relocations(Vec<(u64, u64)>);

impl Relocations {
    pub(crate) fn parse(elf: &Elf, bytes: &[u8]) -> Relocations {
        let relative = match elf.arch {
            Arch::X86_64 | Arch::X86 => raw::R_X86_64_RELATIVE,
            Arch::Aarch64 => raw::R_AARCH64_RELATIVE,
            Arch::Riscv64 => raw::R_RISCV_RELATIVE,
        };
        let tables =
            elf.sections.iter().filter(|s| s.kind == raw::SHT_RELA && s.allocated && !elf.relocatable);
        let entries = tables.flat_map(|s| s.bytes(bytes).chunks_exact(ENTRY_BYTES));
        let word = |entry: &[u8], at: usize| entry[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let mut values: Vec<(u64, u64)> = entries
            .filter(|entry| word(entry, 8) as u32 == relative.0)
            .map(|entry| (word(entry, 0), word(entry, 16)))
            .collect();
        values.sort_unstable();
        Relocations(values)
    }

    /// Writes the values over what was read from the file at `address`.
    pub(crate) fn apply(&self, address: u64, into: &mut [u8]) {
        let end = address.saturating_add(into.len() as u64);
        let first = self.0.partition_point(|(at, _)| at.saturating_add(VALUE_BYTES) <= address);
        for (at, value) in self.0[first..].iter().take_while(|(at, _)| *at < end) {
            for (i, byte) in value.to_le_bytes().into_iter().enumerate() {
                let place = (at.wrapping_add(i as u64)).wrapping_sub(address);
                if let Some(old) = usize::try_from(place).ok().and_then(|p| into.get_mut(p)) {
                    *old = byte;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_over_the_bytes() {
        let relocations = Relocations(vec![(16, 0x0807_0605_0403_0201), (32, u64::MAX)]);
        let mut bytes = [0xaa; 12];
        relocations.apply(20, &mut bytes);
        assert_eq!(bytes, [5, 6, 7, 8, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa]);
        relocations.apply(30, &mut bytes);
        assert_eq!(bytes[..4], [5, 6, 0xff, 0xff]);
    }
}
