//! Finds the name of a function: its own, or that of the entry which it is an instance of, possibly in another unit.

use gimli::{AttributeValue, DebugInfoOffset, UnitOffset, UnitRef};
use rustc_hash::FxHashMap;

use super::name_table::NameTable;
use super::sections::Reader;
use super::units::{AbbreviationsCache, OwnedUnit, Units};

/// Largest length of a chain of references from an entry to its origin. References of a hostile file may be circular.
const ORIGINS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 16 << 10;
/// Largest number of bytes of names that are kept for one unit.
const NAMES_BYTES_MAX: usize = 64 << 20;
/// Largest number of other units that are kept open for references into them.
const FOREIGN_UNITS_MAX: usize = 64;

/// The file that contains an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum InFile {
    /// The file of the unit that is being read.
    Own,
    /// The file with entries that several files share (DWARF 5 §7.3.6).
    Alt,
}

/// A unit: the file that contains it, and its number in that file.
type UnitPlace = (InFile, usize);
/// An entry: its unit, and its offset in the unit.
type Place = (UnitPlace, usize);

/// Units that entries may refer to.
#[derive(Clone, Copy)]
pub(crate) struct References<'i> {
    /// Units of the file that contains the entries.
    pub(crate) own: &'i Units,
    /// Units of the file with shared entries.
    pub(crate) alt: Option<&'i Units>,
}

impl<'i> References<'i> {
    fn units(&self, file: InFile) -> Option<&'i Units> {
        match file {
            InFile::Own => Some(self.own),
            InFile::Alt => self.alt,
        }
    }
}

pub(crate) struct Names<'u, 'a, 'i> {
    unit: UnitRef<'u, Reader<'a>>,
    references: References<'i>,
    own: UnitPlace,
    foreign: FxHashMap<UnitPlace, Option<OwnedUnit<'a>>>,
    abbreviations: [AbbreviationsCache; 2],
    /// Results by entry: the number of its name, and the line that it is declared at (0: unknown).
    resolved: FxHashMap<Place, (Option<u32>, u32)>,
    bytes: usize,
    pub(crate) table: NameTable,
}

/// What an entry contains about its name: the name, a reference to another entry, or nothing.
enum Told<'a> {
    Name(Reader<'a>),
    See(Place),
    Nothing,
}

/// Name and line in an entry.
struct Said<'a> {
    name: Told<'a>,
    /// Line that the function is declared at; 0 if the entry does not contain it.
    line: u32,
}

impl<'u, 'a, 'i> Names<'u, 'a, 'i> {
    pub(crate) fn new(unit: UnitRef<'u, Reader<'a>>, references: References<'i>) -> Self {
        let own = unit.header.debug_info_offset().and_then(|o| references.own.around(o));
        Names {
            unit,
            references,
            own: (InFile::Own, own.unwrap_or(usize::MAX)),
            foreign: FxHashMap::default(),
            abbreviations: Default::default(),
            resolved: FxHashMap::default(),
            bytes: 0,
            table: NameTable::default(),
        }
    }

    /// Returns the number of the name of the entry at `offset`, which has the name `name` or the origin `origin`. Also
    /// returns the line that the origin is declared at (0 if it is unknown).
    pub(crate) fn resolve(
        &mut self,
        offset: UnitOffset,
        name: Option<AttributeValue<Reader<'a>>>,
        origin: Option<AttributeValue<Reader<'a>>>,
    ) -> (Option<u32>, u32) {
        if let Some(name) = name.and_then(|n| self.unit.attr_string(n).ok()) {
            return (self.keep((self.own, offset.0), name, 0), 0);
        }
        let mut place = origin.and_then(|origin| self.place(self.own, origin));
        // The nearest declaration counts: for a method, that of its body and not that in its class.
        let mut line = 0;
        let nearest = |line: u32, further: u32| if line == 0 { further } else { line };
        for _ in 0..ORIGINS_MAX {
            let Some(at) = place else { break };
            if let Some(&(name, further)) = self.resolved.get(&at) {
                return (name, nearest(line, further));
            }
            let Some(said) = self.said(at) else { break };
            line = nearest(line, said.line);
            match said.name {
                Told::Name(name) => return (self.keep(at, name, said.line), line),
                Told::See(next) => place = Some(next),
                Told::Nothing => break,
            }
        }
        (None, line)
    }

