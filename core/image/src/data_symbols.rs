//! Symbols of data, from `.symtab` and `.dynsym`: what a place in the memory of a loaded image contains.
//!
//! Input: an image and, if it was found, its debug file. Output: names. Code, thread-local data (whose symbols have no
//! addresses) and the bytes of data are not handled here.

use object::elf as raw;

use crate::demangle::demangle;
use crate::elf::Elf;
use crate::symbols::{self, NameBudget, le64};

/// What an image contains at a place in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// A variable or constant: its name, as the source spells it.
    Symbol(String),
    /// Bytes of a section (`.rodata`) that no symbol names.
    Section(String),
    /// A part of the image that is in no known section.
    Unnamed,
    /// A place outside of the image.
    Outside,
}

/// Symbols of data, by address.
pub(crate) struct DataSymbols(Vec<Symbol>);

struct Symbol {
    address: u64,
    end: u64,
    rank: u8,
    name: Box<str>,
}

/// Largest number of symbols before a place that a look-up examines: several names of one address, and names of members.
const NEIGHBOURS_MAX: usize = 16;
const PAGE_BYTES: u64 = 4096;

impl DataSymbols {
    /// Reads the symbols; O(n log n) in their number.
    pub(crate) fn gather(files: &[(&Elf, &[u8])]) -> Self {
        let mut all = Vec::new();
        for (elf, bytes) in files {
            let mut budget = NameBudget::new(bytes.len());
            for kind in [raw::SHT_SYMTAB, raw::SHT_DYNSYM] {
                read(elf, bytes, kind, &mut budget, &mut all);
            }
        }
        // At one address the longest symbol comes first, then the best name. The search goes backwards, so it finds the
        // innermost symbol.
        all.sort_by(|a, b| {
            let order = |s: &Symbol| (s.address, std::cmp::Reverse(s.end), s.rank);
            order(a).cmp(&order(b)).then_with(|| b.name.cmp(&a.name))
        });
        DataSymbols(all)
    }

    /// Returns the name of the symbol that contains all of the `size_bytes` bytes from `address`.
    fn around(&self, address: u64, size_bytes: u64) -> Option<&str> {
        let before = &self.0[..self.0.partition_point(|s| s.address <= address)];
        let end = address.checked_add(size_bytes)?;
        before.iter().rev().take(NEIGHBOURS_MAX).find(|s| end <= s.end).map(|s| &*s.name)
    }

    /// Returns the approximate number of bytes of memory that the symbols occupy.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.iter().map(|s| size_of::<Symbol>() + s.name.len()).sum()
    }

    /// Returns what is at `distance` bytes after the place where the first byte of the image's file is mapped; `size_bytes`
    /// is the size of the access.
    pub(crate) fn place(&self, elf: &Elf, distance: u64, size_bytes: u64) -> DataPlace {
        let Some(first) = elf.segments.iter().min_by_key(|s| s.address) else { return DataPlace::Outside };
        let address = first.address.wrapping_sub(first.offset).wrapping_add(distance);
        let last = address.saturating_add(size_bytes.max(1) - 1);
        let is_inside = elf.segments.iter().any(|s| {
            let end = s.address.saturating_add(s.memory_size);
            (s.address & !(PAGE_BYTES - 1)..end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX))
                .contains(&address)
        });
        let section = || {
            let mut sections = elf.sections.iter().filter(|s| s.allocated && !s.name.starts_with(".tbss"));
            sections.find(|s| s.contains(address) && s.contains(last)).map(|s| s.name.to_string())
        };
        match self.around(address, size_bytes) {
            _ if !is_inside => DataPlace::Outside,
            Some(name) => DataPlace::Symbol(demangle(name)),
            None => section().map_or(DataPlace::Unnamed, DataPlace::Section),
        }
    }
}

fn read(elf: &Elf, bytes: &[u8], kind: raw::SectionType, budget: &mut NameBudget, all: &mut Vec<Symbol>) {
    for table in elf.sections.iter().filter(|s| s.kind == kind) {
        let strings = elf.sections.get(table.link).map_or(&[][..], |s| s.bytes(bytes));
        let symbols = table.bytes(bytes).chunks_exact(symbols::SYMBOL_BYTES);
        all.extend(symbols.filter_map(|s| symbol(s, strings, kind == raw::SHT_DYNSYM, budget)));
    }
}

fn symbol(symbol: &[u8], strings: &[u8], exported: bool, budget: &mut NameBudget) -> Option<Symbol> {
    let (kind, section) = (symbol.get(4)? & 15, u16::from_le_bytes([*symbol.get(6)?, *symbol.get(7)?]));
    let (address, size) = (le64(symbol, 8)?, le64(symbol, 16)?);
    let is_data = kind == raw::STT_OBJECT.0 || kind == raw::STT_COMMON.0;
    if !is_data || section == 0 || size == 0 {
        return None;
    }
    let name = symbols::name_in(strings.get(symbols::le32(symbol, 0)? as usize..)?)?;
    let rank = symbols::rank_of(symbol, exported);
    budget.take(name.len()).then(|| Symbol {
        address,
        end: address.saturating_add(size),
        rank,
        name: name.into(),
    })
}
