//! The units of a file with debug information: where each one begins, and what is needed to open it.

use std::sync::Arc;

use gimli::{Abbreviations, DebugAbbrev, DebugInfoOffset, EndianSlice, Section, Unit, UnitRef};
use rustc_hash::FxHashMap;

use super::Reader;

type Dwarf<'a> = gimli::Dwarf<Reader<'a>>;

/// The units of a file, by offset.
pub(crate) struct Units(Vec<UnitEntry>);

struct UnitEntry {
    offset: usize,
    /// Offset at which the next table of abbreviations begins. With an end for each table, reading all of them takes linear
    /// time, whatever offsets a hostile file contains.
    abbreviations_end: usize,
}

impl Units {
    /// Reads the headers. Units after a broken header are left out.
    pub(crate) fn read(dwarf: &Dwarf<'_>) -> Units {
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
            UnitEntry { offset, abbreviations_end: tables.get(next).copied().unwrap_or(end).min(end) }
        };
        Units(offsets.into_iter().map(entry).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of the unit that contains the entry at an offset.
    pub(crate) fn around(&self, offset: DebugInfoOffset) -> Option<usize> {
        self.0.partition_point(|u| u.offset <= offset.0).checked_sub(1)
    }

    /// Returns the offset in the section at which a unit begins.
    pub(crate) fn offset_of(&self, unit: usize) -> Option<usize> {
        self.0.get(unit).map(|u| u.offset)
    }

    /// Reads the root entry of a unit; `None` if it cannot be read.
    pub(crate) fn open<'a>(
        &self,
        dwarf: &Dwarf<'a>,
        unit: usize,
        cache: &mut AbbreviationsCache,
    ) -> Option<OwnedUnit<'a>> {
        let entry = self.0.get(unit)?;
        let header = dwarf.debug_info.header_from_offset(DebugInfoOffset(entry.offset)).ok()?;
        let abbreviations = cache.get(dwarf, header.debug_abbrev_offset().0, entry.abbreviations_end)?;
        Unit::new_with_abbreviations(dwarf, header, abbreviations).ok().map(OwnedUnit)
    }
}

/// A unit that keeps its abbreviations alive.
pub(crate) struct OwnedUnit<'a>(Unit<Reader<'a>>);

impl<'a> OwnedUnit<'a> {
    pub(crate) fn unit_ref<'u>(&'u self, dwarf: &'u Dwarf<'a>) -> UnitRef<'u, Reader<'a>> {
        UnitRef::new(dwarf, &self.0)
    }

    /// Returns the id of the split part of a unit, which both the skeleton and the part contain.
    pub(crate) fn split_id(&self) -> Option<u64> {
        self.0.dwo_id.map(|id| id.0)
    }

    /// Copies from the skeleton where the addresses of its split part are found.
    pub(crate) fn complete_from(&mut self, skeleton: &Unit<Reader<'a>>) {
        self.0.copy_relocated_attributes(skeleton);
    }
}

/// The most recently used tables of abbreviations. Units share them, especially neighbouring ones.
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
