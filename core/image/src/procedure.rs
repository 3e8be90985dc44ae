//! The procedures of an image by address, from symbols, stubs of the procedure linkage table and unwind entries.
//!
//! Input: the image and, if there is one, its debug file. Output: procedures that are in executable sections and have a
//! size. DWARF and instructions are not read here. Names are read and demangled only on request.
//!
//! An [`Image`](crate::Image) has a *complete* table, which lists every procedure. [`ProcedureTable::open`] reads only the
//! headers, the symbols and the index of unwind entries of a file. That is sufficient for a table of the most sampled
//! procedures, even with files of hundreds of megabytes. Both kinds of tables give the same results for look-ups; a test
//! compares them.
//!
//! Memory: 16 bytes for each symbol that names code, 8 for each procedure. Time: O(n log n) in the number of symbols.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::demangle::demangle;
use crate::elf::Elf;
use crate::elf_file::{ElfFile, RawSymbol};
use crate::symbols::{self, le32, le64};
use crate::unwind::Unwind;
use crate::{BuildId, DebugSearch, ImageAddress, ImageError, ImageOffset, plt};

/// A procedure of an image: a named, contiguous range of instructions.
#[derive(Clone, Copy)]
pub struct Procedure<'t> {
    /// Address of the first instruction.
    pub address: ImageAddress,
    /// Size in bytes, never 0. If the symbol has no size, the procedure ends at the next one or at the end of the section.
    pub size_bytes: u64,
    table: &'t ProcedureTable,
    entry: Entry,
}

impl<'t> Procedure<'t> {
    /// Returns the symbol's name, still mangled, without its version. The name is `0x<address>` if the procedure is known
    /// from unwind information only, and `<name>@plt` for a stub of the procedure linkage table.
    pub fn name(&self) -> Cow<'t, str> {
        self.table.best_name(&self.entry).unwrap_or_else(|| format!("0x{:x}", self.address.0).into())
    }

    /// Returns the name as the source spells it. Each call demangles the name again.
    pub fn demangled(&self) -> String {
        demangle(&self.name())
    }

    /// Returns other names of the same address, the best first. Only an [`Image`](crate::Image) knows all of them.
    pub fn aliases(&self) -> Vec<Cow<'t, str>> {
        let own = self.name();
        let group = self.table.at_same_address(&self.entry).iter();
        let mut named: Vec<_> = group.filter_map(|e| Some((e.kind(), self.table.name(e)?))).collect();
        named.sort_by(|a, b| (a.0, preference(&a.1)).cmp(&(b.0, preference(&b.1))));
        let mut names: Vec<Cow<str>> = named.into_iter().map(|(_, name)| name).collect();
        names.retain(|name| *name != own);
        names.dedup();
        names
    }

    /// Returns whether the name is local to its object file, so that other procedures may have the same name.
    pub fn is_local(&self) -> bool {
        match self.entry.strings() {
            STUB => false,
            UNNAMED => true,
            _ => self.entry.is_local(),
        }
    }

    /// Returns the address after the last byte.
    pub fn end(&self) -> ImageAddress {
        self.address.offset(self.size_bytes)
    }

    /// Returns whether the procedure contains `address`.
    pub fn contains(&self, address: ImageAddress) -> bool {
        address.0.checked_sub(self.address.0).is_some_and(|d| d < self.size_bytes)
    }
}

impl fmt::Debug for Procedure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} +{} {}", self.address, self.size_bytes, self.name())
    }
}

/// Table of the procedures of an image, one for each start address.
pub struct ProcedureTable {
    image: ElfFile,
    /// File with the other symbols: the debug file, or the compressed symbols in the image.
    debug: Option<ElfFile>,
    /// Lowest address of code. Entries contain distances from it.
    base: u64,
    string_tables: Vec<StringTable>,
    /// Procedures by address, one for each.
    procedures: Vec<Entry>,
    /// For each procedure, the largest end of all procedures up to it. It limits how far back a look-up must go if symbols
    /// overlap.
    furthest_ends: Vec<u64>,
    /// All symbols of those addresses that have several, by address and then the best first.
    same_address: Vec<Entry>,
    /// Procedures without a symbol. It is empty in a complete table, which has them in `procedures`.
    unwind: Unwind,
    /// Names of stubs by address.
    stub_names: OnceLock<FxHashMap<u64, Box<str>>>,
}

/// Location of the names of some symbols: the number of a string section in the image or in its debug file.
#[derive(PartialEq, Eq)]
struct StringTable {
    in_debug: bool,
    section: usize,
}

