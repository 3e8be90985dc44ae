//! Finds the source lines and inlined calls of an address in DWARF 4 and 5.
//!
//! Parsing is lazy. The first request reads the root entry of each unit (its address ranges); a request for an address reads
//! the lines of one unit, and a request for calls also reads its functions. Tables are plain data, so that threads can share
//! an image. The most recently used ones are cached, up to [`LINE_BYTES_KEPT`] and [`SCOPE_BYTES_KEPT`] for each file. A
//! caller with many addresses should request them in ascending order.
//!
//! addr2line is not used for three reasons: its tables borrow the sections and are not `Sync`; its recursion over nested
//! inlined calls is as deep as the input makes it; and its file names may take the square of the input's size. The tests
//! compare our answers with those of addr2line.
//!
//! Hostile input: every table is limited by the bytes that it is read from or by an explicit budget, and there is no
//! recursion.

mod index;
mod lines;
mod name_table;
mod names;
mod parts;
pub(crate) mod places;
mod scopes;
mod sections;
mod split;
mod units;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use index::Index;
use lines::LineTable;
use names::References;
use parts::{AltFile, Parts};
use places::Places;
use rustc_hash::FxHashMap;
use scopes::ScopeTable;

use crate::data::Data;
use crate::elf::Elf;
use crate::elf_file::ElfFile;
use crate::lru_cache::LruCache;
use crate::{BuildId, ImageAddress};
pub(crate) use sections::{Reader, Sections, uncompressed};
use units::AbbreviationsCache;

/// One call in the chain of inlined calls at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Name of the function as the source spells it (C++ with its parameters, Rust with its path).
    pub function: Option<String>,
    /// Source file, as text that `text_to_path` converts. The path is absolute and normalized if the compiler recorded its
    /// directory.
    pub file: Option<Arc<str>>,
    /// Line, from 1. In an outer frame, the line of the inlined call.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
}

/// One call in the chain of inlined calls at an address, in a form that a compiler can match with the same source again:
/// linkage name of the function, lines relative to its declaration, and discriminators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledFrame {
    /// Linkage name of the function; for C, its name.
    pub function: Option<String>,
    /// Line that the function is declared at; 0 if unknown.
    pub start_line: u32,
    /// Line, or 0 for code without a line. In an outer frame, the line of the inlined call.
    pub line: u32,
    /// Number that distinguishes the blocks on one line, as the compiler encodes it.
    pub discriminator: u32,
}

/// Debug information of one file.
pub(crate) struct Dwarf {
    elf: Arc<Elf>,
    data: Arc<Data>,
    sections: OnceLock<Sections>,
    parts: Parts,
    index: OnceLock<Index>,
    /// MD5 of source files by path; `None` if the compiler did not record it.
    md5: Mutex<FxHashMap<Box<str>, Option<[u8; 16]>>>,
    lines: LruCache<usize, LineTable>,
    scopes: LruCache<usize, ScopeTable>,
}

/// Largest number of units around one address that are examined. Units overlap in hostile files, and if a unit was built
/// from both assembly and C.
const UNITS_PER_ADDRESS_MAX: usize = 8;
/// Bytes of line tables that are cached for one file.
const LINE_BYTES_KEPT: usize = 24 << 20;
/// Bytes of functions and inlined calls that are cached for one file.
const SCOPE_BYTES_KEPT: usize = 16 << 20;

type IsCode<'c> = &'c dyn Fn(ImageAddress) -> bool;

impl Dwarf {
    pub(crate) fn new(elf: Elf, data: Arc<Data>) -> Self {
        Dwarf {
            elf: Arc::new(elf),
            data,
            sections: OnceLock::new(),
            parts: Parts::default(),
            index: OnceLock::new(),
            md5: Mutex::default(),
            lines: LruCache::new(LINE_BYTES_KEPT),
            scopes: LruCache::new(SCOPE_BYTES_KEPT),
        }
    }

    /// Sets the places where parts in other files are looked for when they are needed.
    pub(crate) fn look_in(&mut self, places: Places) {
        self.parts = Parts::in_places(places);
        self.forget();
    }

    /// Uses the file itself for all parts that are in other files.
    pub(crate) fn look_within(&mut self) {
        self.parts = Parts::within(&self.elf, &self.data);
        self.forget();
    }

    /// Drops cached results that may depend on other files.
    fn forget(&mut self) {
        self.index = OnceLock::new();
        self.lines = LruCache::new(LINE_BYTES_KEPT);
        self.scopes = LruCache::new(SCOPE_BYTES_KEPT);
    }

    pub(crate) fn elf(&self) -> &Elf {
        &self.elf
    }

