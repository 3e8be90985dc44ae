//! Which unit an address belongs to, from the root entry of each unit.

use std::hash::Hasher as _;
use std::sync::{Arc, OnceLock};

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugInfoOffset, EndianSlice, Section, Unit, UnitRef,
};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::Reader;
use super::lines::{self, LineTable};
use super::scopes::ScopeTable;
use crate::paths;

/// How far back a look-up goes where ranges overlap; only hostile files have more.
const OVERLAPS_MAX: usize = 4096;

/// The units of a file.
pub(crate) struct Index {
    /// By their offset.
    units: Vec<UnitEntry>,
    /// By their begin.
    ranges: Vec<UnitRange>,
    pub(crate) split_names: Vec<Box<str>>,
}

struct UnitEntry {
    offset: usize,
    /// Where the abbreviations of the next table begin. Bounding each table makes reading them all linear, whatever
    /// offsets a hostile file gives.
    abbreviations_end: usize,
    /// Hashes of the names of the files of its line table, sorted; without their folders.
    file_names: OnceLock<Box<[u32]>>,
}

struct UnitRange {
    begin: u64,
    end: u64,
    /// The furthest end up to this range.
    furthest_end: u64,
    unit: usize,
}

type Dwarf<'a> = gimli::Dwarf<Reader<'a>>;

impl Index {
    /// Reads the headers and root entries. Units that cannot be read are left out; those after a broken header too.
    pub(crate) fn read(dwarf: &Dwarf<'_>, is_code: &dyn Fn(u64) -> bool) -> Index {
        let units = unit_entries(dwarf);
        let mut index = Index { units, ranges: Vec::new(), split_names: Vec::new() };
        let mut cache = AbbreviationsCache::default();
        let mut budget = range_budget(dwarf);
        let mut split_names = FxHashSet::default();
        for number in 0..index.units.len() {
            let Some(unit) = index.unit(dwarf, number, &mut cache) else { continue };
            let mut add = |begin, end| {
                index.ranges.push(UnitRange { begin, end, furthest_end: 0, unit: number });
            };
            unit_ranges(unit.unit_ref(dwarf), is_code, &mut budget, &mut add);
            if let Some(name) = split_name(unit.unit_ref(dwarf)) {
                split_names.insert(name);
            }
        }
        index.split_names = split_names.into_iter().collect();
        index.split_names.sort_unstable();
        index.sort_ranges();
        index
    }

    fn sort_ranges(&mut self) {
        self.ranges.sort_unstable_by_key(|r| (r.begin, r.unit));
        let mut furthest = 0;
        for range in &mut self.ranges {
            furthest = range.end.max(furthest);
            range.furthest_end = furthest;
        }
    }