/// Largest number of overlapping predecessors that a look-up visits; only hostile files have more.
const OVERLAPS_MAX: usize = 256;

impl ProcedureTable {
    /// Reads the file at `path` as far as needed to tell procedures apart. Returns `None` if this requires an
    /// [`Image`](crate::Image): the file has a debug file that must be verified by its whole contents, is a 32-bit file, or
    /// is no executable or library.
    pub fn open(path: &Path, search: &DebugSearch) -> Result<Option<ProcedureTable>, ImageError> {
        let image = match ElfFile::open(path) {
            Err(ImageError::Unsupported(_)) => return Ok(None),
            image => image?,
        };
        if image.elf.relocatable || (image.elf.build_id.is_none() && image.has_debug_link()) {
            return Ok(None);
        }
        let debug = if image.elf.has_dwarf() { None } else { image.debug_file(search, path) };
        let unwind = Unwind::index(&image);
        let mut table = ProcedureTable::new(image, debug, unwind);
        let symbols = table.symbols()?;
        table.gather(symbols, false);
        Ok(Some(table))
    }

    /// Builds a table of every procedure. If a file claims more symbols than any program has, its symbols are ignored.
    pub(crate) fn complete(image: ElfFile, debug: Option<ElfFile>) -> ProcedureTable {
        let unwind = Unwind::all(&image);
        let mut table = ProcedureTable::new(image, debug, unwind);
        let symbols = table.symbols().unwrap_or_default();
        table.gather(symbols, true);
        table.list_unnamed();
        table
    }

    fn new(image: ElfFile, debug: Option<ElfFile>, unwind: Unwind) -> ProcedureTable {
        let debug = debug.filter(|d| d.elf.has_symbols()).or_else(|| image.packed_symbols());
        let base = image.elf.code_start();
        let (string_tables, procedures, furthest_ends, same_address, stub_names) = Default::default();
        ProcedureTable {
            image,
            debug,
            base,
            string_tables,
            procedures,
            furthest_ends,
            same_address,
            unwind,
            stub_names,
        }
    }

