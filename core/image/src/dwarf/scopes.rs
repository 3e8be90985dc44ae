//! The functions of a unit and the calls inlined into them, which map an address to a chain of scopes, innermost first.

use std::{collections::BTreeMap, num::NonZeroU32};

use gimli::{AttributeValue, RangeListsOffset, UnitRef};

use super::index::range_budget;
use super::name_table::NameTable;
use super::names::{Names, References};
use super::sections::Reader;
use crate::ImageAddress;

/// Largest length of a chain of inlined calls; a longer one is cut off.
const CHAIN_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct ScopeTable {
    scopes: Vec<Scope>,
    /// Addresses where the innermost scope changes: (address, number of the scope from there on).
    changes: Vec<(ImageAddress, Option<u32>)>,
    pub(crate) names: NameTable,
}

/// A function, or an inlined call of one.
#[derive(Default)]
pub(crate) struct Scope {
    name: Option<Number>,
    /// The scope that it was inlined into; none if it is not inlined.
    parent: Option<Number>,
    /// Line that the function is declared at.
    pub(crate) line: u32,
    pub(crate) call_file: u32,
    pub(crate) call_line: u32,
    pub(crate) call_column: u32,
    pub(crate) call_discriminator: u32,
}

const _: () = assert!(size_of::<Scope>() == 28, "a program has millions of inlined calls");

/// An index whose `Option` takes no more space than the index itself.
#[derive(Clone, Copy)]
struct Number(NonZeroU32);

impl Number {
    fn new(index: u32) -> Option<Number> {
        index.checked_add(1).and_then(NonZeroU32::new).map(Number)
    }

    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

impl Scope {
    /// Returns the function's name as an index into [`ScopeTable::names`].
    pub(crate) fn name(&self) -> Option<u32> {
        self.name.map(Number::index)
    }
}

/// The attributes of an entry that are used here.
#[derive(Default)]
struct Attributes<'a> {
    low: Option<ImageAddress>,
    high: Option<ImageAddress>,
    size: Option<u64>,
    ranges: Option<RangeListsOffset>,
    linkage_name: Option<AttributeValue<Reader<'a>>>,
    name: Option<AttributeValue<Reader<'a>>>,
    origin: Option<AttributeValue<Reader<'a>>>,
    scope: Scope,
}

impl ScopeTable {
    /// Reads all entries of a unit once, in order. Open scopes are kept on an explicit stack, without recursion. Time: O(n
    /// log n) in the size of the unit. A broken entry ends the table.
    pub(crate) fn read(
        unit: UnitRef<'_, Reader<'_>>,
        references: References<'_>,
        is_code: &dyn Fn(ImageAddress) -> bool,
    ) -> ScopeTable {
        let mut builder = Builder {
            unit,
            is_code,
            names: Names::new(unit, references),
            budget: range_budget(unit.dwarf),
            scopes: Vec::new(),
            paint: Paint::default(),
        };
        // Entries before an error are kept.
        let _ = builder.read_entries();
        let Builder { scopes, paint, names, .. } = builder;
        ScopeTable { scopes, changes: paint.0.into_iter().collect(), names: names.table }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.names.memory_bytes()
            + self.scopes.capacity() * size_of::<Scope>()
            + self.changes.capacity() * size_of::<(ImageAddress, Option<u32>)>()
    }

    /// Iterates over the innermost scope around `address`, the scope that it was inlined into, and so on up to the function.
    pub(crate) fn chain(&self, address: ImageAddress) -> impl Iterator<Item = &Scope> {
        let after = self.changes.partition_point(|(at, _)| *at <= address);
        let innermost = self.changes[..after].last().and_then(|(_, scope)| *scope);
        let scope = |number: u32| &self.scopes[number as usize];
        let outer = move |s: &&Scope| s.parent.map(|p| scope(p.index()));
        std::iter::successors(innermost.map(scope), outer).take(CHAIN_MAX)
    }
}

struct Builder<'u, 'a, 'i> {
    unit: UnitRef<'u, Reader<'a>>,
    is_code: &'i dyn Fn(ImageAddress) -> bool,
    names: Names<'u, 'a, 'i>,
    /// Number of ranges that may still be read. All entries of a hostile unit may refer to one long list.
    budget: usize,
    scopes: Vec<Scope>,
    paint: Paint,
}

