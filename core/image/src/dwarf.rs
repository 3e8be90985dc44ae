//! DWARF 4 and 5 → source lines and inlined calls of an address.
//!
//! Nothing is parsed before it is asked for: the first question reads each unit's root entry (its address ranges), a
//! question about an address that one unit's lines, one about calls its functions too. Tables are plain data, so that an
//! image can be shared by threads; those used last are kept, [`LINE_BYTES_KEPT`] and [`SCOPE_BYTES_KEPT`] of a file: who
//! asks about many addresses asks in their order. (addr2line would be the shorter way; its tables borrow the sections and
//! are not `Sync`, its recursion over nested inlined calls follows the input's depth, and its file names may take the
//! input's size squared. The tests hold our answers against its.)
//!
//! Hostile input: every table is bounded by the bytes it is read from or by an explicit budget; there is no recursion.

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
pub(crate) use sections::{Reader, Sections};
use units::AbbreviationsCache;

/// One call of the chain that an address belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function as the source spells it (C++ with its parameters, Rust with its path).
    pub function: Option<String>,
    /// The source file: absolute and normalized where the compiler told its directory. A text that `text_to_path` reads.
    pub file: Option<Arc<str>>,
    /// The line, from 1. In an outer frame: that of the inlined call.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
}

/// One call of the chain that an address belongs to, as compilers find it again in the same source: by what a function
/// is called in the object file, by lines from the one it is declared at, and by discriminators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledFrame {
    /// The function's linkage name; in C its name.
    pub function: Option<String>,
    /// The line it is declared at; 0 where that is not known.
    pub start_line: u32,
    /// The line, 0 for code of no line. In an outer frame: that of the inlined call.
    pub line: u32,
    /// Which of the blocks on that line, as the compiler encodes it.
    pub discriminator: u32,
}

/// The debug information of one file.
pub(crate) struct Dwarf {
    elf: Arc<Elf>,
    data: Arc<Data>,
    sections: OnceLock<Sections>,
    parts: Parts,
    index: OnceLock<Index>,
    /// The MD5 of source files by path; `None` where the compiler did not record it.
    md5: Mutex<FxHashMap<Box<str>, Option<[u8; 16]>>>,
    lines: LruCache<usize, LineTable>,
    scopes: LruCache<usize, ScopeTable>,
}

/// How many of the units around one address are looked into. Units overlap in hostile files, and where one was made of
/// assembly and C.
const UNITS_PER_ADDRESS_MAX: usize = 8;
/// Bytes of line tables that are kept for one file.
const LINE_BYTES_KEPT: usize = 24 << 20;
/// Bytes of functions and inlined calls that are kept for one file.
const SCOPE_BYTES_KEPT: usize = 16 << 20;

