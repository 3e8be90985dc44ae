//! An ELF file whose headers were read; its other parts are read when they are needed.
//!
//! Input: a file, in memory or on disk. Output: its headers, sections, symbols and names. Debug information and instructions
//! are not handled here, and a file on disk is never read completely.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use object::elf as raw;
use object::read::ReadCache;

use crate::data::{Data, ReadAt, open_regular};
use crate::elf::{self, Elf, Section};
use crate::symbols::{self, NAME_BYTES_MAX, SYMBOL_BYTES};
use crate::{BuildId, DebugSearch, ImageError, debug_files, minidebug};

/// Largest size of a file on disk that is accepted as an image: hostile files may claim any size.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Number of bytes of symbols that are read at once: a multiple of [`SYMBOL_BYTES`].
const CHUNK_BYTES: u64 = 24 << 11;
/// Largest number of symbols: several times the number in the largest programs with debug information.
const SYMBOLS_MAX: u64 = 16 << 20;
/// Number of bytes of a name that are read first; few names are longer.
const USUAL_NAME_BYTES: usize = 256;

/// An ELF file, in memory or on disk.
pub(crate) struct ElfFile {
    pub(crate) elf: Arc<Elf>,
    bytes: Arc<dyn ReadAt>,
}

/// One symbol as it is in the file.
pub(crate) struct RawSymbol<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether the symbol is in the table of the dynamic linker (`.dynsym`).
    pub(crate) exported: bool,
    /// Number of the section that contains the name.
    pub(crate) strings: usize,
}

impl ElfFile {
    pub(crate) fn new(elf: Arc<Elf>, bytes: Arc<dyn ReadAt>) -> ElfFile {
        ElfFile { elf, bytes }
    }

    /// Opens a file and reads only its headers.
    pub(crate) fn open(path: &Path) -> Result<ElfFile, ImageError> {
        let read = |error| ImageError::read(path, error);
        let file = open_regular(path).map_err(read)?;
        if file.metadata().map_err(read)?.len() > FILE_BYTES_MAX {
            return Err(ImageError::Unsupported("the file is too large".to_owned()));
        }
        let elf = Elf::parse(&ReadCache::new(&file))?;
        Ok(ElfFile::new(Arc::new(elf), Arc::new(file)))
    }

    pub(crate) fn has_debug_link(&self) -> bool {
        self.elf.section(".gnu_debuglink").is_some()
    }

    /// Opens the installed debug file of this file, found by path and verified by build ID.
    pub(crate) fn debug_file(&self, search: &DebugSearch, path: &Path) -> Option<ElfFile> {
        let link = self.elf.section(".gnu_debuglink").and_then(|s| debug_files::link_of(&self.section(s)));
        let places = debug_files::places(search, self.elf.build_id.as_ref(), link.as_ref(), path);
        let mut opened = places.iter().filter_map(|place| ElfFile::open(place).ok());
        opened.find(|d| d.elf.arch == self.elf.arch && d.elf.build_id == self.elf.build_id)
    }

    /// Returns the file of symbols that this file contains in compressed form.
    pub(crate) fn packed_symbols(&self) -> Option<ElfFile> {
        let packed = self.section(self.elf.section(minidebug::SECTION)?);
        let data = Data::Memory(minidebug::unpack(&packed).ok()?).widened();
        let elf = Elf::parse(data.bytes()).ok()?;
        (elf.arch == self.elf.arch).then(|| ElfFile::new(Arc::new(elf), Arc::new(data)))
    }

    /// Returns the bytes of a section as they are in the file; empty if it has none or they cannot be read.
    pub(crate) fn section(&self, section: &Section) -> Cow<'_, [u8]> {
        section.file_range().and_then(|range| self.read(as_u64(range))).unwrap_or_default()
    }

    /// Returns a part of the file; `None` if it cannot be read completely.
    pub(crate) fn read(&self, range: Range<u64>) -> Option<Cow<'_, [u8]>> {
        self.bytes.read_range(range)
    }

    /// Returns a shared reader for parts of the file.
    pub(crate) fn reader(&self) -> Arc<dyn ReadAt> {
        self.bytes.clone()
    }

    /// Returns the name at `offset` in the string table of a section (by number), without its version.
    pub(crate) fn name(&self, strings: usize, offset: u32) -> Option<Cow<'_, str>> {
        let range = as_u64(self.elf.sections.get(strings)?.file_range()?);
        let start = range.start.checked_add(offset.into())?;
        for length in [USUAL_NAME_BYTES, NAME_BYTES_MAX] {
            let end = range.end.min(start.saturating_add(length as u64));
            let name = match self.read(start..end)? {
                Cow::Borrowed(bytes) => symbols::name_in(bytes).map(Cow::Borrowed),
                Cow::Owned(bytes) => symbols::name_in(&bytes).map(|name| Cow::Owned(name.to_owned())),
            };
            if name.is_some() {
                return name;
            }
        }
        None
    }

    /// Returns the name of symbol `index` of a symbol table.
    pub(crate) fn symbol_name(&self, table: &Section, index: u32) -> Option<Cow<'_, str>> {
        let within = u64::from(index) * SYMBOL_BYTES as u64;
        let start = table.offset.checked_add(within).filter(|_| within < table.size)?;
        let symbol = self.read(start..start.checked_add(SYMBOL_BYTES as u64)?)?;
        self.name(table.link, symbols::le32(&symbol, 0)?)
    }

    /// Returns the largest number of symbols that the file can contain; an error if that is more than any program has.
    pub(crate) fn symbols_max(&self) -> Result<usize, ImageError> {
        let bytes = self.symbol_tables().map(|s| s.size).fold(0, u64::saturating_add);
        // Overlapping tables occur only in hostile files.
        let count = bytes.min(self.bytes.length()) / SYMBOL_BYTES as u64;
        if count > SYMBOLS_MAX {
            return Err(ImageError::Unsupported(format!("{count} symbols, the limit is {SYMBOLS_MAX}")));
        }
        Ok(count as usize)
    }

    /// Calls `each` for the first `count` symbols.
    pub(crate) fn for_each_symbol(&self, count: usize, mut each: impl FnMut(RawSymbol<'_>)) {
        let mut left = count;
        for table in self.symbol_tables() {
            let Some(range) = table.file_range().map(as_u64) else { continue };
            let mut at = range.start;
            while at < range.end && left > 0 {
                let Some(chunk) = self.read(at..range.end.min(at.saturating_add(CHUNK_BYTES))) else { break };
                let symbols = chunk.chunks_exact(SYMBOL_BYTES).take(left);
                left -= symbols.len();
                let (exported, strings) = (table.kind == raw::SHT_DYNSYM, table.link);
                symbols.for_each(|bytes| each(RawSymbol { bytes, exported, strings }));
                at += chunk.len() as u64;
            }
        }
    }

    fn symbol_tables(&self) -> impl Iterator<Item = &Section> {
        self.elf.sections.iter().filter(|s| matches!(s.kind, raw::SHT_SYMTAB | raw::SHT_DYNSYM))
    }
}

/// Returns the build ID of a file. Reads only its headers and notes.
pub(crate) fn build_id(path: &Path) -> Option<BuildId> {
    if let Ok(file) = ElfFile::open(path) {
        return file.elf.build_id.clone();
    }
    // A 32-bit file, or one for an unsupported machine, is still identified by its build ID.
    elf::build_id_of(Data::open(path).ok()?.bytes())
}

fn as_u64(range: Range<usize>) -> Range<u64> {
    range.start as u64..range.end as u64
}
