//! Where the procedures of a file are, without reading more of it than that takes.
//!
//! Enters: the path of an ELF file. Leaves: which procedure an address belongs to, and its name when it is asked for: what a
//! table of hot procedures needs of files of hundreds of megabytes. Never here: debug information, instructions, names
//! that nobody asked for. The answers are those of [`Image::procedure_at`](crate::Image::procedure_at); a test compares
//! them. Headers, symbols and the index of unwind entries are read piece by piece, names one by one: nothing is mapped.
//!
//! Memory: 16 bytes for each symbol that names code, and 8 for each procedure; of unwind entries their index alone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::elf as raw;

use crate::data::{Data, open_regular};
use crate::elf::{self, Elf, Section};
use crate::symbols::{self, le32, le64};
use crate::unwind::Unwind;
use crate::{BuildId, DebugSearch, ImageAddress, ImageError, ImageOffset, demangle, minidebug, plt};

/// Larger files than that are no images: the sizes of hostile ones are anything.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// What is read first.
const HEADER_BYTES: u64 = 4096;
/// More of a table of headers, names of sections or notes is not read.
const PART_BYTES_MAX: u64 = 8 << 20;
/// Symbols are read so many bytes at a time: a multiple of a symbol's.
const CHUNK_BYTES: usize = 24 << 11;
/// A longer section of unwind entries or stubs is not read.
const SECTION_BYTES_MAX: u64 = 64 << 20;
/// Symbols of a file: several times those of the largest programs with debug information.
const SYMBOLS_MAX: u64 = 16 << 20;
/// Overlapping procedures that a look-up visits, as in [`Image`](crate::Image).
const OVERLAPS_MAX: usize = 256;

/// The procedures of a file by address.
pub struct Outline {
    image: Sparse,
    /// The file with the rest of the symbols: the debug file, or what the image carries packed.
    debug: Option<Sparse>,
    /// By address, one for each.
    procedures: Vec<Candidate>,
    /// For each, the furthest end of those up to it.
    furthest_end: Vec<u64>,
    /// By address: candidates for one procedure among which only their names decide.
    ties: Vec<Candidate>,
    unwind: Unwind,
}

/// A procedure: where it is, and what finds its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first instruction.
    pub address: ImageAddress,
    /// Its size; never 0.
    pub size_bytes: u64,
    name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// Offset in the strings of a section (by number) of the image, or of its debug file.
    Symbol { debug: bool, strings: u16, offset: u32 },
    /// A stub that jumps through a slot.
    Stub,
    /// Only unwind information knows the procedure.
    None,
}

/// A file of which some parts were read.
struct Sparse {
    file: File,
    elf: Elf,
}

impl Outline {
    /// Reads what tells procedures apart. `None` where only [`Image`](crate::Image) can tell: the file has a debug file that
    /// must be verified by its whole contents, is of 32 bits, or is no executable or library.
    pub fn open(path: &Path, search: &DebugSearch) -> Result<Option<Outline>, ImageError> {
        let image = match Sparse::open(path) {
            Err(ImageError::Unsupported(_)) => return Ok(None),
            image => image?,
        };
        if image.elf.relocatable || (image.elf.build_id.is_none() && image.has_debug_link()) {
            return Ok(None);
        }
        let debug = if image.has_dwarf() { None } else { image.debug_file(search, path) };
        let debug = debug.filter(|d| d.elf.has_symbols()).or_else(|| image.packed_symbols());
        let unwind = Unwind::read(&image.elf, &|s| image.section(s), &image.file);
        let (procedures, furthest_end, ties) = Default::default();
        let mut outline = Outline { image, debug, procedures, furthest_end, ties, unwind };
        outline.gather()?;
        Ok(Some(outline))
    }

