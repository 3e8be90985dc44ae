//! Parses ELF headers to plain data: architecture, segments, sections, build ID, link to the debug file.
//!
//! Input: bytes. Output: ranges of these bytes, which are checked against the end of the file when they are used. The
//! results do not borrow the bytes.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{self as raw, FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::ReadRef;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

use crate::{Arch, BuildId, ImageAddress, ImageError, ImageOffset};

const ENDIAN: LittleEndian = LittleEndian;
/// Largest alignment of a section in a relocatable file. Such files have no segments, so their sections get addresses as the
/// kernel would lay out a module.
const MODULE_SECTION_ALIGN_MAX: u64 = 1 << 16;
/// Largest number of program or section headers that is read. The largest object files have some 100,000 sections.
const HEADERS_MAX: u32 = 1 << 20;
/// Largest size of notes and of the table of section names that are read.
const PART_BYTES_MAX: u64 = 8 << 20;
/// Largest length of a section's name.
const SECTION_NAME_BYTES_MAX: usize = 4096;

/// Headers of an ELF file.
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
    /// Reads the headers, the section names and the notes, and no other part of the file. `data` may read from the disk on
    /// demand.
    pub(crate) fn parse<'d>(data: impl ReadRef<'d>) -> Result<Elf, ImageError> {
        let header = header(data)?;
        let arch = arch(header)?;
        let relocatable = header.e_type(ENDIAN) == raw::ET_REL;
        let programs = programs(header, data);
        let sections = sections(header, data);
        let segments = segments(programs);
        if sections.is_empty() && segments.is_empty() {
            return Err(ImageError::Damaged("neither program headers nor section headers can be read"));
        }
        let build_id = build_id(data, programs, &sections);
        let mut elf = Elf { arch, relocatable, segments, sections, build_id };
        if relocatable {
            elf.lay_out_module();
        }
        Ok(elf)
    }

    /// Returns the first section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| &*s.name == name)
    }

    /// Returns whether the file has the symbols that a linker writes for debuggers (`.symtab`), not only dynamic ones.
    pub(crate) fn has_symbols(&self) -> bool {
        self.sections.iter().any(|s| s.kind == raw::SHT_SYMTAB && s.size > 0)
    }

    /// Returns the allocated, executable section that contains an address.
    #[inline]
    pub(crate) fn code_section(&self, address: u64) -> Option<&Section> {
        self.sections.iter().find(|s| s.allocated && s.executable && s.contains(address))
    }

    /// Returns the end of the code around `address`: of its section, or of its segment if the file has no sections.
    #[inline]
    pub(crate) fn code_end(&self, address: u64) -> Option<u64> {
        if !self.sections.is_empty() {
            return self.code_section(address).map(Section::end);
        }
        let contains = |s: &&Segment| s.executable && address.wrapping_sub(s.address) < s.memory_size;
        let segment = self.segments.iter().find(contains)?;
        Some(segment.address.saturating_add(segment.memory_size))
    }

    /// Returns the lowest address at which [`Elf::code_end`] may find code; 0 if there is none.
    pub(crate) fn code_start(&self) -> u64 {
        let sections = self.sections.iter().filter(|s| s.allocated && s.executable).map(|s| s.address);
        let segments = self.segments.iter().filter(|s| s.executable).map(|s| s.address);
        sections.chain(segments).min().unwrap_or(0)
    }

    /// Returns whether the file itself contains debug information that can be read.
    pub(crate) fn has_dwarf(&self) -> bool {
        let has = |name| self.section(name).is_some_and(|s| s.size > 0 && s.file_range().is_some());
        !self.relocatable && (has(".debug_info") || has(".zdebug_info"))
    }

    /// Returns whether `address` is in an executable segment.
    pub(crate) fn is_code(&self, address: ImageAddress) -> bool {
        self.segments.iter().any(|s| s.executable && address.0.wrapping_sub(s.address) < s.memory_size)
    }

    pub(crate) fn address_of(&self, offset: ImageOffset) -> Option<ImageAddress> {
        let within = |s: &&Segment| offset.0.checked_sub(s.offset).is_some_and(|d| d < s.file_size);
        let segment = self.executable_first().find(within)?;
        Some(ImageAddress(segment.address.wrapping_add(offset.0 - segment.offset)))
    }

    /// Returns the address of the code at an offset; `None` if no executable segment contains it.
    pub(crate) fn address_of_code(&self, offset: ImageOffset) -> Option<ImageAddress> {
        self.address_of(offset).filter(|address| self.is_code(*address))
    }

    /// Returns the address of the page at `offset`, which an executable segment is mapped from: the first page of a segment may also
    /// be the last one of another segment, at another address.
    pub(crate) fn address_of_code_page(&self, offset: ImageOffset) -> Option<ImageAddress> {
        const PAGE: u64 = 4096;
        let code = self.segments.iter().filter(|segment| segment.executable);
        let mut within = code.filter(|s| {
            s.offset & !(PAGE - 1) <= offset.0 && offset.0 < s.offset.saturating_add(s.file_size)
        });
        let segment = within.next()?;
        Some(ImageAddress(segment.address.wrapping_sub(segment.offset).wrapping_add(offset.0)))
    }

    pub(crate) fn offset_of(&self, address: ImageAddress) -> Option<ImageOffset> {
        let segment = self.segment_at(address.0)?;
        Some(ImageOffset(segment.offset.wrapping_add(address.0 - segment.address)))
    }

    /// Returns the bytes of the file that are loaded at `address`, up to the end of their segment.
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

    /// Iterates over the segments, executable ones first. Segments overlap only in hostile files or in padding; code wins
    /// then, since samples are of code.
    fn executable_first(&self) -> impl Iterator<Item = &Segment> {
        let of = |executable| self.segments.iter().filter(move |s| s.executable == executable);
        of(true).chain(of(false))
    }

    /// Gives addresses to the sections of a relocatable file in the order in which the kernel's module loader places them:
    /// code first, without init sections (`layout_sections` in kernel/module/main.c). Addresses are thus distances from the
    /// start of the module, unless the architecture adds something of its own.
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

    /// Returns the section's bytes as they are in the file; empty if it has none or is outside of the file.
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

