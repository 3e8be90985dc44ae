//! Debug sections, decompressed if necessary, and the reader that borrows them.

use std::borrow::Cow;
use std::ops::Range;

use gimli::{EndianSlice, LittleEndian, SectionId};
use object::elf as raw;
use object::read::{CompressedData, CompressionFormat};

use crate::elf::{Elf, Section};
use crate::symbols::{le32, le64};

pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Largest factor by which a compressed section may claim to grow. zlib cannot exceed it, and real debug sections stay below
/// 60.
const EXPANSION_MAX: u64 = 1032;

/// The bytes of each debug section, or their place in the file.
#[derive(Default)]
pub(crate) struct Sections(Vec<(SectionId, Bytes)>);

enum Bytes {
    InFile(Range<usize>),
    Own(Vec<u8>),
}

/// Sections that are needed for lines and inlined calls.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// Sections of split debug information that are needed for inlined calls, and those that the index of a package has columns
/// for. A unit whose part of one of these is missing would be rejected.
const NEEDED_SPLIT: [SectionId; 12] = [
    SectionId::DebugAbbrev,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
    SectionId::DebugCuIndex,
];

/// Largest number of sections of entries in a `.dwo` file. Each type unit that was compiled beside a unit has its own, since
/// no linker merged them.
const INFO_SECTIONS_MAX: usize = 1 << 16;

impl Sections {
    pub(crate) fn load(elf: &Elf, bytes: &[u8]) -> Sections {
        let load = |id: &SectionId| Some((*id, load(elf, bytes, id.name()).next()?));
        Sections(NEEDED.iter().filter_map(load).collect())
    }

    /// Loads the sections of a `.dwo` file or a `.dwp` package.
    pub(crate) fn load_split(elf: &Elf, bytes: &[u8]) -> Sections {
        let mut sections = Vec::new();
        for id in NEEDED_SPLIT {
            let Some(name) = id.dwo_name() else { continue };
            let all = if id == SectionId::DebugInfo { INFO_SECTIONS_MAX } else { 1 };
            sections.extend(load(elf, bytes, name).take(all).map(|bytes| (id, bytes)));
        }
        Sections(sections)
    }

    /// Returns the number of bytes of the sections that had to be decompressed.
    pub(crate) fn memory_bytes(&self) -> usize {
        let own = |bytes: &Bytes| match bytes {
            Bytes::InFile(_) => 0,
            Bytes::Own(bytes) => bytes.len(),
        };
        self.0.iter().map(|(_, bytes)| own(bytes)).sum()
    }

    /// Returns a view of the sections. It is cheap and created for each request.
    pub(crate) fn dwarf<'a>(&'a self, file: &'a [u8]) -> gimli::Dwarf<Reader<'a>> {
        let section = |id| Ok::<_, gimli::Error>(self.all(id, file).next().unwrap_or_default());
        gimli::Dwarf::load(section).unwrap_or_default()
    }

    /// Returns views of a `.dwo` file, one for each of its sections of entries.
    pub(crate) fn split<'a>(&'a self, file: &'a [u8]) -> Vec<gimli::Dwarf<Reader<'a>>> {
        let with_entries = |info: Reader<'a>| {
            let mut dwarf = self.dwarf(file);
            dwarf.debug_info = info.into();
            dwarf
        };
        self.all(SectionId::DebugInfo, file).map(with_entries).collect()
    }

    /// Returns a view of a `.dwp` package; `None` if it has no index of units.
    pub(crate) fn package<'a>(&'a self, file: &'a [u8]) -> Option<gimli::DwarfPackage<Reader<'a>>> {
        self.all(SectionId::DebugCuIndex, file).next()?;
        let section = |id| Ok::<_, gimli::Error>(self.all(id, file).next().unwrap_or_default());
        gimli::DwarfPackage::load(section, Reader::default()).ok()
    }

    fn all<'a>(&'a self, id: SectionId, file: &'a [u8]) -> impl Iterator<Item = Reader<'a>> {
        let bytes = self.0.iter().filter(move |(i, _)| *i == id).map(move |(_, b)| match b {
            Bytes::InFile(range) => file.get(range.clone()).unwrap_or_default(),
            Bytes::Own(bytes) => bytes,
        });
        bytes.map(|bytes| EndianSlice::new(bytes, LittleEndian))
    }
}

/// Returns all sections of that name. If there are none, returns those with the name that GNU tools gave to compressed
/// sections before ELF supported them.
fn load<'e>(elf: &'e Elf, bytes: &'e [u8], name: &'e str) -> impl Iterator<Item = Bytes> + 'e {
    let plain = elf.sections.iter().filter(move |s| &*s.name == name);
    let renamed = elf.section(&format!(".z{}", &name[1..])).filter(|_| elf.section(name).is_none());
    let renamed = renamed.and_then(|s| gnu_compressed(s, bytes)).and_then(decompress).map(Bytes::Own);
    plain.filter_map(|section| content(section, bytes)).chain(renamed)
}

fn content(section: &Section, bytes: &[u8]) -> Option<Bytes> {
    let range = section.file_range()?;
    let content = bytes.get(range.clone())?;
    match section.compressed {
        true => decompress(elf_compressed(content)?).map(Bytes::Own),
        false => Some(Bytes::InFile(range)),
    }
}

/// Returns the bytes of a section, given as they are in the file; `None` if they are compressed and damaged.
pub(crate) fn uncompressed<'a>(section: &Section, content: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    match section.compressed {
        true => decompress(elf_compressed(content)?).map(Cow::Owned),
        false => Some(Cow::Borrowed(content)),
    }
}

/// Parses an ELF compression header (gABI, "Section Compression") and the data after it.
fn elf_compressed(content: &[u8]) -> Option<CompressedData<'_>> {
    let format = match raw::CompressionType(le32(content, 0)?) {
        raw::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
        raw::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
        _ => return None,
    };
    Some(CompressedData { format, data: content.get(24..)?, uncompressed_size: le64(content, 8)? })
}

/// Parses `ZLIB`, the size in big-endian, and the data after it.
fn gnu_compressed<'a>(section: &Section, bytes: &'a [u8]) -> Option<CompressedData<'a>> {
    let content = section.bytes(bytes);
    let size: [u8; 8] = content.strip_prefix(b"ZLIB")?.get(..8)?.try_into().ok()?;
    let uncompressed_size = u64::from_be_bytes(size);
    Some(CompressedData { format: CompressionFormat::Zlib, data: content.get(12..)?, uncompressed_size })
}

fn decompress(compressed: CompressedData<'_>) -> Option<Vec<u8>> {
    if compressed.uncompressed_size > (compressed.data.len() as u64).saturating_mul(EXPANSION_MAX) {
        return None;
    }
    compressed.decompress().ok().map(Cow::into_owned)
}