    /// Its build id.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.image.elf.build_id.as_ref()
    }

    /// The address that the byte at `offset` in the file is loaded at.
    pub fn address_of(&self, offset: ImageOffset) -> Option<ImageAddress> {
        self.image.elf.address_of(offset)
    }

    /// The innermost procedure around `address`.
    pub fn at(&self, address: ImageAddress) -> Option<Span> {
        let after = self.procedures.partition_point(|p| p.address() <= address.0);
        let before = self.procedures[..after].iter().zip(&self.furthest_end).rev().take(OVERLAPS_MAX);
        let found = before
            .take_while(|(_, furthest)| **furthest > address.0)
            .map(|(procedure, _)| procedure)
            .find(|p| address.0 - p.address() < p.size.into());
        found.map(Candidate::span).or_else(|| self.unnamed(address, after))
    }

    /// Where the next procedure with a name begins behind `address`: up to there [`Outline::at`] changes only where one ends.
    pub fn next_after(&self, address: ImageAddress) -> ImageAddress {
        let after = self.procedures.partition_point(|p| p.address() <= address.0);
        ImageAddress(self.procedures.get(after).map_or(u64::MAX, Candidate::address))
    }

    /// A procedure's name, mangled.
    pub fn name(&self, span: &Span) -> String {
        let nameless = || format!("0x{:x}", span.address.0);
        match span.name {
            Name::None => nameless(),
            Name::Stub => self.stub_name(span.address).unwrap_or_else(nameless),
            Name::Symbol { debug, strings, offset } => {
                let best = self.best_of_ties(span.address);
                best.or_else(|| self.symbol_name(debug, strings, offset)).unwrap_or_else(nameless)
            }
        }
    }

    fn symbol_name(&self, debug: bool, strings: u16, offset: u32) -> Option<String> {
        let file = if debug { self.debug.as_ref() } else { Some(&self.image) };
        file?.name(strings.into(), offset)
    }

    /// The best of several equally good names of an address, for which alone names must be compared.
    fn best_of_ties(&self, address: ImageAddress) -> Option<String> {
        let first = self.ties.partition_point(|c| c.address() < address.0);
        let group = self.ties[first..].iter().take_while(|c| c.address() == address.0);
        let names = group.filter_map(|c| self.symbol_name(c.is(DEBUG), c.strings(), c.offset));
        names.min_by_key(|name| {
            let underscores = name.bytes().take_while(|b| *b == b'_').count();
            (underscores, name.len(), name.clone())
        })
    }

    /// A procedure's name as the source spells it.
    pub fn demangled(&self, span: &Span) -> String {
        demangle(&self.name(span))
    }

    /// The one that only unwind information knows, where no named one begins or ends within.
    fn unnamed(&self, address: ImageAddress, after: usize) -> Option<Span> {
        let (start, size) = self.unwind.at(address.0)?;
        let code_end = self.image.code_end(start)?;
        let before = self.procedures.partition_point(|p| p.address() <= start);
        if before.checked_sub(1).is_some_and(|i| self.furthest_end[i] > start) {
            return None;
        }
        let next = self.procedures.get(before).map_or(u64::MAX, Candidate::address);
        let end = start.saturating_add(size).min(code_end).min(next);
        debug_assert!(before <= after);
        (address.0 < end).then_some(Span {
            address: ImageAddress(start),
            size_bytes: end - start,
            name: Name::None,
        })
    }

    fn gather(&mut self) -> Result<(), ImageError> {
        let mut found = self.image.symbols(&self.image, false)?;
        if let Some(debug) = &self.debug {
            found.extend(debug.symbols(&self.image, true)?);
        }
        found.sort_unstable_by_key(Candidate::order);
        self.ties = ties(&found);
        let mut merged = merge(found);
        self.add_stubs(&mut merged);
        drop_labels(&mut merged);
        self.size(&mut merged);
        merged.retain(|c| c.size > 0);
        self.furthest_end = Vec::with_capacity(merged.len());
        let mut furthest = 0;
        for candidate in &merged {
            furthest = candidate.end().max(furthest);
            self.furthest_end.push(furthest);
        }
        self.procedures = merged;
        Ok(())
    }

    fn add_stubs(&self, merged: &mut Vec<Candidate>) {
        let tables = self.image.elf.sections.iter().filter(|s| s.executable && s.name.starts_with(".plt"));
        let mut stubs = Vec::new();
        for table in tables {
            let code = self.image.section(table);
            stubs.extend(plt::jumps(self.image.elf.arch, table, &code));
        }
        if stubs.is_empty() {
            return;
        }
        let stub = |(address, size, _)| Candidate::new(address, size, RANK_BEST, STUB, (0, 0));
        merged.extend(stubs.into_iter().filter_map(stub));
        // Stable: what was there comes first and stays.
        merged.sort_by_key(Candidate::address);
        merged.dedup_by_key(|c| c.address());
    }

    fn size(&self, merged: &mut [Candidate]) {
        let mut next = u64::MAX;
        for candidate in merged.iter_mut().rev() {
            let address = candidate.address();
            let end = self.image.code_end(address).unwrap_or(address);
            if candidate.size == 0 {
                let own = self.unwind.at(address).filter(|(start, _)| *start == address);
                let size = own.map_or_else(|| self.unwind.next_after(address) - address, |(_, size)| size);
                candidate.size = short(size.min(next - address));
            }
            candidate.size = candidate.size.min(short(end - address));
            next = address;
        }
    }

    /// Seldom asked for: reads the relocations.
    fn stub_name(&self, address: ImageAddress) -> Option<String> {
        let path =
            PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.image.file)));
        let image = crate::Image::open(path).ok()?;
        image.procedure_at(address).map(|p| p.name.to_string())
    }
}