impl<'a> Builder<'_, 'a, '_> {
    fn read_entries(&mut self) -> gimli::Result<()> {
        let unit = self.unit;
        let mut entries = unit.entries_raw(None)?;
        // Depth of each open function or inlined call, and its scope (none for a function without code).
        let mut open: Vec<(isize, Option<u32>)> = Vec::new();
        while !entries.is_empty() {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            while open.last().is_some_and(|(d, _)| *d >= depth) {
                open.pop();
            }
            let tag = abbreviation.tag();
            if tag != gimli::DW_TAG_subprogram && tag != gimli::DW_TAG_inlined_subroutine {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut attributes = Attributes::default();
            for spec in abbreviation.attributes() {
                self.attribute(entries.read_attribute(*spec)?, &mut attributes);
            }
            let parent = open.last().and_then(|(_, scope)| *scope);
            let inlined = tag == gimli::DW_TAG_inlined_subroutine;
            if inlined && parent.is_some() {
                attributes.scope.parent = parent.and_then(Number::new);
            }
            // An inlined call in a function without code belongs to the abstract instance of that function.
            let scope =
                if inlined && parent.is_none() { None } else { self.scope(offset, attributes, inlined) };
            open.push((depth, scope));
        }
        Ok(())
    }

    /// Adds a scope and returns its number. A function without code is not added.
    fn scope(
        &mut self,
        offset: gimli::UnitOffset,
        mut attributes: Attributes<'a>,
        inlined: bool,
    ) -> Option<u32> {
        let number = u32::try_from(self.scopes.len()).ok()?;
        let ranged = self.ranges(&attributes, number);
        if !ranged && !inlined {
            return None;
        }
        let own = attributes.linkage_name.or(attributes.name);
        let (name, line) = self.names.resolve(offset, own, attributes.origin);
        attributes.scope.name = name.and_then(Number::new);
        if attributes.scope.line == 0 {
            attributes.scope.line = line;
        }
        self.scopes.push(attributes.scope);
        Some(number)
    }

    /// Paints the scope over its ranges. Returns whether one of the ranges is in code.
    fn ranges(&mut self, attributes: &Attributes<'_>, number: u32) -> bool {
        let mut any = false;
        let mut add = |paint: &mut Paint, begin, end| {
            if begin < end && (self.is_code)(begin) {
                paint.over(begin, end, number);
                any = true;
            }
        };
        match (attributes.ranges, attributes.low, attributes.high, attributes.size) {
            (Some(offset), ..) => {
                let Ok(mut ranges) = self.unit.ranges(offset) else { return false };
                while self.budget > 0
                    && let Ok(Some(range)) = ranges.next()
                {
                    self.budget -= 1;
                    add(&mut self.paint, ImageAddress(range.begin), ImageAddress(range.end));
                }
            }
            (None, Some(low), Some(high), _) => add(&mut self.paint, low, high),
            (None, Some(low), None, Some(size)) => {
                add(&mut self.paint, low, ImageAddress(low.0.saturating_add(size)));
            }
            _ => {}
        }
        any
    }

    fn attribute(&self, attribute: gimli::Attribute<Reader<'a>>, to: &mut Attributes<'a>) {
        let value = attribute.value();
        let address = |value| self.unit.attr_address(value).ok().flatten().map(ImageAddress);
        let number = || attribute.udata_value().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        match attribute.name() {
            gimli::DW_AT_low_pc => to.low = address(value),
            gimli::DW_AT_high_pc => match address(value) {
                Some(high) => to.high = Some(high),
                None => to.size = attribute.udata_value(),
            },
            gimli::DW_AT_ranges => to.ranges = self.unit.attr_ranges_offset(value).ok().flatten(),
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => to.linkage_name = Some(value),
            gimli::DW_AT_name => to.name = Some(value),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => to.origin = Some(value),
            gimli::DW_AT_call_file => {
                to.scope.call_file = match value {
                    AttributeValue::FileIndex(file) => u32::try_from(file).unwrap_or(u32::MAX),
                    _ => number(),
                }
            }
            gimli::DW_AT_decl_line => to.scope.line = number(),
            gimli::DW_AT_GNU_discriminator => to.scope.call_discriminator = number(),
            gimli::DW_AT_call_line => to.scope.call_line = number(),
            gimli::DW_AT_call_column => to.scope.call_column = number(),
            _ => {}
        }
    }
}

/// Intervals that are painted over each other. A key is the address where a colour begins; it holds up to the next key.
/// Scopes are painted in the order of their entries, callers before the calls inlined into them, so that the innermost scope
/// is on top.
#[derive(Default)]
struct Paint(BTreeMap<ImageAddress, Option<u32>>);

impl Paint {
    /// Paints an interval. Takes amortized O(log n), since each key is removed at most once.
    fn over(&mut self, begin: ImageAddress, end: ImageAddress, colour: u32) {
        let below = self.0.range(..=end).next_back().and_then(|(_, colour)| *colour);
        while let Some((&key, _)) = self.0.range(begin..end).next() {
            self.0.remove(&key);
        }
        self.0.insert(begin, Some(colour));
        self.0.entry(end).or_insert(below);
    }
}

#[cfg(test)]
mod tests {
    use super::{ImageAddress, Paint};

    #[test]
    fn inner_scopes_cover_outer_ones_until_they_end() {
        let mut paint = Paint::default();
        for (begin, end, colour) in [(0, 100, 0), (10, 50, 1), (20, 30, 2), (40, 60, 3)] {
            paint.over(ImageAddress(begin), ImageAddress(end), colour);
        }
        let colours: Vec<_> = paint.0.into_iter().map(|(address, colour)| (address.0, colour)).collect();
        let expected = [
            (0, Some(0)),
            (10, Some(1)),
            (20, Some(2)),
            (30, Some(1)),
            (40, Some(3)),
            (60, Some(0)),
            (100, None),
        ];
        assert_eq!(colours, expected);
    }
}