    /// Returns the file itself.
    pub(crate) fn file(&self) -> ElfFile {
        ElfFile::new(self.elf.clone(), self.data.clone())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Returns the number of bytes of memory that are held, without those for data as large as the headers.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.data.memory_bytes()
            + self.sections.get().map_or(0, Sections::memory_bytes)
            + self.parts.memory_bytes()
            + self.lines.size()
            + self.scopes.size()
    }

    /// Returns the chain of calls at an address, innermost first; empty if nothing is known of the address.
    pub(crate) fn frames(&self, address: ImageAddress, is_code: IsCode<'_>) -> Vec<Frame> {
        self.first_known(address, is_code, |reader, unit| {
            let tables = (&*reader.lines(unit), &*reader.scopes(unit));
            Some(frames(tables, address)).filter(|frames| !frames.is_empty())
        })
        .unwrap_or_default()
    }

    /// Returns the chain of calls for compilers, innermost first; empty if no function is known at the address.
    pub(crate) fn compiled_frames(&self, address: ImageAddress, is_code: IsCode<'_>) -> Vec<CompiledFrame> {
        self.first_known(address, is_code, |reader, unit| {
            let tables = (&*reader.lines(unit), &*reader.scopes(unit));
            Some(compiled_frames(tables, address)).filter(|frames| !frames.is_empty())
        })
        .unwrap_or_default()
    }

    /// Returns file and line of the innermost frame of each address, without reading functions and calls.
    pub(crate) fn lines(
        &self,
        addresses: impl Iterator<Item = ImageAddress>,
        is_code: IsCode<'_>,
    ) -> Vec<Option<(Arc<str>, u32)>> {
        let Some(reader) = self.reader(is_code) else { return addresses.map(|_| None).collect() };
        addresses.map(|address| reader.line(address)).collect()
    }

    /// Returns file and line of the first row of `address` in the line table.
    pub(crate) fn first_line(&self, address: ImageAddress, is_code: IsCode<'_>) -> Option<(Arc<str>, u32)> {
        self.first_known(address, is_code, |reader, unit| {
            let lines = reader.lines(unit);
            lines.place(lines.first_at(address)?)
        })
    }

    /// Returns the source files of the code from `begin` to `end`, each once.
    pub(crate) fn files_within(
        &self,
        begin: ImageAddress,
        end: ImageAddress,
        is_code: IsCode<'_>,
    ) -> Vec<Arc<str>> {
        let Some(reader) = self.reader(is_code) else { return Vec::new() };
        let units = reader.index.units_within(begin, end).take(UNITS_PER_ADDRESS_MAX);
        let mut files: Vec<Arc<str>> =
            units.flat_map(|unit| reader.lines(unit).files_within(begin, end)).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Returns whether code from `begin` to `end` may come from a source file of that name; `false` only if the units of
    /// that code list no such file. Reads only the lists of files, which are much smaller than the lines.
    pub(crate) fn may_be_of(
        &self,
        begin: ImageAddress,
        end: ImageAddress,
        file_name: &str,
        is_code: IsCode<'_>,
    ) -> bool {
        let Some(reader) = self.reader(is_code) else { return false };
        let mut units = reader.index.units_within(begin, end);
        units.any(|unit| reader.index.lists_file(&reader.dwarf, unit, file_name))
    }

    /// Calls `look` for the units around `address`, the nearest first, and returns its first result.
    fn first_known<T>(
        &self,
        address: ImageAddress,
        is_code: IsCode<'_>,
        look: impl Fn(&TableReader<'_>, usize) -> Option<T>,
    ) -> Option<T> {
        let reader = self.reader(is_code)?;
        let mut units = reader.index.units_at(address).take(UNITS_PER_ADDRESS_MAX);
        units.find_map(|unit| look(&reader, unit))
    }

    /// Returns a reader of the tables; `None` for a relocatable file, whose addresses are not known yet.
    fn reader<'d>(&'d self, is_code: IsCode<'d>) -> Option<TableReader<'d>> {
        if self.elf.relocatable {
            return None;
        }
        let dwarf = self.dwarf();
        let index = self.index(&dwarf, is_code);
        Some(TableReader { of: self, dwarf, index, is_code, last: RefCell::default() })
    }

    /// Returns a sentence that names the missing parts in other files.
    pub(crate) fn missing_parts(&self, is_code: IsCode<'_>) -> Option<String> {
        let dwarf = self.dwarf();
        self.parts.missing(&dwarf, self.index(&dwarf, is_code))
    }

    /// Returns the MD5 of a source file as the compiler saw it (DWARF 5 §6.2.4.1).
    pub(crate) fn source_md5(&self, path: &str, is_code: IsCode<'_>) -> Option<[u8; 16]> {
        let known = || self.md5.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(md5) = known().get(path) {
            return *md5;
        }
        let dwarf = self.dwarf();
        let md5 = self.index(&dwarf, is_code).source_md5(&dwarf, path);
        known().insert(path.into(), md5);
        md5
    }

    fn dwarf(&self) -> gimli::Dwarf<Reader<'_>> {
        let bytes = self.bytes();
        let mut dwarf = self.sections.get_or_init(|| Sections::load(&self.elf, bytes)).dwarf(bytes);
        if let Some(alt) = self.alt() {
            dwarf.set_sup(alt.dwarf());
        }
        dwarf
    }

    /// Returns the build ID of the file that contains shared debug information, if that file was not found.
    pub(crate) fn missing_alt(&self) -> Option<BuildId> {
        self.parts.missing_alt(&self.elf, self.bytes())
    }

    fn alt(&self) -> Option<&AltFile> {
        self.parts.alt(&self.elf, self.bytes())
    }

    fn index(&self, dwarf: &gimli::Dwarf<Reader<'_>>, is_code: IsCode<'_>) -> &Index {
        self.index.get_or_init(|| Index::read(dwarf, is_code))
    }
}

/// Reads the tables of units that are not in the cache.
struct TableReader<'d> {
    of: &'d Dwarf,
    dwarf: gimli::Dwarf<Reader<'d>>,
    index: &'d Index,
    is_code: IsCode<'d>,
    /// The most recently requested lines: neighbouring addresses are in the same unit.
    last: RefCell<Option<(usize, Arc<LineTable>)>>,
}