/// A file's build id, from its headers and notes alone.
pub(crate) fn build_id(path: &Path) -> Option<BuildId> {
    if let Ok(sparse) = Sparse::open(path) {
        return sparse.elf.build_id;
    }
    // Of 32 bits, or of a machine that is not supported: its build id tells all the same which file it is.
    elf::build_id_of(Data::open(path).ok()?.bytes())
}

/// A symbol that may name a procedure; of each address the first one is what the procedure is made of. Large programs have
/// hundreds of thousands: one takes 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    /// From the highest bit: 48 of the address, `LABEL`, 2 for how much worse than the best its rank is, `DEBUG`, `STUB`, and
    /// the number of the section with its name.
    place: u64,
    /// In bytes; none is longer than 4 GiB.
    size: u32,
    /// Of the name.
    offset: u32,
}

const ADDRESS_SHIFT: u32 = 16;
/// It has no type.
const LABEL: u64 = 1 << 15;
const RANK_SHIFT: u32 = 13;
const RANK_BEST: u8 = 3;
/// It is in the debug file.
const DEBUG: u64 = 1 << 12;
/// It is a stub.
const STUB: u64 = 1 << 11;
/// Of a section's number.
const STRINGS: u64 = STUB - 1;

impl Candidate {
    /// `None` where the address is none of a program's, or too many sections come before that with its name.
    fn new(address: u64, size: u64, rank: u8, flags: u64, (strings, offset): (u64, u32)) -> Option<Self> {
        let fits = address < 1 << (u64::BITS - ADDRESS_SHIFT) && strings <= STRINGS;
        let worse = u64::from(RANK_BEST.saturating_sub(rank));
        let place = address << ADDRESS_SHIFT | worse << RANK_SHIFT | flags | strings;
        fits.then_some(Candidate { place, size: short(size), offset })
    }

    fn address(&self) -> u64 {
        self.place >> ADDRESS_SHIFT
    }

    fn is(&self, flag: u64) -> bool {
        self.place & flag != 0
    }

    /// By address, at one the best first: typed symbols, the highest rank, the first name. One number, as that is compared fast.
    fn order(&self) -> u128 {
        u128::from(self.quality()) << 64 | u128::from(self.offset)
    }

    /// Its address, whether it is a label, its rank.
    fn quality(&self) -> u64 {
        self.place >> RANK_SHIFT
    }

    fn end(&self) -> u64 {
        self.address().saturating_add(self.size.into())
    }

    fn span(&self) -> Span {
        let name = match self.is(STUB) {
            true => Name::Stub,
            false => Name::Symbol { debug: self.is(DEBUG), strings: self.strings(), offset: self.offset },
        };
        Span { address: ImageAddress(self.address()), size_bytes: self.size.into(), name }
    }

    fn strings(&self) -> u16 {
        (self.place & STRINGS) as u16
    }
}

