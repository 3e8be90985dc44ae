//! Converts ELF files of 32-bit programs to the 64-bit format that the rest of this crate reads.
//!
//! Input: the bytes of a file. Output: the same file with 64-bit headers, symbols and headers of compressed sections. All
//! contents stay at their offsets, since samples are counted by offset. The code itself is not examined. Relocations are
//! omitted, because the tables that they fill in are assumed to be 64-bit elsewhere.

use object::LittleEndian;
use object::elf::{self as raw, FileHeader32, ProgramHeader32, SectionHeader32};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};

use crate::ImageError;

const ENDIAN: LittleEndian = LittleEndian;
/// Largest size of a file that is converted, since the result is held in memory.
const BYTES_MAX: usize = 1 << 30;
/// Size of the header of a 64-bit file.
const HEADER_BYTES: usize = 64;

/// Returns whether a file starts with the header of a 32-bit file with a supported byte order.
pub(crate) fn is_32_bit(start: &[u8]) -> bool {
    start.starts_with(&raw::ELFMAG) && start.get(4..6) == Some(&[1, 1])
}

/// Converts a file to the 64-bit format.
pub(crate) fn widen(bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
    if bytes.len() > BYTES_MAX {
        return Err(ImageError::Unsupported("the 32-bit file is too large".to_owned()));
    }
    let header = FileHeader32::<LittleEndian>::parse(bytes)
        .map_err(|_| ImageError::NotElf("cut off in its header"))?;
    let programs = header.program_headers(ENDIAN, bytes).unwrap_or_default();
    let sections = header.section_headers(ENDIAN, bytes).unwrap_or_default();
    let mut out = Out { bytes: bytes.to_vec() };
    out.bytes.resize(out.bytes.len().max(HEADER_BYTES), 0);
    // Overlapping tables, which only hostile files have, would be written repeatedly; `room` limits the output.
    let mut room = 2 * bytes.len();
    let sections: Vec<Wide> = sections.iter().map(|s| out.section(s, bytes, &mut room)).collect();
    let program_table = out.programs(programs);
    let section_table = out.sections(&sections);
    out.header(header, bytes, (program_table, programs.len()), (section_table, sections.len()));
    Ok(out.bytes)
}

/// Header of a section.
struct Wide {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_size: u64,
}

struct Out {
    bytes: Vec<u8>,
}