    /// Returns the build ID of the image.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.image.elf.build_id.as_ref()
    }

    /// Returns the address that the byte at `offset` in the file is loaded at.
    pub fn address_of(&self, offset: ImageOffset) -> Option<ImageAddress> {
        self.image.elf.address_of(offset)
    }

    /// Returns the innermost procedure around `address`: of those that contain it, the one that starts last.
    pub fn at(&self, address: ImageAddress) -> Option<Procedure<'_>> {
        let distance = address.0.checked_sub(self.base)?;
        let named = self.named_at(distance).copied();
        named.or_else(|| self.unnamed_at(address.0)).map(|entry| self.procedure(entry))
    }

    /// Returns the address after `address` where the next procedure with a name begins. Before that address, the result of
    /// [`ProcedureTable::at`] changes only where a procedure ends.
    pub fn next_after(&self, address: ImageAddress) -> ImageAddress {
        let after = address.0.checked_sub(self.base).map_or(0, |distance| self.count_up_to(distance));
        ImageAddress(self.procedures.get(after).map_or(u64::MAX, |e| self.base + e.start()))
    }

    /// Iterates over the procedures by address. A table that is not complete lacks those without a symbol.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Procedure<'_>> + DoubleEndedIterator + Clone {
        self.procedures.iter().map(|entry| self.procedure(*entry))
    }

    /// Returns the approximate number of bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = self.procedures.len() + self.same_address.len();
        entries * size_of::<Entry>() + self.furthest_ends.len() * size_of::<u64>()
    }

    fn procedure(&self, entry: Entry) -> Procedure<'_> {
        let address = ImageAddress(self.base + entry.start());
        Procedure { address, size_bytes: entry.size.into(), table: self, entry }
    }

    /// Returns the number of procedures that start at or before a distance from the base.
    fn count_up_to(&self, distance: u64) -> usize {
        self.procedures.partition_point(|e| e.start() <= distance)
    }

    fn named_at(&self, distance: u64) -> Option<&Entry> {
        let after = self.count_up_to(distance);
        let before = self.procedures[..after].iter().zip(&self.furthest_ends).rev().take(OVERLAPS_MAX);
        let reaching = before.take_while(|(_, furthest)| **furthest > distance);
        reaching.map(|(entry, _)| entry).find(|e| distance - e.start() < e.size.into())
    }

    /// Returns the procedure around `address` that is known from unwind information only. It ends where a procedure with a
    /// symbol overlaps it.
    fn unnamed_at(&self, address: u64) -> Option<Entry> {
        let (start, size) = self.unwind.at(address)?;
        let code_end = self.image.elf.code_end(start)?;
        let distance = start.checked_sub(self.base)?;
        let before = self.count_up_to(distance);
        if before.checked_sub(1).is_some_and(|last| self.furthest_ends[last] > distance) {
            return None;
        }
        let next = self.procedures.get(before).map_or(u64::MAX, |e| self.base.saturating_add(e.start()));
        let end = start.saturating_add(size).min(code_end).min(next);
        let entry = Entry::new(distance, end - start, QUALITY_BEST, UNNAMED, 0)?;
        (address < end).then_some(entry)
    }

    /// Adds the procedures without a symbol, which completes the table.
    fn list_unnamed(&mut self) {
        let starts = self.unwind.starts();
        let unnamed: Vec<Entry> = starts.filter_map(|start| self.unnamed_at(start)).collect();
        self.unwind = Unwind::none();
        let mut procedures = std::mem::take(&mut self.procedures);
        procedures.extend(unnamed);
        procedures.sort_unstable_by_key(Entry::start);
        procedures.shrink_to_fit();
        self.set_procedures(procedures);
    }

    /// Returns the symbols that name code, by address, the best first.
    fn symbols(&mut self) -> Result<Vec<Entry>, ImageError> {
        let files = [(false, Some(&self.image)), (true, self.debug.as_ref())];
        let mut symbols = Vec::new();
        for (in_debug, file) in files.into_iter().filter_map(|(in_debug, file)| Some((in_debug, file?))) {
            // The vector is allocated at once, since growing it would take twice the memory.
            let count = file.symbols_max()?;
            let no_room = |_| ImageError::Unsupported(format!("no memory for its {count} symbols"));
            symbols.try_reserve_exact(count).map_err(no_room)?;
            let mut reader = SymbolReader {
                file,
                code: CodeRange { elf: &self.image.elf, last: 0..0 },
                base: self.base,
                in_debug,
                string_tables: &mut self.string_tables,
                last_strings: None,
            };
            file.for_each_symbol(count, |symbol| symbols.extend(reader.entry(&symbol)));
        }
        symbols.sort_unstable_by_key(Entry::order);
        Ok(symbols)
    }

    /// Builds the procedures from sorted symbols and from stubs. A complete table contains only stubs whose names are known,
    /// which requires reading the relocations.
    fn gather(&mut self, symbols: Vec<Entry>, complete: bool) {
        self.same_address = same_address(&symbols, complete);
        let mut procedures = best_of_each_address(symbols);
        let mut stubs = plt::stubs(&self.image);
        if complete {
            let names = self.names_of_stubs(&stubs, &procedures);
            stubs.retain(|stub| names.contains_key(&stub.address));
            self.stub_names = names.into();
        }
        self.add_stubs(&mut procedures, stubs);
        drop_labels(&mut procedures);
        self.set_sizes(&mut procedures);
        procedures.retain(|e| e.size > 0);
        self.set_procedures(procedures);
    }

    /// Adds the stubs at addresses where no other procedure starts.
    fn add_stubs(&self, procedures: &mut Vec<Entry>, stubs: Vec<plt::Stub>) {
        if stubs.is_empty() {
            return;
        }
        let entry = |stub: plt::Stub| {
            Entry::new(stub.address.checked_sub(self.base)?, stub.size_bytes, QUALITY_BEST, STUB, 0)
        };
        procedures.extend(stubs.into_iter().filter_map(entry));
        // The sort is stable: if a symbol and a stub have the same address, the symbol comes first and is kept.
        procedures.sort_by_key(Entry::start);
        procedures.dedup_by_key(|e| e.start());
    }

    /// Sets missing sizes: the size of the unwind entry with the same start, otherwise the distance to the next procedure.
    /// No procedure extends past the end of its section.
    fn set_sizes(&self, procedures: &mut [Entry]) {
        let mut next = u64::MAX;
        for entry in procedures.iter_mut().rev() {
            let address = self.base + entry.start();
            let code_end = self.image.elf.code_end(address).unwrap_or(address);
            if entry.size == 0 {
                let own = self.unwind.at(address).filter(|(start, _)| *start == address);
                let size = own.map_or_else(|| self.unwind.next_after(address) - address, |(_, size)| size);
                entry.size = saturate(size.min(next - address));
            }
            entry.size = entry.size.min(saturate(code_end - address));
            next = address;
        }
    }

    fn set_procedures(&mut self, procedures: Vec<Entry>) {
        let mut furthest = 0;
        self.furthest_ends = Vec::with_capacity(procedures.len());
        for entry in &procedures {
            furthest = entry.end().max(furthest);
            self.furthest_ends.push(furthest);
        }
        self.procedures = procedures;
    }

    /// Returns the symbols at the address of an entry, or none if it has only one.
    fn at_same_address(&self, entry: &Entry) -> &[Entry] {
        if entry.strings() >= UNNAMED {
            return &[];
        }
        let first = self.same_address.partition_point(|e| e.start() < entry.start());
        let count = self.same_address[first..].partition_point(|e| e.start() == entry.start());
        &self.same_address[first..first + count]
    }

    /// Returns the best name of a procedure. If several symbols are equally good by kind, their names decide.
    fn best_name(&self, entry: &Entry) -> Option<Cow<'_, str>> {
        let group = self.at_same_address(entry).iter();
        let equal = group.take_while(|e| e.kind() == entry.kind());
        let best = equal.filter_map(|e| self.name(e)).min_by(|a, b| preference(a).cmp(&preference(b)));
        best.or_else(|| self.name(entry))
    }

    fn name(&self, entry: &Entry) -> Option<Cow<'_, str>> {
        match entry.strings() {
            UNNAMED => None,
            STUB => {
                let stubs = || plt::stubs(&self.image);
                let names = self.stub_names.get_or_init(|| self.names_of_stubs(&stubs(), &self.procedures));
                names.get(&(self.base + entry.start())).map(|name| Cow::Borrowed(&**name))
            }
            table => {
                let table = self.string_tables.get(usize::from(table))?;
                let file = if table.in_debug { self.debug.as_ref()? } else { &self.image };
                file.name(table.section, entry.name)
            }
        }
    }

    /// Returns the names of stubs by address. `procedures` are sorted by address.
    fn names_of_stubs(&self, stubs: &[plt::Stub], procedures: &[Entry]) -> FxHashMap<u64, Box<str>> {
        let symbol_at = |address: u64| {
            let distance = address.checked_sub(self.base)?;
            let found = procedures.binary_search_by_key(&distance, Entry::start).ok()?;
            let symbol = procedures.get(found).filter(|e| e.strings() < UNNAMED)?;
            self.best_name(symbol).map(Cow::into_owned)
        };
        plt::names(&self.image, stubs, &symbol_at)
    }
}