    /// The units around `address`, that with the nearest begin first.
    pub(crate) fn units_at(&self, address: u64) -> impl Iterator<Item = usize> + '_ {
        let after = self.ranges.partition_point(|r| r.begin <= address);
        let before = self.ranges[..after].iter().rev().take(OVERLAPS_MAX);
        let around = before.take_while(move |r| r.furthest_end > address).filter(move |r| r.end > address);
        around.map(|r| r.unit)
    }

    /// The units with code from `begin` to `end`, each once.
    pub(crate) fn units_within(&self, begin: u64, end: u64) -> impl Iterator<Item = usize> + '_ {
        let after = self.ranges.partition_point(|r| r.begin < end);
        let before = self.ranges[..after].iter().rev().take(OVERLAPS_MAX);
        let around = before.take_while(move |r| r.furthest_end > begin).filter(move |r| r.end > begin);
        let mut seen = FxHashSet::default();
        around.map(|r| r.unit).filter(move |unit| seen.insert(*unit))
    }

    /// Reads the lines of a unit; none where it cannot be read.
    pub(crate) fn lines(&self, dwarf: &Dwarf<'_>, unit: usize, is_code: &dyn Fn(u64) -> bool) -> LineTable {
        let owned = self.unit(dwarf, unit, &mut AbbreviationsCache::default());
        owned.map(|owned| LineTable::read(owned.unit_ref(dwarf), is_code)).unwrap_or_default()
    }

    /// Reads the functions and inlined calls of a unit; none where it cannot be read.
    pub(crate) fn scopes(&self, dwarf: &Dwarf<'_>, unit: usize, is_code: &dyn Fn(u64) -> bool) -> ScopeTable {
        let owned = self.unit(dwarf, unit, &mut AbbreviationsCache::default());
        owned.map(|owned| ScopeTable::read(owned.unit_ref(dwarf), self, is_code)).unwrap_or_default()
    }

    /// Whether the line table of a unit lists a file of that name; a few that do not are taken for such that do.
    pub(crate) fn lists_file(&self, dwarf: &Dwarf<'_>, unit: usize, file_name: &str) -> bool {
        let read = || {
            let owned = self.unit(dwarf, unit, &mut AbbreviationsCache::default());
            let mut names = owned.map_or_else(Vec::new, |owned| {
                lines::file_names(owned.unit_ref(dwarf)).map(|name| name_hash(name.as_bytes())).collect()
            });
            names.sort_unstable();
            names.dedup();
            names.into()
        };
        let names = self.units[unit].file_names.get_or_init(read);
        names.binary_search(&name_hash(file_name.as_bytes())).is_ok()
    }

    /// The unit whose entries lie around an offset, by number.
    pub(crate) fn unit_around(&self, offset: DebugInfoOffset) -> Option<usize> {
        self.units.partition_point(|u| u.offset <= offset.0).checked_sub(1)
    }

    /// Where a unit begins in its section.
    pub(crate) fn offset_of_unit(&self, unit: usize) -> Option<usize> {
        self.units.get(unit).map(|u| u.offset)
    }

    pub(crate) fn unit<'a>(
        &self,
        dwarf: &Dwarf<'a>,
        number: usize,
        cache: &mut AbbreviationsCache,
    ) -> Option<OwnedUnit<'a>> {
        let entry = self.units.get(number)?;
        let header = dwarf.debug_info.header_from_offset(DebugInfoOffset(entry.offset)).ok()?;
        let abbreviations = cache.get(dwarf, header.debug_abbrev_offset().0, entry.abbreviations_end)?;
        Unit::new_with_abbreviations(dwarf, header, abbreviations).ok().map(OwnedUnit)
    }

    /// The MD5 of the source file at `path`, from the first unit whose line table has it. Units that list no file of its name
    /// are passed over, and those whose lists are known already come first: in a large file that is all there is to do.
    pub(crate) fn source_md5(&self, dwarf: &Dwarf<'_>, path: &str) -> Option<[u8; 16]> {
        let (known, others): (Vec<usize>, Vec<usize>) =
            (0..self.units.len()).partition(|unit| self.units[*unit].file_names.get().is_some());
        let mut cache = AbbreviationsCache::default();
        known.into_iter().chain(others).find_map(|number| {
            let listed = self.lists_file(dwarf, number, paths::last(path));
            let unit = listed.then(|| self.unit(dwarf, number, &mut cache)).flatten()?;
            lines::md5_of(unit.unit_ref(dwarf), path)
        })
    }
}

/// Of a file's name without its folders.
fn name_hash(name: &[u8]) -> u32 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    (hasher.finish() >> 32) as u32
}

/// A unit that keeps its abbreviations alive.
pub(crate) struct OwnedUnit<'a>(Unit<Reader<'a>>);

impl<'a> OwnedUnit<'a> {
    pub(crate) fn unit_ref<'u>(&'u self, dwarf: &'u Dwarf<'a>) -> UnitRef<'u, Reader<'a>> {
        UnitRef::new(dwarf, &self.0)
    }
}

/// The last tables of abbreviations: units share them, and neighbours most of all.
#[derive(Default)]
pub(crate) struct AbbreviationsCache(FxHashMap<usize, Option<Arc<Abbreviations>>>);

const ABBREVIATION_TABLES_MAX: usize = 16;

