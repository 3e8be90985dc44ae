//! Wraps the text of a kernel, as it is in memory, in an ELF file, so that one reader is sufficient.
//!
//! Input: bytes of text, their address, and known symbols. Output: bytes of an ELF file with one segment. This module does
//! not know where the text comes from.

use dwell_profile::ImageSymbol;
use object::elf as raw;

use crate::symbols::SYMBOL_BYTES;
use crate::{Image, ImageAddress, ImageError};

const HEADER_BYTES: u64 = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;
/// Number of sections: an empty first one, `.text`, `.symtab` and `.strtab`.
const SECTIONS: u64 = 4;
const SECTION_NAMES: &[u8] = b"\0.text\0.symtab\0.strtab\0";
/// Offsets of the sections' names in [`SECTION_NAMES`].
const NAMES_AT: [u32; 3] = [1, 7, 15];
const STRINGS: u64 = 3;

impl Image {
    /// Creates the image of a kernel from its text, which begins at `_text`. Offsets are distances from there. `machine` is
    /// the number of the instruction set in ELF files.
    pub fn of_kernel_text(
        machine: u16,
        text: ImageAddress,
        bytes: &[u8],
        symbols: &[ImageSymbol],
    ) -> Result<Image, ImageError> {
        let image = Image::parse(file(machine, text.0, bytes, symbols))?;
        image.as_kernel().ok_or(ImageError::Damaged("it has no symbols"))
    }
}

/// Builds an ELF file: headers, text, symbols, names.
fn file(machine: u16, text: u64, bytes: &[u8], symbols: &[ImageSymbol]) -> Vec<u8> {
    let mut names = SECTION_NAMES.to_vec();
    let mut table = vec![0; SYMBOL_BYTES];
    let mut add = |name: &str, kind: u8, address: u64, size: u64| {
        table.extend((names.len() as u32).to_le_bytes());
        table.extend([raw::STB_GLOBAL.0 << 4 | kind, 0]);
        table.extend(1_u16.to_le_bytes());
        table.extend(address.to_le_bytes());
        table.extend(size.to_le_bytes());
        names.extend(name.bytes().filter(|byte| *byte != 0));
        names.push(0);
    };
    add("_text", raw::STT_NOTYPE.0, text, 0);
    for symbol in symbols {
        add(&symbol.name, raw::STT_FUNC.0, text.wrapping_add(symbol.offset.0), symbol.size_bytes);
    }
    let text_at = HEADER_BYTES + PROGRAM_HEADER_BYTES + SECTIONS * SECTION_HEADER_BYTES;
    let table_at = text_at + bytes.len() as u64;
    let names_at = table_at + table.len() as u64;
    let mut file = header(machine);
    longs(&mut file, [u64::from(raw::PT_LOAD.0) | u64::from(raw::PF_R.0 | raw::PF_X.0) << 32]);
    longs(&mut file, [text_at, text, text, bytes.len() as u64, bytes.len() as u64, 1]);
    file.extend([0; SECTION_HEADER_BYTES as usize]);
    let code = raw::SHF_ALLOC.0 | raw::SHF_EXECINSTR.0;
    section(&mut file, (NAMES_AT[0], raw::SHT_PROGBITS.0), [code, text, text_at, bytes.len() as u64], (0, 0));
    let table_bytes = table.len() as u64;
    let entry_bytes = SYMBOL_BYTES as u64;
    section(
        &mut file,
        (NAMES_AT[1], raw::SHT_SYMTAB.0),
        [0, 0, table_at, table_bytes],
        (STRINGS, entry_bytes),
    );
    section(&mut file, (NAMES_AT[2], raw::SHT_STRTAB.0), [0, 0, names_at, names.len() as u64], (0, 0));
    [bytes, &table, &names].into_iter().for_each(|part| file.extend_from_slice(part));
    file
}

fn header(machine: u16) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    [raw::ET_EXEC.0, machine].into_iter().for_each(|half| file.extend(half.to_le_bytes()));
    file.extend(1_u32.to_le_bytes());
    longs(&mut file, [0, HEADER_BYTES, HEADER_BYTES + PROGRAM_HEADER_BYTES]);
    file.extend(0_u32.to_le_bytes());
    let halves = [HEADER_BYTES, PROGRAM_HEADER_BYTES, 1, SECTION_HEADER_BYTES, SECTIONS, STRINGS];
    halves.into_iter().for_each(|half| file.extend((half as u16).to_le_bytes()));
    file
}

/// Builds a section header: name and type, flags, address, offset and size, linked section, and size of the entries.
fn section(
    file: &mut Vec<u8>,
    (name, kind): (u32, u32),
    [flags, address, offset, size]: [u64; 4],
    (link, entry_bytes): (u64, u64),
) {
    [name, kind].into_iter().for_each(|word| file.extend(word.to_le_bytes()));
    longs(file, [flags, address, offset, size, link, 1, entry_bytes]);
}

fn longs<const N: usize>(file: &mut Vec<u8>, values: [u64; N]) {
    values.into_iter().for_each(|value| file.extend(value.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use dwell_profile::ImageOffset;

    use super::*;

    #[test]
    fn text_in_memory_is_an_image() {
        let text = ImageAddress(0xffff_ffff_a120_0000);
        // The bytes decode to: nop; ret; mov rax, [rax]; ret.
        let bytes = [0x90, 0xc3, 0x48, 0x8b, 0, 0xc3];
        let symbol = |offset, size_bytes, name: &str| ImageSymbol {
            offset: ImageOffset(offset),
            size_bytes,
            name: name.to_owned(),
        };
        let symbols = [symbol(0, 2, "first"), symbol(2, 4, "second"), symbol(1 << 40, 4, "elsewhere")];
        let image = Image::of_kernel_text(raw::EM_X86_64.0, text, &bytes, &symbols).unwrap();
        let names: Vec<_> = image.procedures().iter().map(|p| p.name()).collect();
        assert_eq!(names, ["first", "second"]);
        let address = image.address_of(ImageOffset(2)).unwrap();
        assert_eq!((address, image.offset_of(address)), (text.offset(2), Some(ImageOffset(2))));
        assert_eq!(image.address_of(ImageOffset(6)), None);
        let second = image.procedure_at(address).unwrap();
        let listed: Vec<String> = image
            .instructions(second.address, second.size_bytes)
            .iter()
            .map(|i| i.text.to_string())
            .collect();
        assert_eq!(listed, ["mov rax, qword ptr [rax]", "ret"]);
    }
}
