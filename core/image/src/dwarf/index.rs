//! Finds the unit that an address belongs to, from the root entry of each unit.

use std::hash::Hasher as _;
use std::sync::OnceLock;

use gimli::{Section, UnitRef};
use rustc_hash::{FxHashSet, FxHasher};

use super::Reader;
use super::lines::{self, LineTable};
use super::split::Skeleton;
use super::units::{AbbreviationsCache, Units};
use crate::{ImageAddress, paths};

/// Largest number of ranges that a look-up examines backwards if ranges overlap; only hostile files have more.
const OVERLAPS_MAX: usize = 4096;

/// The units of a file, by address range.
pub(crate) struct Index {
    pub(crate) units: Units,
    /// For each unit, sorted hashes of the file names in its line table, without folders.
    file_names: Box<[OnceLock<Box<[u32]>>]>,
    /// Address ranges of the units, by their begin.
    ranges: Vec<UnitRange>,
    /// Units that have a part in another file.
    pub(crate) skeletons: Vec<usize>,
}

struct UnitRange {
    begin: ImageAddress,
    end: ImageAddress,
    /// The largest end of all ranges up to this one.
    furthest_end: ImageAddress,
    unit: usize,
}

type Dwarf<'a> = gimli::Dwarf<Reader<'a>>;

impl Index {
    /// Reads the headers and root entries. A unit that cannot be read is left out. After a broken header, all further units
    /// are left out too.
    pub(crate) fn read(dwarf: &Dwarf<'_>, is_code: &dyn Fn(ImageAddress) -> bool) -> Index {
        let units = Units::read(dwarf);
        let file_names = (0..units.count()).map(|_| OnceLock::new()).collect();
        let mut index = Index { units, file_names, ranges: Vec::new(), skeletons: Vec::new() };
        let mut cache = AbbreviationsCache::default();
        let mut budget = range_budget(dwarf);
        for number in 0..index.units.count() {
            let Some(unit) = index.units.open(dwarf, number, &mut cache) else { continue };
            let mut add = |begin, end| {
                index.ranges.push(UnitRange { begin, end, furthest_end: end, unit: number });
            };
            unit_ranges(unit.unit_ref(dwarf), is_code, &mut budget, &mut add);
            if Skeleton::of(unit.unit_ref(dwarf)).is_some() {
                index.skeletons.push(number);
            }
        }
        index.sort_ranges();
        index
    }

    fn sort_ranges(&mut self) {
        self.ranges.sort_unstable_by_key(|r| (r.begin, r.unit));
        let mut furthest = ImageAddress(0);
        for range in &mut self.ranges {
            furthest = range.end.max(furthest);
            range.furthest_end = furthest;
        }
    }

    /// Returns the units around `address`; the one with the nearest begin comes first.
    pub(crate) fn units_at(&self, address: ImageAddress) -> impl Iterator<Item = usize> + '_ {
        let after = self.ranges.partition_point(|r| r.begin <= address);
        let before = self.ranges[..after].iter().rev().take(OVERLAPS_MAX);
        let around = before.take_while(move |r| r.furthest_end > address).filter(move |r| r.end > address);
        around.map(|r| r.unit)
    }

    /// Returns the units with code from `begin` to `end`, each once.
    pub(crate) fn units_within(
        &self,
        begin: ImageAddress,
        end: ImageAddress,
    ) -> impl Iterator<Item = usize> + '_ {
        let after = self.ranges.partition_point(|r| r.begin < end);
        let before = self.ranges[..after].iter().rev().take(OVERLAPS_MAX);
        let around = before.take_while(move |r| r.furthest_end > begin).filter(move |r| r.end > begin);
        let mut seen = FxHashSet::default();
        around.map(|r| r.unit).filter(move |unit| seen.insert(*unit))
    }

    /// Reads the line table of a unit. The result is empty if it cannot be read.
    pub(crate) fn lines(
        &self,
        dwarf: &Dwarf<'_>,
        unit: usize,
        is_code: &dyn Fn(ImageAddress) -> bool,
    ) -> LineTable {
        let owned = self.units.open(dwarf, unit, &mut AbbreviationsCache::default());
        owned.map(|owned| LineTable::read(owned.unit_ref(dwarf), is_code)).unwrap_or_default()
    }

    /// Returns whether the line table of a unit lists a file of that name. Hashes are compared, so in rare cases the result
    /// is `true` although it does not.
    pub(crate) fn lists_file(&self, dwarf: &Dwarf<'_>, unit: usize, file_name: &str) -> bool {
        let read = || {
            let owned = self.units.open(dwarf, unit, &mut AbbreviationsCache::default());
            let mut names = owned.map_or_else(Vec::new, |owned| {
                lines::file_names(owned.unit_ref(dwarf)).map(|name| name_hash(name.as_bytes())).collect()
            });
            names.sort_unstable();
            names.dedup();
            names.into()
        };
        let names = self.file_names[unit].get_or_init(read);
        names.binary_search(&name_hash(file_name.as_bytes())).is_ok()
    }

    /// Returns the MD5 of the source file at `path`, from the first unit whose line table contains it. Units that list no
    /// file of that name are skipped, and units whose lists are already known come first. In a large file, this avoids
    /// reading most of the lists.
    pub(crate) fn source_md5(&self, dwarf: &Dwarf<'_>, path: &str) -> Option<[u8; 16]> {
        let (known, others): (Vec<usize>, Vec<usize>) =
            (0..self.units.count()).partition(|unit| self.file_names[*unit].get().is_some());
        let mut cache = AbbreviationsCache::default();
        known.into_iter().chain(others).find_map(|number| {
            let listed = self.lists_file(dwarf, number, paths::last(path));
            let unit = listed.then(|| self.units.open(dwarf, number, &mut cache)).flatten()?;
            lines::md5_of(unit.unit_ref(dwarf), path)
        })
    }
}

/// Returns the hash of a file name without folders.
fn name_hash(name: &[u8]) -> u32 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    (hasher.finish() >> 32) as u32
}

/// Returns the largest number of ranges that may be read: as many as fit into the sections that contain them.
pub(crate) fn range_budget(dwarf: &Dwarf<'_>) -> usize {
    let info = dwarf.debug_info.reader().len();
    let lists = dwarf.ranges.debug_ranges().reader().len() + dwarf.ranges.debug_rnglists().reader().len();
    (info + lists).saturating_add(1 << 10)
}

/// Calls `add` for each range of the unit that is in code. Linkers leave the ranges of code that they removed at address 0.
fn unit_ranges(
    unit: UnitRef<'_, Reader<'_>>,
    is_code: &dyn Fn(ImageAddress) -> bool,
    budget: &mut usize,
    add: &mut dyn FnMut(ImageAddress, ImageAddress),
) {
    let mut found = false;
    if let Ok(mut ranges) = unit.unit_ranges() {
        while let Ok(Some(range)) = ranges.next() {
            if *budget == 0 {
                return;
            }
            *budget -= 1;
            let (begin, end) = (ImageAddress(range.begin), ImageAddress(range.end));
            if begin < end && is_code(begin) {
                add(begin, end);
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