/// Creates entries for the symbols of one file.
struct SymbolReader<'a> {
    file: &'a ElfFile,
    code: CodeRange<'a>,
    base: u64,
    in_debug: bool,
    string_tables: &'a mut Vec<StringTable>,
    /// Section and number of the string table that was looked up last.
    last_strings: Option<(usize, u16)>,
}

impl SymbolReader<'_> {
    /// Returns the entry of a symbol that names code.
    #[inline]
    fn entry(&mut self, symbol: &RawSymbol<'_>) -> Option<Entry> {
        let bytes = symbol.bytes;
        let (is_label, section) = symbols::names_code(bytes)?;
        let (mut address, size, name) = (le64(bytes, 8)?, le64(bytes, 16)?, le32(bytes, 0)?);
        if self.file.elf.relocatable {
            let section = self.file.elf.sections.get(usize::from(section)).filter(|s| s.allocated)?;
            address = section.address.checked_add(address)?;
        }
        if name == 0 || !self.code.contains(address) {
            return None;
        }
        if is_label {
            let text = self.file.name(symbol.strings, name)?;
            if symbols::is_mapping_symbol(self.file.elf.arch, &text) {
                return None;
            }
        }
        let quality = symbols::RANK_BEST - symbols::rank_of(bytes, symbol.exported);
        let quality = if is_label { quality | QUALITY_LABEL } else { quality };
        let strings = self.string_table(symbol.strings)?;
        Entry::new(address.checked_sub(self.base)?, size, quality, strings, name)
    }

    /// Returns the number of a string table; `None` if there are too many.
    #[inline]
    fn string_table(&mut self, section: usize) -> Option<u16> {
        if let Some((_, number)) = self.last_strings.filter(|(last, _)| *last == section) {
            return Some(number);
        }
        let table = StringTable { in_debug: self.in_debug, section };
        let number = match self.string_tables.iter().position(|known| *known == table) {
            Some(known) => known,
            None if self.string_tables.len() == usize::from(UNNAMED) => return None,
            None => {
                self.string_tables.push(table);
                self.string_tables.len() - 1
            }
        } as u16;
        self.last_strings = Some((section, number));
        Some(number)
    }
}

/// Tests whether addresses are in code. The last range is cached, since neighbours in a symbol table are usually neighbours
/// in code.
struct CodeRange<'a> {
    elf: &'a Elf,
    last: std::ops::Range<u64>,
}

