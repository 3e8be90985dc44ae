//! Debug sections, decompressed where they must be, and the reader that borrows them.

use std::borrow::Cow;
use std::ops::Range;

use gimli::{EndianSlice, LittleEndian, SectionId};
use object::elf as raw;
use object::read::{CompressedData, CompressionFormat};

use crate::elf::{Elf, Section};
use crate::symbols::{le32, le64};

pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// A compressed section that claims to be this many times larger than it is claims too much: zlib cannot exceed it,
/// and real debug sections stay below 60.
const EXPANSION_MAX: u64 = 1032;

/// The bytes of each debug section, or where they lie in the file.
#[derive(Default)]
pub(crate) struct Sections(Vec<(SectionId, Bytes)>);

enum Bytes {
    InFile(Range<usize>),
    Own(Vec<u8>),
}

/// The sections that lines and inlined calls need.
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

impl Sections {
    pub(crate) fn load(elf: &Elf, bytes: &[u8]) -> Sections {
        Sections(NEEDED.iter().filter_map(|id| Some((*id, load(elf, bytes, *id)?))).collect())
    }

    /// Of those that had to be decompressed.
    pub(crate) fn memory_bytes(&self) -> usize {
        let own = |bytes: &Bytes| match bytes {
            Bytes::InFile(_) => 0,
            Bytes::Own(bytes) => bytes.len(),
        };
        self.0.iter().map(|(_, bytes)| own(bytes)).sum()
    }

    /// A view of the sections; cheap, made anew for each question.
    pub(crate) fn dwarf<'a>(&'a self, file: &'a [u8]) -> gimli::Dwarf<Reader<'a>> {
        let section = |id: SectionId| {
            let bytes = self.0.iter().find(|(i, _)| *i == id).map(|(_, b)| match b {
                Bytes::InFile(range) => file.get(range.clone()).unwrap_or_default(),
                Bytes::Own(bytes) => bytes,
            });
            Ok::<_, gimli::Error>(EndianSlice::new(bytes.unwrap_or_default(), LittleEndian))
        };
        gimli::Dwarf::load(section).unwrap_or_default()
    }
}

fn load(elf: &Elf, bytes: &[u8], id: SectionId) -> Option<Bytes> {
    if let Some(section) = elf.section(id.name()) {
        let range = section.file_range()?;
        let content = bytes.get(range.clone())?;
        return match section.compressed {
            true => decompress(elf_compressed(content)?).map(Bytes::Own),
            false => Some(Bytes::InFile(range)),
        };
    }
    // Before ELF knew compressed sections, GNU tools renamed them.
    let old_name = format!(".z{}", &id.name()[1..]);
    elf.section(&old_name).and_then(|s| gnu_compressed(s, bytes)).and_then(decompress).map(Bytes::Own)
}

/// An ELF compression header (gABI, "Section Compression") and what follows.
fn elf_compressed(content: &[u8]) -> Option<CompressedData<'_>> {
    let format = match raw::CompressionType(le32(content, 0)?) {
        raw::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
        raw::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
        _ => return None,
    };
    Some(CompressedData { format, data: content.get(24..)?, uncompressed_size: le64(content, 8)? })
}

/// `ZLIB`, the size in big-endian, and what follows.
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
