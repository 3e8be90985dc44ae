//! ELF headers → plain data: architecture, segments, sections, build id, link to the debug file.
//!
//! Enters: bytes. Leaves: ranges within them, checked against the file's end when used. Nothing here borrows the bytes.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{self as raw, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

use crate::{Arch, BuildId, ImageAddress, ImageError, ImageOffset};

const ENDIAN: LittleEndian = LittleEndian;
/// A relocatable file has no segments; its sections get addresses as the kernel lays out a module.
const MODULE_SECTION_ALIGN_MAX: u64 = 1 << 16;

/// The headers of an ELF file.
#[derive(Debug)]
pub(crate) struct Elf {
    pub(crate) arch: Arch,
    pub(crate) relocatable: bool,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sections: Vec<Section>,
    pub(crate) build_id: Option<BuildId>,
}

/// A part of the file that is loaded: `PT_LOAD`, or an allocated section of a relocatable file.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    pub(crate) executable: bool,
}

/// A section header.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: Box<str>,
    pub(crate) kind: raw::SectionType,
    pub(crate) allocated: bool,
    pub(crate) executable: bool,
    pub(crate) compressed: bool,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) align: u64,
    pub(crate) link: usize,
    pub(crate) entry_size: u64,
}

impl Elf {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Elf, ImageError> {
        let header = header(bytes)?;
        let arch = arch(header)?;
        let relocatable = header.e_type(ENDIAN) == raw::ET_REL;
        let sections = sections(header, bytes);
        let segments = segments(header, bytes);
        if sections.is_empty() && segments.is_empty() {
            return Err(ImageError::Damaged("neither program headers nor section headers can be read"));
        }
        let build_id = build_id(bytes, &segments_of_notes(header, bytes), &sections);
        let mut elf = Elf { arch, relocatable, segments, sections, build_id };
        if relocatable {
            elf.lay_out_module();
        }
        Ok(elf)
    }

    /// The first section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| &*s.name == name)
    }

    /// Whether it has the symbols that a linker writes for debuggers, not the dynamic ones alone.
    pub(crate) fn has_symbols(&self) -> bool {
        self.sections.iter().any(|s| s.kind == raw::SHT_SYMTAB && s.size > 0)
    }

    /// The allocated, executable section around an address.
    pub(crate) fn code_section(&self, address: u64) -> Option<&Section> {
        self.sections.iter().find(|s| s.allocated && s.executable && s.contains(address))
    }

    /// Whether instructions can be at `address`, as far as the headers tell.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|s| s.executable && address.wrapping_sub(s.address) < s.memory_size)
    }

    pub(crate) fn address_of(&self, offset: ImageOffset) -> Option<ImageAddress> {
        let within = |s: &&Segment| offset.0.checked_sub(s.offset).is_some_and(|d| d < s.file_size);
        let segment = self.executable_first().find(within)?;
        Some(ImageAddress(segment.address.wrapping_add(offset.0 - segment.offset)))
    }

    pub(crate) fn offset_of(&self, address: ImageAddress) -> Option<ImageOffset> {
        let segment = self.segment_at(address.0)?;
        Some(ImageOffset(segment.offset.wrapping_add(address.0 - segment.address)))
    }

    /// The bytes of the file that are loaded at `address`, up to the end of their segment.
    pub(crate) fn loaded<'a>(&self, bytes: &'a [u8], address: ImageAddress) -> &'a [u8] {
        let slice = || {
            let segment = self.segment_at(address.0)?;
            let range = range(segment.offset, segment.file_size.min(bytes.len() as u64))?;
            let whole = bytes.get(range.start..range.end.min(bytes.len()))?;
            whole.get(usize::try_from(address.0 - segment.address).ok()?..)
        };
        slice().unwrap_or_default()
    }

    fn segment_at(&self, address: u64) -> Option<&Segment> {
        let within = |s: &&Segment| address.checked_sub(s.address).is_some_and(|d| d < s.file_size);
        self.executable_first().find(within)
    }

    /// Overlapping segments are hostile or padding: code wins, since samples are of code.
    fn executable_first(&self) -> impl Iterator<Item = &Segment> {
        let of = |executable| self.segments.iter().filter(move |s| s.executable == executable);
        of(true).chain(of(false))
    }

    /// Gives the sections of a relocatable file addresses in the order in which the kernel's module loader places
    /// them: code first, init sections left out (`layout_sections` in kernel/module/main.c). So addresses are distances
    /// from the module's start, as far as the architecture adds nothing of its own.
    fn lay_out_module(&mut self) {
        let mut end = 0_u64;
        for executable in [true, false] {
            for section in self.sections.iter_mut().filter(|s| s.allocated && s.executable == executable) {
                if section.name.starts_with(".init") {
                    section.allocated = false;
                    continue;
                }
                let align = section.align.clamp(1, MODULE_SECTION_ALIGN_MAX);
                section.address = end.next_multiple_of(align);
                end = section.address.saturating_add(section.size).min(u64::MAX / 2);
                self.segments.push(section.as_segment());
            }
        }
    }
}