impl Out {
    /// Returns the offset at which the next write begins.
    fn end(&mut self) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.bytes.len() as u64
    }

    fn half(&mut self, value: u16) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn long(&mut self, value: impl Into<u64>) {
        self.bytes.extend(value.into().to_le_bytes());
    }

    fn section(&mut self, s: &SectionHeader32<LittleEndian>, bytes: &[u8], room: &mut usize) -> Wide {
        let mut wide = Wide {
            name: s.sh_name(ENDIAN),
            kind: s.sh_type(ENDIAN).0,
            flags: s.sh_flags(ENDIAN).0,
            address: s.sh_addr(ENDIAN).into(),
            offset: s.sh_offset(ENDIAN).into(),
            size: s.sh_size(ENDIAN).into(),
            link: s.sh_link(ENDIAN),
            info: s.sh_info(ENDIAN),
            align: s.sh_addralign(ENDIAN).into(),
            entry_size: s.sh_entsize(ENDIAN).into(),
        };
        let kind = s.sh_type(ENDIAN);
        if kind == raw::SHT_REL || kind == raw::SHT_RELA {
            wide.kind = raw::SHT_PROGBITS.0;
            return wide;
        }
        let is_symbols = kind == raw::SHT_SYMTAB || kind == raw::SHT_DYNSYM;
        let is_compressed = wide.flags & raw::SHF_COMPRESSED.0 != 0;
        if !is_symbols && !is_compressed {
            return wide;
        }
        let content = s.data(ENDIAN, bytes).unwrap_or_default();
        wide.offset = self.end();
        match room.checked_sub(content.len()) {
            None => wide.size = 0,
            Some(left) => {
                *room = left;
                if is_symbols {
                    self.symbols(content)
                } else {
                    self.compressed(content)
                }
                wide.size = self.bytes.len() as u64 - wide.offset;
            }
        }
        wide
    }

    /// Converts symbols from 16 to 24 bytes.
    fn symbols(&mut self, table: &[u8]) {
        let count = table.len() / size_of::<raw::Sym32<LittleEndian>>();
        let Ok((symbols, _)) = object::slice_from_bytes::<raw::Sym32<LittleEndian>>(table, count) else {
            return;
        };
        for symbol in symbols {
            self.word(symbol.st_name(ENDIAN));
            self.bytes.extend([symbol.st_info().0, symbol.st_other().0]);
            self.half(symbol.st_shndx(ENDIAN).0);
            self.long(symbol.st_value(ENDIAN));
            self.long(symbol.st_size(ENDIAN));
        }
    }

    /// Converts the header of a compressed section (type, size and alignment, 32 bits each) and copies the compressed data.
    fn compressed(&mut self, section: &[u8]) {
        let word = |at: usize| crate::symbols::le32(section, at);
        let (Some(kind), Some(size), Some(align)) = (word(0), word(4), word(8)) else { return };
        self.word(kind);
        self.word(0);
        self.long(size);
        self.long(align);
        self.bytes.extend(&section[12..]);
    }

    fn programs(&mut self, programs: &[ProgramHeader32<LittleEndian>]) -> u64 {
        let table = self.end();
        for p in programs {
            self.word(p.p_type(ENDIAN).0);
            self.word(p.p_flags(ENDIAN).0);
            self.long(p.p_offset(ENDIAN));
            self.long(p.p_vaddr(ENDIAN));
            self.long(p.p_paddr(ENDIAN));
            self.long(p.p_filesz(ENDIAN));
            self.long(p.p_memsz(ENDIAN));
            self.long(p.p_align(ENDIAN));
        }
        table
    }

    fn sections(&mut self, sections: &[Wide]) -> u64 {
        let table = self.end();
        for s in sections {
            self.word(s.name);
            self.word(s.kind);
            self.long(s.flags);
            self.long(s.address);
            self.long(s.offset);
            self.long(s.size);
            self.word(s.link);
            self.word(s.info);
            self.long(s.align);
            self.long(s.entry_size);
        }
        table
    }

    /// Writes the 64-bit header over the first bytes, which contain only the 32-bit header and its tables.
    fn header(
        &mut self,
        header: &FileHeader32<LittleEndian>,
        bytes: &[u8],
        (program_table, programs): (u64, usize),
        (section_table, sections): (u64, usize),
    ) {
        let mut out = Out { bytes: bytes[..16].to_vec() };
        out.bytes[4] = 2;
        out.half(header.e_type(ENDIAN).0);
        out.half(header.e_machine(ENDIAN).0);
        out.word(header.e_version(ENDIAN));
        out.long(header.e_entry(ENDIAN));
        out.long(if programs == 0 { 0 } else { program_table });
        out.long(if sections == 0 { 0 } else { section_table });
        out.word(header.e_flags(ENDIAN).0);
        out.half(HEADER_BYTES as u16);
        // Numbers that do not fit into these fields are in the header of the first section, as in the original file.
        let short = |count: usize, own: u16| if count == 0 { 0 } else { own };
        out.half(size_of::<raw::ProgramHeader64<LittleEndian>>() as u16);
        out.half(short(programs, header.e_phnum(ENDIAN)));
        out.half(size_of::<raw::SectionHeader64<LittleEndian>>() as u16);
        out.half(short(sections, header.e_shnum(ENDIAN)));
        out.half(header.e_shstrndx(ENDIAN).0);
        debug_assert_eq!(out.bytes.len(), HEADER_BYTES);
        self.bytes[..HEADER_BYTES].copy_from_slice(&out.bytes);
    }
}