fn header<'d>(data: impl ReadRef<'d>) -> Result<&'d FileHeader64<LittleEndian>, ImageError> {
    match data.read_bytes_at(0, 6) {
        Err(()) => return Err(ImageError::NotElf("shorter than an ELF header")),
        Ok(ident) if ident[..4] != raw::ELFMAG => return Err(ImageError::NotElf("wrong magic number")),
        Ok(ident) if ident[4] != 2 => return Err(ImageError::Unsupported("not 64-bit".into())),
        Ok(ident) if ident[5] != 1 => return Err(ImageError::Unsupported("big-endian".into())),
        Ok(_) => {}
    }
    FileHeader64::<LittleEndian>::parse(data).map_err(|_| ImageError::NotElf("cut off in its header"))
}

/// Returns the build ID of a 64-bit ELF file for any machine.
pub(crate) fn build_id_of(bytes: &[u8]) -> Option<BuildId> {
    let header = header(bytes).ok()?;
    build_id(bytes, programs(header, bytes), &sections(header, bytes))
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

fn programs<'d>(
    header: &FileHeader64<LittleEndian>,
    data: impl ReadRef<'d>,
) -> &'d [ProgramHeader64<LittleEndian>] {
    let sane = header.phnum(ENDIAN, data).is_ok_and(|count| count <= HEADERS_MAX);
    if sane { header.program_headers(ENDIAN, data).unwrap_or_default() } else { &[] }
}

fn segments(programs: &[ProgramHeader64<LittleEndian>]) -> Vec<Segment> {
    let loaded = programs.iter().filter(|p| p.p_type(ENDIAN) == raw::PT_LOAD);
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

fn sections<'d>(header: &FileHeader64<LittleEndian>, data: impl ReadRef<'d>) -> Vec<Section> {
    let sane = header.shnum(ENDIAN, data).is_ok_and(|count| count <= HEADERS_MAX);
    let headers = if sane { header.section_headers(ENDIAN, data).unwrap_or_default() } else { &[] };
    let names = header.shstrndx(ENDIAN, data).ok().and_then(|index| headers.get(index as usize));
    // All names are read at once: the object crate reads each name separately, with two system calls if `data` is a file.
    let names = names.and_then(|s| part(data, s.sh_offset(ENDIAN), s.sh_size(ENDIAN))).unwrap_or_default();
    let has = |s: &SectionHeader64<LittleEndian>, flag: raw::SectionFlags| s.sh_flags(ENDIAN).0 & flag.0 != 0;
    let section = |s: &SectionHeader64<LittleEndian>| Section {
        name: String::from_utf8_lossy(section_name(names, s.sh_name(ENDIAN))).into(),
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

fn section_name(names: &[u8], offset: u32) -> &[u8] {
    let rest = names.get(offset as usize..).unwrap_or_default();
    let window = &rest[..rest.len().min(SECTION_NAME_BYTES_MAX)];
    window.iter().position(|byte| *byte == 0).map_or(&[], |end| &window[..end])
}

/// Returns a part of the file; `None` if it is too long or extends past the end of the file.
fn part<'d>(data: impl ReadRef<'d>, offset: u64, size_bytes: u64) -> Option<&'d [u8]> {
    (size_bytes <= PART_BYTES_MAX).then(|| data.read_bytes_at(offset, size_bytes).ok())?
}

/// Returns the build ID. It is taken from the notes that program headers refer to, which survive `strip` and `sstrip`;
/// otherwise from the notes in sections.
fn build_id<'d>(
    data: impl ReadRef<'d>,
    programs: &[ProgramHeader64<LittleEndian>],
    sections: &[Section],
) -> Option<BuildId> {
    let segments = programs.iter().filter(|p| p.p_type(ENDIAN) == raw::PT_NOTE);
    let segments = segments.map(|p| (p.p_offset(ENDIAN), p.p_filesz(ENDIAN), p.p_align(ENDIAN)));
    let sections = sections.iter().filter(|s| s.kind == raw::SHT_NOTE);
    let mut notes = segments.chain(sections.map(|s| (s.offset, s.size, s.align)));
    notes.find_map(|(offset, size, align)| build_id_in(part(data, offset, size)?, align))
}

/// Returns the build ID among the notes of one section or segment.
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