impl AbbreviationsCache {
    fn get(&mut self, dwarf: &Dwarf<'_>, offset: usize, end: usize) -> Option<Arc<Abbreviations>> {
        if self.0.len() >= ABBREVIATION_TABLES_MAX && !self.0.contains_key(&offset) {
            self.0.clear();
        }
        let read = || {
            let table = dwarf.debug_abbrev.reader().slice().get(offset..end)?;
            let table = DebugAbbrev::from(EndianSlice::new(table, gimli::LittleEndian));
            table.abbreviations(gimli::DebugAbbrevOffset(0)).ok().map(Arc::new)
        };
        self.0.entry(offset).or_insert_with(read).clone()
    }
}

/// As many ranges may be read as the sections that hold them can have, each once.
pub(crate) fn range_budget(dwarf: &Dwarf<'_>) -> usize {
    let info = dwarf.debug_info.reader().len();
    let lists = dwarf.ranges.debug_ranges().reader().len() + dwarf.ranges.debug_rnglists().reader().len();
    (info + lists).saturating_add(1 << 10)
}

fn unit_entries(dwarf: &Dwarf<'_>) -> Vec<UnitEntry> {
    let mut offsets = Vec::new();
    let mut headers = dwarf.debug_info.units();
    while let Ok(Some(header)) = headers.next() {
        if let Some(offset) = header.debug_info_offset() {
            offsets.push((offset.0, header.debug_abbrev_offset().0));
        }
    }
    let mut tables: Vec<usize> = offsets.iter().map(|(_, table)| *table).collect();
    tables.sort_unstable();
    tables.dedup();
    let end = dwarf.debug_abbrev.reader().len();
    let entry = |(offset, table): (usize, usize)| {
        let next = tables.partition_point(|t| *t <= table);
        let abbreviations_end = tables.get(next).copied().unwrap_or(end).min(end);
        UnitEntry { offset, abbreviations_end, file_names: OnceLock::new() }
    };
    offsets.into_iter().map(entry).collect()
}

/// Calls `add` for each range of the unit that lies in code. (Linkers leave ranges of code that they dropped at 0.)
fn unit_ranges(
    unit: UnitRef<'_, Reader<'_>>,
    is_code: &dyn Fn(u64) -> bool,
    budget: &mut usize,
    add: &mut dyn FnMut(u64, u64),
) {
    let mut found = false;
    if let Ok(mut ranges) = unit.unit_ranges() {
        while let Ok(Some(range)) = ranges.next() {
            if *budget == 0 {
                return;
            }
            *budget -= 1;
            if range.begin < range.end && is_code(range.begin) {
                add(range.begin, range.end);
                found = true;
            }
        }
    }
    // Assemblers that give their unit no range still write line tables.
    if !found && unit.line_program.is_some() && unit.name.is_some() && !has_ranges(unit) {
        LineTable::read(unit, is_code).sequences().for_each(|(begin, end)| add(begin, end));
    }
}

fn has_ranges(unit: UnitRef<'_, Reader<'_>>) -> bool {
    let mut entries = unit.entries();
    let Ok(Some(_)) = entries.next_dfs() else { return true };
    let Some(root) = entries.current() else { return true };
    root.attr(gimli::DW_AT_ranges).is_some() || root.attr(gimli::DW_AT_low_pc).is_some()
}

/// The file that holds the rest of a skeleton unit (DWARF 5 §3.1.2, GNU's extension before).
fn split_name(unit: UnitRef<'_, Reader<'_>>) -> Option<Box<str>> {
    let mut entries = unit.entries();
    entries.next_dfs().ok()??;
    let root = entries.current()?;
    let name: AttributeValue<Reader<'_>> =
        root.attr_value(gimli::DW_AT_dwo_name).or_else(|| root.attr_value(gimli::DW_AT_GNU_dwo_name))?;
    let name = unit.attr_string(name).ok()?;
    Some(String::from_utf8_lossy(name.slice().get(..name.len().min(4096))?).into())
}