impl TableReader<'_> {
    fn line(&self, address: ImageAddress) -> Option<(Arc<str>, u32)> {
        let mut units = self.index.units_at(address).take(UNITS_PER_ADDRESS_MAX);
        units.find_map(|unit| {
            let lines = self.lines(unit);
            lines.at(address).map(|row| lines.place(row))
        })?
    }

    fn lines(&self, unit: usize) -> Arc<LineTable> {
        if let Some((_, lines)) = self.last.borrow().as_ref().filter(|(last, _)| *last == unit) {
            return lines.clone();
        }
        let read = || self.index.lines(&self.dwarf, unit, self.is_code);
        let lines = self.of.lines.get(&unit, read, LineTable::memory_bytes);
        *self.last.borrow_mut() = Some((unit, lines.clone()));
        lines
    }

    fn scopes(&self, unit: usize) -> Arc<ScopeTable> {
        self.of.scopes.get(&unit, || self.read_scopes(unit), ScopeTable::memory_bytes)
    }

    /// Reads the functions and inlined calls of a unit, from its split part if that is available. The result is empty if the
    /// unit cannot be read.
    fn read_scopes(&self, unit: usize) -> ScopeTable {
        let opened = self.index.units.open(&self.dwarf, unit, &mut AbbreviationsCache::default());
        let Some(opened) = opened else { return ScopeTable::default() };
        let whole = opened.unit_ref(&self.dwarf);
        let alt = self.of.alt().map(AltFile::units);
        let split = self.of.parts.split(unit, &self.dwarf, whole.unit, &|part, units| {
            ScopeTable::read(part, References { own: units, alt }, self.is_code)
        });
        let references = References { own: &self.index.units, alt };
        split.unwrap_or_else(|| ScopeTable::read(whole, references, self.is_code))
    }
}

/// Lines and scopes of one unit.
type UnitTables<'t> = (&'t LineTable, &'t ScopeTable);

fn frames((lines, scopes): UnitTables<'_>, address: ImageAddress) -> Vec<Frame> {
    let place = lines.at(address);
    let mut frames = Vec::new();
    let mut at = place.map(|row| (row.file, row.line, row.column)).unwrap_or_default();
    for scope in scopes.chain(address) {
        frames.push(frame(lines, scope.name().map(|n| scopes.names.demangled(n)), at));
        at = (scope.call_file, scope.call_line, scope.call_column);
    }
    if frames.is_empty() && place.is_some() {
        frames.push(frame(lines, None, at));
    }
    frames
}

fn frame(lines: &LineTable, function: Option<&str>, (file, line, column): (u32, u32, u32)) -> Frame {
    let some = |number: u32| (number != 0).then_some(number);
    Frame {
        function: function.map(str::to_owned),
        file: lines.file(file).cloned(),
        line: some(line),
        // Without a line (for code that no source line produced), a column is meaningless.
        column: some(column).filter(|_| line != 0),
    }
}

fn compiled_frames((lines, scopes): UnitTables<'_>, address: ImageAddress) -> Vec<CompiledFrame> {
    let row = lines.at(address);
    let (mut line, mut discriminator) = row.map(|row| (row.line, row.discriminator)).unwrap_or_default();
    let mut frames = Vec::new();
    for scope in scopes.chain(address) {
        let function = scope.name().map(|n| scopes.names.linkage(n).to_owned());
        frames.push(CompiledFrame { function, start_line: scope.line, line, discriminator });
        (line, discriminator) = (scope.call_line, scope.call_discriminator);
    }
    frames
}