type IsCode<'c> = &'c dyn Fn(u64) -> bool;

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

    /// Looks for the parts that are in other files in these places, when they are needed.
    pub(crate) fn look_in(&mut self, places: Places) {
        self.parts = Parts::in_places(places);
        self.forget();
    }

    /// Takes the file itself for all parts that are in other files.
    pub(crate) fn look_within(&mut self) {
        self.parts = Parts::within(&self.elf, &self.data);
        self.forget();
    }

    /// Forgets what may depend on other files.
    fn forget(&mut self) {
        self.index = OnceLock::new();
        self.lines = LruCache::new(LINE_BYTES_KEPT);
        self.scopes = LruCache::new(SCOPE_BYTES_KEPT);
    }

    pub(crate) fn elf(&self) -> &Elf {
        &self.elf
    }

    /// The file itself.
    pub(crate) fn file(&self) -> ElfFile {
        ElfFile::new(self.elf.clone(), self.data.clone())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Bytes of memory that are held for it, without what is as large as its headers.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.data.memory_bytes()
            + self.sections.get().map_or(0, Sections::memory_bytes)
            + self.parts.memory_bytes()
            + self.lines.size()
            + self.scopes.size()
    }

    /// Innermost first; empty where nothing is known of the address.
    pub(crate) fn frames(&self, address: ImageAddress, is_code: IsCode<'_>) -> Vec<Frame> {
        self.first_known(address, is_code, |reader, unit| {
            let tables = (&*reader.lines(unit), &*reader.scopes(unit));
            Some(frames(tables, address.0)).filter(|frames| !frames.is_empty())
        })
        .unwrap_or_default()
    }

    /// Innermost first; empty where no function is known at the address.
    pub(crate) fn compiled_frames(&self, address: ImageAddress, is_code: IsCode<'_>) -> Vec<CompiledFrame> {
        self.first_known(address, is_code, |reader, unit| {
            let tables = (&*reader.lines(unit), &*reader.scopes(unit));
            Some(compiled_frames(tables, address.0)).filter(|frames| !frames.is_empty())
        })
        .unwrap_or_default()
    }

    /// File and line of each address: those of its innermost frame, without reading functions and calls.
    pub(crate) fn lines(
        &self,
        addresses: impl Iterator<Item = ImageAddress>,
        is_code: IsCode<'_>,
    ) -> Vec<Option<(Arc<str>, u32)>> {
        let Some(reader) = self.reader(is_code) else { return addresses.map(|_| None).collect() };
        addresses.map(|address| reader.line(address.0)).collect()
    }

    /// File and line of the first row of `address`.
    pub(crate) fn first_line(&self, address: ImageAddress, is_code: IsCode<'_>) -> Option<(Arc<str>, u32)> {
        self.first_known(address, is_code, |reader, unit| {
            let lines = reader.lines(unit);
            lines.place(lines.first_at(address.0)?)
        })
    }

    /// The files that the code from `begin` to `end` was written in, each once.
    pub(crate) fn files_within(&self, begin: u64, end: u64, is_code: IsCode<'_>) -> Vec<Arc<str>> {
        let Some(reader) = self.reader(is_code) else { return Vec::new() };
        let units = reader.index.units_within(begin, end).take(UNITS_PER_ADDRESS_MAX);
        let mut files: Vec<Arc<str>> =
            units.flat_map(|unit| reader.lines(unit).files_within(begin, end)).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Whether code from `begin` to `end` may have been written in a file of that name: `false` only where the units around
    /// it list none. Reads their lists of files, which is little beside their lines.
    pub(crate) fn may_be_of(&self, begin: u64, end: u64, file_name: &str, is_code: IsCode<'_>) -> bool {
        let Some(reader) = self.reader(is_code) else { return false };
        let mut units = reader.index.units_within(begin, end);
        units.any(|unit| reader.index.lists_file(&reader.dwarf, unit, file_name))
    }

    /// What `look` finds in one of the units around `address`, the nearest first.
    fn first_known<T>(
        &self,
        address: ImageAddress,
        is_code: IsCode<'_>,
        look: impl Fn(&TableReader<'_>, usize) -> Option<T>,
    ) -> Option<T> {
        let reader = self.reader(is_code)?;
        let mut units = reader.index.units_at(address.0).take(UNITS_PER_ADDRESS_MAX);
        units.find_map(|unit| look(&reader, unit))
    }

    /// `None` for a relocatable file, whose addresses are not yet known.
    fn reader<'d>(&'d self, is_code: IsCode<'d>) -> Option<TableReader<'d>> {
        if self.elf.relocatable {
            return None;
        }
        let dwarf = self.dwarf();
        let index = self.index(&dwarf, is_code);
        Some(TableReader { of: self, dwarf, index, is_code, last: RefCell::default() })
    }

    /// Which parts in other files are missing, in a sentence.
    pub(crate) fn missing_parts(&self, is_code: IsCode<'_>) -> Option<String> {
        let dwarf = self.dwarf();
        self.parts.missing(&dwarf, self.index(&dwarf, is_code))
    }

    /// The MD5 of a source file as the compiler saw it (DWARF 5 §6.2.4.1).
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

    /// The build id of the file that it shares debug information with, where that file was not found.
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

/// Reads the tables of units, unless they are there.
struct TableReader<'d> {
    of: &'d Dwarf,
    dwarf: gimli::Dwarf<Reader<'d>>,
    index: &'d Index,
    is_code: IsCode<'d>,
    /// The lines that were asked for last: neighbours are of one unit.
    last: RefCell<Option<(usize, Arc<LineTable>)>>,
}

impl TableReader<'_> {
    fn line(&self, address: u64) -> Option<(Arc<str>, u32)> {
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

    /// Reads the functions and inlined calls of a unit, from its split part where that can be had; none where the unit
    /// cannot be read.
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

/// What is known of the addresses of one unit.
type UnitTables<'t> = (&'t LineTable, &'t ScopeTable);

fn frames((lines, scopes): UnitTables<'_>, address: u64) -> Vec<Frame> {
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
        // Without a line (code that no line made) a column says nothing.
        column: some(column).filter(|_| line != 0),
    }
}

fn compiled_frames((lines, scopes): UnitTables<'_>, address: u64) -> Vec<CompiledFrame> {
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