fn short(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Of sorted candidates the groups that are first at their address and have equals.
fn ties(found: &[Candidate]) -> Vec<Candidate> {
    let by_address = found.chunk_by(|a, b| a.address() == b.address());
    let groups = by_address.filter_map(|all| {
        let equal = |c: &&Candidate| c.quality() == all[0].quality();
        Some(all.iter().take_while(equal).count()).filter(|count| *count > 1).map(|count| &all[..count])
    });
    groups.flatten().copied().collect()
}

/// One for each address: the first has the best name, the largest size counts.
fn merge(found: Vec<Candidate>) -> Vec<Candidate> {
    let mut merged = found;
    merged.dedup_by(|next, kept| {
        let same = next.address() == kept.address();
        if same {
            kept.size = kept.size.max(next.size);
            kept.place &= next.place | !LABEL;
        }
        same
    });
    merged
}

/// As in [`procedure`](crate::procedure): untyped symbols within a procedure are labels.
fn drop_labels(merged: &mut Vec<Candidate>) {
    let mut covered_to = 0;
    merged.retain(|c| {
        let label = c.is(LABEL);
        let inside = label && c.size == 0 && c.address() < covered_to;
        covered_to = covered_to.max(if label { c.address() } else { c.end() });
        !inside
    });
}

impl Sparse {
    fn open(path: &Path) -> Result<Sparse, ImageError> {
        Sparse::of(open_regular(path).map_err(|error| ImageError::read(path, error))?, path)
    }

    fn of(file: File, path: &Path) -> Result<Sparse, ImageError> {
        let read = |error| ImageError::read(path, error);
        let length = file.metadata().map_err(read)?.len();
        if length > FILE_BYTES_MAX {
            return Err(ImageError::Unsupported("too large a file".to_owned()));
        }
        let elf = Elf::parse(&headers(&file, length).map_err(read)?)?;
        Ok(Sparse { file, elf })
    }

    fn has_debug_link(&self) -> bool {
        self.elf.section(".gnu_debuglink").is_some()
    }

    fn has_dwarf(&self) -> bool {
        [".debug_info", ".zdebug_info"].iter().any(|name| self.elf.section(name).is_some_and(|s| s.size > 0))
    }

    /// The file with this one's symbols, where it was installed.
    fn debug_file(&self, search: &DebugSearch, path: &Path) -> Option<Sparse> {
        let link = || {
            let content = self.section(self.elf.section(".gnu_debuglink")?);
            crate::debug_files::link_of(&content)
        };
        let places = crate::debug_files::places(search, self.elf.build_id.as_ref(), link().as_ref(), path);
        let opened = places.iter().filter_map(|place| Sparse::open(place).ok());
        let is_ours = |d: &Sparse| d.elf.arch == self.elf.arch && d.elf.build_id == self.elf.build_id;
        opened.into_iter().find(is_ours)
    }

    /// The file of symbols that this one carries packed. Unpacked it is a file in memory, so that it is read as any other.
    fn packed_symbols(&self) -> Option<Sparse> {
        let packed = self.section(self.elf.section(minidebug::SECTION)?);
        let bytes = minidebug::unpack(&packed).ok()?;
        let memory = rustix::fs::memfd_create(minidebug::SECTION, rustix::fs::MemfdFlags::CLOEXEC).ok()?;
        let file = File::from(memory);
        file.write_all_at(&bytes, 0).ok()?;
        let symbols = Sparse::of(file, Path::new(minidebug::SECTION)).ok()?;
        (symbols.elf.arch == self.elf.arch).then_some(symbols)
    }

    /// The bytes of a section; none where it is compressed, too long or not in the file.
    fn section(&self, section: &Section) -> Vec<u8> {
        let Some(range) = section.file_range().filter(|r| r.len() as u64 <= SECTION_BYTES_MAX) else {
            return Vec::new();
        };
        let length = self.file.metadata().map_or(0, |m| m.len());
        if range.end as u64 > length {
            return Vec::new();
        }
        let mut bytes = vec![0; range.len()];
        match self.file.read_exact_at(&mut bytes, range.start as u64) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    /// The symbols of code; `image` is the file that the code is in.
    fn symbols(&self, image: &Sparse, debug: bool) -> Result<Vec<Candidate>, ImageError> {
        let mut found = Vec::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        // Tables that lie over each other, which nobody makes in earnest, end where their sum is longer than the file.
        let mut left = self.symbols_max()?;
        let no_room = |_| ImageError::Unsupported(format!("no memory for its {left} symbols"));
        found.try_reserve_exact(left).map_err(no_room)?;
        for table in &self.elf.sections {
            let exported = match table.kind {
                raw::SHT_SYMTAB => false,
                raw::SHT_DYNSYM => true,
                _ => continue,
            };
            let Some(range) = table.file_range() else { continue };
            let mut at = range.start as u64;
            let mut code = image.code_sections();
            while at < range.end as u64 {
                let want = (range.end as u64 - at).min(CHUNK_BYTES as u64) as usize;
                let Ok(got) = self.file.read_at(&mut chunk[..want], at) else { break };
                let count = (got / symbols::SYMBOL_BYTES).min(left);
                if count == 0 {
                    break;
                }
                left -= count;
                let whole = count * symbols::SYMBOL_BYTES;
                for symbol in chunk[..whole].chunks_exact(symbols::SYMBOL_BYTES) {
                    found.extend(self.candidate(symbol, table.link, exported, debug, &mut code)?);
                }
                at += whole as u64;
            }
        }
        Ok(found)
    }

    /// How many symbols the file can have: room for them is taken at once, as growing would take it twice.
    fn symbols_max(&self) -> Result<usize, ImageError> {
        let tables = self.elf.sections.iter().filter(|s| matches!(s.kind, raw::SHT_SYMTAB | raw::SHT_DYNSYM));
        let bytes: u64 = tables.map(|s| s.size).fold(0, u64::saturating_add);
        let length = self.file.metadata().map_or(0, |m| m.len());
        let count = bytes.min(length) / symbols::SYMBOL_BYTES as u64;
        if count > SYMBOLS_MAX {
            return Err(ImageError::Unsupported(format!("{count} symbols, the limit is {SYMBOLS_MAX}")));
        }
        Ok(count as usize)
    }

    /// A symbol that names code.
    fn candidate(
        &self,
        symbol: &[u8],
        strings: usize,
        exported: bool,
        debug: bool,
        code: &mut CodeSections,
    ) -> Result<Option<Candidate>, ImageError> {
        let Some((address, size, offset, label)) = fields(symbol).filter(|f| code.contains(f.0)) else {
            return Ok(None);
        };
        if label {
            let name = self.name(strings, offset);
            if name.is_none_or(|name| symbols::is_mapping_symbol(self.elf.arch, &name)) {
                return Ok(None);
            }
        }
        let rank = symbols::rank_of(symbol, exported);
        let flags = if label { LABEL } else { 0 } | if debug { DEBUG } else { 0 };
        let candidate = Candidate::new(address, size, rank, flags, (strings as u64, offset));
        let strange =
            || ImageError::Unsupported(format!("a symbol at 0x{address:x}, named in section {strings}"));
        candidate.map(Some).ok_or_else(strange)
    }

    fn name(&self, strings: usize, offset: u32) -> Option<String> {
        let section = self.elf.sections.get(strings)?;
        let range = section.file_range()?;
        let start = (range.start as u64).checked_add(offset.into())?;
        let room = (range.end as u64).checked_sub(start)?;
        let mut bytes = vec![0; 256];
        loop {
            let want = (bytes.len() as u64).min(room) as usize;
            let got = self.file.read_at(&mut bytes[..want], start).ok()?;
            if let Some(end) = bytes[..got].iter().position(|b| *b == 0) {
                return symbols::name_in(&bytes[..=end]).map(str::to_owned);
            }
            if got < bytes.len() || bytes.len() >= symbols::NAME_BYTES_MAX {
                return None;
            }
            bytes.resize(symbols::NAME_BYTES_MAX, 0);
        }
    }

    fn code_end(&self, address: u64) -> Option<u64> {
        crate::procedure::code_end(&self.elf, address)
    }

    fn code_sections(&self) -> CodeSections<'_> {
        CodeSections { elf: &self.elf, last: (0, 0) }
    }
}

/// Address, size, place of the name, and whether it has no type, of a symbol with a name that may be one of code.
fn fields(symbol: &[u8]) -> Option<(u64, u64, u32, bool)> {
    let (label, _) = symbols::names_code(symbol)?;
    let (address, size, offset) = (le64(symbol, 8)?, le64(symbol, 16)?, le32(symbol, 0)?);
    (offset != 0).then_some((address, size, offset, label))
}

/// Whether addresses lie in code, the last range first: neighbours in a table are neighbours in code.
struct CodeSections<'a> {
    elf: &'a Elf,
    last: (u64, u64),
}

impl CodeSections<'_> {
    fn contains(&mut self, address: u64) -> bool {
        if (self.last.0..self.last.1).contains(&address) {
            return true;
        }
        let Some(end) = crate::procedure::code_end(self.elf, address) else { return false };
        let begin = self.elf.code_section(address).map_or(address, |s| s.address);
        self.last = (begin, end);
        true
    }
}

/// A file's headers at their places, zeros between them: what [`Elf::parse`] looks at, in memory that costs nothing where it
/// was not written.
fn headers(file: &File, length: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    read_part(file, &mut bytes, (0, HEADER_BYTES))?;
    for part in elf::header_tables(&bytes) {
        read_part(file, &mut bytes, part)?;
    }
    for part in elf::names_and_notes(&bytes) {
        read_part(file, &mut bytes, part)?;
    }
    Ok(bytes)
}

/// Reads as much of (offset, size) as the file has.
fn read_part(file: &File, bytes: &mut [u8], (offset, size): (u64, u64)) -> std::io::Result<()> {
    let length = bytes.len() as u64;
    let (start, end) = (offset.min(length), offset.saturating_add(size.min(PART_BYTES_MAX)).min(length));
    file.read_exact_at(&mut bytes[start as usize..end as usize], start)
}