impl Section {
    pub(crate) fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|d| d < self.size)
    }

    pub(crate) fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }

    /// Its bytes in the file as they are; empty where it has none or lies outside.
    pub(crate) fn bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        self.file_range().and_then(|r| bytes.get(r)).unwrap_or_default()
    }

    pub(crate) fn file_range(&self) -> Option<Range<usize>> {
        if self.kind == raw::SHT_NOBITS { None } else { range(self.offset, self.size) }
    }

    fn as_segment(&self) -> Segment {
        let file_size = if self.kind == raw::SHT_NOBITS { 0 } else { self.size };
        let Section { address, offset, size, executable, .. } = *self;
        Segment { address, offset, file_size, memory_size: size, executable }
    }
}

fn range(offset: u64, size: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(usize::try_from(size).ok()?)?)
}

fn header(bytes: &[u8]) -> Result<&FileHeader64<LittleEndian>, ImageError> {
    match bytes.get(..6) {
        None => return Err(ImageError::NotElf("shorter than an ELF header")),
        Some(ident) if ident[..4] != raw::ELFMAG => return Err(ImageError::NotElf("wrong magic number")),
        Some(ident) if ident[4] != 2 => return Err(ImageError::Unsupported("not 64-bit".into())),
        Some(ident) if ident[5] != 1 => return Err(ImageError::Unsupported("big-endian".into())),
        Some(_) => {}
    }
    FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| ImageError::NotElf("cut off in its header"))
}

/// The build id of a file of any machine, in the form of 64 bits.
pub(crate) fn build_id_of(bytes: &[u8]) -> Option<BuildId> {
    let header = header(bytes).ok()?;
    build_id(bytes, &segments_of_notes(header, bytes), &sections(header, bytes))
}

fn arch(header: &FileHeader64<LittleEndian>) -> Result<Arch, ImageError> {
    match header.e_machine(ENDIAN) {
        raw::EM_X86_64 => Ok(Arch::X86_64),
        raw::EM_386 => Ok(Arch::X86),
        raw::EM_AARCH64 => Ok(Arch::Aarch64),
        raw::EM_RISCV => Ok(Arch::Riscv64),
        raw::EM_ARM => Err(ImageError::Unsupported("32-bit ARM programs are not supported".to_owned())),
        other => Err(ImageError::Unsupported(format!("machine number {}", other.0))),
    }
}

fn segments(header: &FileHeader64<LittleEndian>, bytes: &[u8]) -> Vec<Segment> {
    let headers = header.program_headers(ENDIAN, bytes).unwrap_or_default();
    let loaded = headers.iter().filter(|p| p.p_type(ENDIAN) == raw::PT_LOAD);
    loaded
        .map(|p| Segment {
            address: p.p_vaddr(ENDIAN),
            offset: p.p_offset(ENDIAN),
            file_size: p.p_filesz(ENDIAN).min(p.p_memsz(ENDIAN)),
            memory_size: p.p_memsz(ENDIAN),
            executable: p.p_flags(ENDIAN).0 & raw::PF_X.0 != 0,
        })
        .collect()
}