impl CodeRange<'_> {
    fn contains(&mut self, address: u64) -> bool {
        if !self.last.contains(&address) {
            let Some(end) = self.elf.code_end(address) else { return false };
            let start = self.elf.code_section(address).map_or(address, |s| s.address);
            self.last = start..end;
        }
        true
    }
}

/// A procedure, or a symbol that may name one. It takes only 16 bytes, since large programs have hundreds of thousands.
#[derive(Clone, Copy)]
struct Entry {
    /// From the highest bit: 48 bits of distance from the table's base, 3 of quality, 13 of the string table's number.
    place: u64,
    /// Size in bytes, at most 4 GiB.
    size: u32,
    /// Offset of the name in the string table.
    name: u32,
}

const DISTANCE_BITS: u32 = 48;
const STRINGS_BITS: u32 = 13;
/// Quality of an exported symbol. The quality is the best rank minus the symbol's rank, so lower is better.
const QUALITY_BEST: u8 = 0;
/// Quality of a symbol that is local to its object file.
const QUALITY_LOCAL: u8 = symbols::RANK_BEST;
/// Bit of the quality that marks a label: a symbol without a type.
const QUALITY_LABEL: u8 = 4;
/// Number instead of a string table's that marks a stub.
const STUB: u16 = (1 << STRINGS_BITS) - 1;
/// Number instead of a string table's that marks a procedure without a symbol.
const UNNAMED: u16 = STUB - 1;

impl Entry {
    /// Creates an entry. Returns `None` if the code of the image spans too many addresses.
    fn new(distance: u64, size: u64, quality: u8, strings: u16, name: u32) -> Option<Self> {
        let kind = distance << (u64::BITS - DISTANCE_BITS - STRINGS_BITS) | u64::from(quality);
        let entry = Entry { place: kind << STRINGS_BITS | u64::from(strings), size: saturate(size), name };
        (distance < 1 << DISTANCE_BITS).then_some(entry)
    }

    /// Returns the distance of the first byte from the table's base.
    fn start(&self) -> u64 {
        self.place >> (u64::BITS - DISTANCE_BITS)
    }

    fn end(&self) -> u64 {
        self.start() + u64::from(self.size)
    }

    /// Returns a number that orders entries by address, and at one address by quality.
    fn kind(&self) -> u64 {
        self.place >> STRINGS_BITS
    }

    /// Returns the order of entries as a single number, which is fast to compare.
    fn order(&self) -> u128 {
        u128::from(self.kind()) << 64 | u128::from(self.name)
    }

    fn is_label(&self) -> bool {
        self.kind() as u8 & QUALITY_LABEL != 0
    }

    fn is_local(&self) -> bool {
        self.kind() as u8 & QUALITY_LOCAL == QUALITY_LOCAL
    }

    fn strings(&self) -> u16 {
        self.place as u16 & STUB
    }
}

fn saturate(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Returns the key that chooses between names of equally good symbols. The name with fewer leading underscores wins (`write`
/// over `__write`), then the shorter name.
fn preference(name: &str) -> (usize, usize, &str) {
    (name.bytes().take_while(|byte| *byte == b'_').count(), name.len(), name)
}

/// Returns the symbols of those addresses that have several. Unless `all` is set, only symbols of the best kind are
/// returned, if there are several of these: their names decide.
fn same_address(symbols: &[Entry], all: bool) -> Vec<Entry> {
    let groups = symbols.chunk_by(|a, b| a.start() == b.start());
    let relevant = groups.map(|group| {
        let equal = group.iter().take_while(|e| all || e.kind() == group[0].kind()).count();
        &group[..if equal > 1 { equal } else { 0 }]
    });
    relevant.flatten().copied().collect()
}

/// Keeps one entry for each address: the first, which has the best name, with the largest size.
fn best_of_each_address(symbols: Vec<Entry>) -> Vec<Entry> {
    let mut best = symbols;
    best.dedup_by(|next, kept| {
        let is_same = next.start() == kept.start();
        if is_same {
            kept.size = kept.size.max(next.size);
        }
        is_same
    });
    best
}

/// Removes labels within a procedure that has a size. They belong to hand-written assembly and are not procedures.
fn drop_labels(procedures: &mut Vec<Entry>) {
    let mut covered_to = 0;
    procedures.retain(|e| {
        let inside = e.is_label() && e.size == 0 && e.start() < covered_to;
        covered_to = covered_to.max(if e.is_label() { e.start() } else { e.end() });
        !inside
    });
}
