//! DWARF 4 and 5 → source lines and inlined calls of an address.
//!
//! Nothing is parsed before it is asked for: the first question reads each unit's root entry (its address ranges), and
//! a question about an address reads that one unit whole, into tables that are kept. All tables are plain data, so
//! that look-ups need no lock and an image can be shared by threads. (addr2line would be the shorter way; its tables
//! borrow the sections and are not `Sync`, its recursion over nested inlined calls follows the input's depth, and
//! its file names may take the input's size squared. The tests hold our answers against its.)
//!
//! Hostile input: every table is bounded by the bytes it is read from or by an explicit budget; there is no recursion.

mod index;
mod lines;
mod names;
mod scopes;
mod sections;

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use crate::ImageAddress;
use crate::data::Data;
use crate::demangle::demangle;
use crate::elf::Elf;
use index::Index;
pub(crate) use sections::{Reader, Sections};

/// One call of the chain that an address belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function as the source spells it (C++ with its parameters, Rust with its path).
    pub function: Option<String>,
    /// The source file: absolute and normalized where the compiler told its directory.
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
    elf: Elf,
    data: Arc<Data>,
    sections: OnceLock<Sections>,
    index: OnceLock<Index>,
    md5: OnceLock<FxHashMap<Box<str>, [u8; 16]>>,
}

/// Overlapping units are hostile, or assembly and C at once; so many are looked into.
const UNITS_PER_ADDRESS_MAX: usize = 8;

impl Dwarf {
    pub(crate) fn new(elf: Elf, data: Arc<Data>) -> Self {
        Dwarf { elf, data, sections: OnceLock::new(), index: OnceLock::new(), md5: OnceLock::new() }
    }

    pub(crate) fn elf(&self) -> &Elf {
        &self.elf
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Innermost first; empty where nothing is known of the address.
    pub(crate) fn frames(&self, address: ImageAddress, is_code: &dyn Fn(u64) -> bool) -> Vec<Frame> {
        if self.elf.relocatable {
            return Vec::new();
        }
        let dwarf = self.dwarf();
        let index = self.index(&dwarf, is_code);
        for unit in index.units_at(address.0).take(UNITS_PER_ADDRESS_MAX) {
            let frames = index.tables(&dwarf, unit, is_code).frames(address.0);
            if !frames.is_empty() {
                return frames;
            }
        }
        Vec::new()
    }

    /// Innermost first; empty where no function is known at the address.
    pub(crate) fn compiled_frames(
        &self,
        address: ImageAddress,
        is_code: &dyn Fn(u64) -> bool,
    ) -> Vec<CompiledFrame> {
        if self.elf.relocatable {
            return Vec::new();
        }
        let dwarf = self.dwarf();
        let index = self.index(&dwarf, is_code);
        let units = index.units_at(address.0).take(UNITS_PER_ADDRESS_MAX);
        let mut frames = units.map(|unit| index.tables(&dwarf, unit, is_code).compiled_frames(address.0));
        frames.find(|frames| !frames.is_empty()).unwrap_or_default()
    }

    /// File and line of the first row of `address`.
    pub(crate) fn first_line(
        &self,
        address: ImageAddress,
        is_code: &dyn Fn(u64) -> bool,
    ) -> Option<(Arc<str>, u32)> {
        let dwarf = self.dwarf();
        let index = self.index(&dwarf, is_code);
        index.units_at(address.0).take(UNITS_PER_ADDRESS_MAX).find_map(|unit| {
            let lines = &index.tables(&dwarf, unit, is_code).lines;
            let row = lines.first_at(address.0).filter(|row| row.line != 0)?;
            Some((lines.file(row.file)?.clone(), row.line))
        })
    }

    /// The `.dwo` files that hold the rest of split debug information, each name once.
    pub(crate) fn split_names(&self, is_code: &dyn Fn(u64) -> bool) -> &[Box<str>] {
        &self.index(&self.dwarf(), is_code).split_names
    }

    /// The MD5 of a source file as the compiler saw it (DWARF 5 §6.2.4.1).
    pub(crate) fn source_md5(&self, path: &str, is_code: &dyn Fn(u64) -> bool) -> Option<[u8; 16]> {
        let md5 = || {
            let dwarf = self.dwarf();
            self.index(&dwarf, is_code).source_md5s(&dwarf)
        };
        self.md5.get_or_init(md5).get(path).copied()
    }

    fn dwarf(&self) -> gimli::Dwarf<Reader<'_>> {
        let bytes = self.bytes();
        self.sections.get_or_init(|| Sections::load(&self.elf, bytes)).dwarf(bytes)
    }

    fn index(&self, dwarf: &gimli::Dwarf<Reader<'_>>, is_code: &dyn Fn(u64) -> bool) -> &Index {
        self.index.get_or_init(|| Index::read(dwarf, is_code))
    }
}

/// What is known of the addresses of one unit.
#[derive(Default)]
pub(crate) struct UnitTables {
    lines: lines::LineTable,
    scopes: scopes::ScopeTable,
}

impl UnitTables {
    fn frames(&self, address: u64) -> Vec<Frame> {
        let place = self.lines.at(address);
        let mut frames = Vec::new();
        let mut at = place.map(|row| (row.file, row.line, row.column)).unwrap_or_default();
        for scope in self.scopes.chain(address) {
            frames.push(self.frame(scope.name().map(|n| self.scopes.names.demangled(n)), at));
            at = (scope.call_file, scope.call_line, scope.call_column);
        }
        if frames.is_empty() && place.is_some() {
            frames.push(self.frame(None, at));
        }
        frames
    }

    fn compiled_frames(&self, address: u64) -> Vec<CompiledFrame> {
        let row = self.lines.at(address);
        let (mut line, mut discriminator) = row.map(|row| (row.line, row.discriminator)).unwrap_or_default();
        let mut frames = Vec::new();
        for scope in self.scopes.chain(address) {
            let function = scope.name().map(|n| self.scopes.names.linkage(n).to_owned());
            frames.push(CompiledFrame { function, start_line: scope.line, line, discriminator });
            (line, discriminator) = (scope.call_line, scope.call_discriminator);
        }
        frames
    }

    fn frame(&self, function: Option<&str>, (file, line, column): (u32, u32, u32)) -> Frame {
        let some = |number: u32| (number != 0).then_some(number);
        Frame {
            function: function.map(str::to_owned),
            file: self.lines.file(file).cloned(),
            line: some(line),
            // Without a line (code that no line made) a column says nothing.
            column: some(column).filter(|_| line != 0),
        }
    }
}

/// Names of functions, each kept once, demangled when first asked for.
#[derive(Default)]
pub(crate) struct NameTable {
    names: Vec<(Box<str>, OnceLock<Box<str>>)>,
}

impl NameTable {
    fn add(&mut self, name: &str) -> u32 {
        self.names.push((name.into(), OnceLock::new()));
        (self.names.len() - 1) as u32
    }

    fn linkage(&self, index: u32) -> &str {
        &self.names[index as usize].0
    }

    fn demangled(&self, index: u32) -> &str {
        let (name, demangled) = &self.names[index as usize];
        demangled.get_or_init(|| demangle(name).into())
    }
}