fn sections(header: &FileHeader64<LittleEndian>, bytes: &[u8]) -> Vec<Section> {
    let headers = header.section_headers(ENDIAN, bytes).unwrap_or_default();
    let strings = header.section_strings(ENDIAN, bytes, headers).unwrap_or_default();
    let has =
        |s: &raw::SectionHeader64<LittleEndian>, flag: raw::SectionFlags| s.sh_flags(ENDIAN).0 & flag.0 != 0;
    let section = |s: &raw::SectionHeader64<LittleEndian>| Section {
        name: String::from_utf8_lossy(s.name(ENDIAN, strings).unwrap_or_default()).into(),
        kind: s.sh_type(ENDIAN),
        allocated: has(s, raw::SHF_ALLOC),
        executable: has(s, raw::SHF_EXECINSTR),
        compressed: has(s, raw::SHF_COMPRESSED),
        address: s.sh_addr(ENDIAN),
        offset: s.sh_offset(ENDIAN),
        size: s.sh_size(ENDIAN),
        align: s.sh_addralign(ENDIAN),
        link: s.sh_link(ENDIAN) as usize,
        entry_size: s.sh_entsize(ENDIAN),
    };
    headers.iter().map(section).collect()
}

/// Where notes lie, by program headers: these survive `strip` and `sstrip`.
fn segments_of_notes(header: &FileHeader64<LittleEndian>, bytes: &[u8]) -> Vec<(Range<usize>, u64)> {
    let headers = header.program_headers(ENDIAN, bytes).unwrap_or_default();
    let notes = headers.iter().filter(|p| p.p_type(ENDIAN) == raw::PT_NOTE);
    notes.filter_map(|p| Some((range(p.p_offset(ENDIAN), p.p_filesz(ENDIAN))?, p.p_align(ENDIAN)))).collect()
}

fn build_id(bytes: &[u8], segments: &[(Range<usize>, u64)], sections: &[Section]) -> Option<BuildId> {
    let of_sections = sections.iter().filter(|s| s.kind == raw::SHT_NOTE);
    let of_sections = of_sections.filter_map(|s| Some((s.file_range()?, s.align)));
    let places = segments.iter().cloned().chain(of_sections);
    places.filter_map(|(range, align)| build_id_in(bytes.get(range)?, align)).next()
}

/// (offset, size) of the tables of program and section headers that the header of a file tells of.
pub(crate) fn header_tables(bytes: &[u8]) -> Vec<(u64, u64)> {
    let Ok(header) = header(bytes) else { return Vec::new() };
    let programs = u64::from(header.e_phnum(ENDIAN)) * u64::from(header.e_phentsize(ENDIAN));
    // No number: there are more sections than the field can tell.
    let count = Some(header.e_shnum(ENDIAN)).filter(|n| *n > 0).unwrap_or(u16::MAX);
    let sections = u64::from(count) * u64::from(header.e_shentsize(ENDIAN));
    vec![(header.e_phoff(ENDIAN), programs), (header.e_shoff(ENDIAN), sections)]
}

/// (offset, size) of the names of sections and of notes, where the tables of headers are there.
pub(crate) fn names_and_notes(bytes: &[u8]) -> Vec<(u64, u64)> {
    let Ok(header) = header(bytes) else { return Vec::new() };
    let sections = header.section_headers(ENDIAN, bytes).unwrap_or_default();
    let names = header.shstrndx(ENDIAN, bytes).ok().and_then(|index| sections.get(index as usize));
    let notes = sections.iter().filter(|s| s.sh_type(ENDIAN) == raw::SHT_NOTE);
    let programs = header.program_headers(ENDIAN, bytes).unwrap_or_default();
    let segments = programs.iter().filter(|p| p.p_type(ENDIAN) == raw::PT_NOTE);
    let of_sections = names.into_iter().chain(notes).map(|s| (s.sh_offset(ENDIAN), s.sh_size(ENDIAN)));
    of_sections.chain(segments.map(|p| (p.p_offset(ENDIAN), p.p_filesz(ENDIAN)))).collect()
}

/// The build id among the notes of one section or segment.
pub(crate) fn build_id_in(notes: &[u8], align: u64) -> Option<BuildId> {
    let mut notes =
        object::read::elf::NoteIterator::<FileHeader64<LittleEndian>>::new(ENDIAN, align, notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == raw::ELF_NOTE_GNU && note.n_type(ENDIAN) == raw::NT_GNU_BUILD_ID {
            return BuildId::new(note.desc());
        }
    }
    None
}