    fn keep(&mut self, place: Place, name: Reader<'a>, line: u32) -> Option<u32> {
        let text = name.slice().get(..name.len().min(NAME_BYTES_MAX))?;
        self.bytes += text.len();
        let kept = self.bytes <= NAMES_BYTES_MAX;
        let number = kept.then(|| self.table.add(&String::from_utf8_lossy(text)));
        self.resolved.insert(place, (number, line));
        number
    }

    fn said(&mut self, (unit, offset): Place) -> Option<Said<'a>> {
        self.open(unit);
        let unit_ref = self.unit_ref(unit)?;
        let mut entries = unit_ref.entries_raw(Some(UnitOffset(offset))).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        let (mut linkage, mut plain, mut origin, mut line) = (None, None, None, 0);
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec).ok()?;
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    linkage = Some(attribute.value())
                }
                gimli::DW_AT_name => plain = Some(attribute.value()),
                gimli::DW_AT_decl_line => {
                    line = attribute.udata_value().and_then(|l| u32::try_from(l).ok()).unwrap_or(0);
                }
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => origin = Some(attribute.value()),
                _ => {}
            }
        }
        let name = linkage.or(plain).and_then(|value| unit_ref.attr_string(value).ok());
        let name = match (name, origin.and_then(|origin| self.place(unit, origin))) {
            (Some(name), _) => Told::Name(name),
            (None, Some(place)) => Told::See(place),
            (None, None) => Told::Nothing,
        };
        Some(Said { name, line })
    }

    /// Returns the entry that a reference in `unit` refers to.
    fn place(&self, unit: UnitPlace, reference: AttributeValue<Reader<'a>>) -> Option<Place> {
        match reference {
            AttributeValue::UnitRef(offset) => Some((unit, offset.0)),
            AttributeValue::DebugInfoRef(offset) => self.place_in(unit.0, offset),
            AttributeValue::DebugInfoRefSup(offset) => self.place_in(InFile::Alt, offset),
            _ => None,
        }
    }

    fn place_in(&self, file: InFile, offset: DebugInfoOffset) -> Option<Place> {
        let units = self.references.units(file)?;
        let unit = units.around(offset)?;
        Some(((file, unit), offset.0.checked_sub(units.offset_of(unit)?)?))
    }

    fn open(&mut self, unit: UnitPlace) {
        if unit == self.own || self.foreign.contains_key(&unit) {
            return;
        }
        if self.foreign.len() >= FOREIGN_UNITS_MAX {
            self.foreign.clear();
        }
        let cache = &mut self.abbreviations[unit.0 as usize];
        let units = self.references.units(unit.0).zip(dwarf_of(self.unit, unit.0));
        let opened = units.and_then(|(units, dwarf)| units.open(dwarf, unit.1, cache));
        self.foreign.insert(unit, opened);
    }

    fn unit_ref(&self, unit: UnitPlace) -> Option<UnitRef<'_, Reader<'a>>> {
        if unit == self.own {
            return Some(self.unit);
        }
        Some(self.foreign.get(&unit)?.as_ref()?.unit_ref(dwarf_of(self.unit, unit.0)?))
    }
}

fn dwarf_of<'u, 'a>(unit: UnitRef<'u, Reader<'a>>, file: InFile) -> Option<&'u gimli::Dwarf<Reader<'a>>> {
    match file {
        InFile::Own => Some(unit.dwarf),
        InFile::Alt => unit.dwarf.sup(),
    }
}
