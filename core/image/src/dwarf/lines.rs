//! The line table of a unit, which maps addresses to file, line and column.

use std::sync::Arc;

use dwell_profile::bytes_to_text;
use gimli::{AttributeValue, ColumnType, FileEntry, LineProgramHeader, UnitRef};
use rustc_hash::FxHashMap;

use super::Reader;
use crate::{ImageAddress, paths};

/// Largest number of bytes of file names that are kept for one unit. All entries of a hostile table may share one long
/// string.
const FILE_NAME_BYTES_MAX: usize = 16 << 20;
const PATH_BYTES_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct LineTable {
    /// Sequences by their begin. The rows of a sequence are contiguous and ascending.
    sequences: Vec<Sequence>,
    rows: Vec<Row>,
    /// The first row of each address that has several rows. At the entry of a procedure, the first row has the line that the
    /// procedure begins at, while the last row may belong to a line that was scheduled there.
    firsts: FxHashMap<ImageAddress, Row>,
    /// Files by their number in the table.
    files: Vec<Option<Arc<str>>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Row {
    address: ImageAddress,
    pub(crate) file: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Number that distinguishes the blocks on one line for optimizers. It occupies space that would otherwise be padding.
    pub(crate) discriminator: u32,
}

const _: () = assert!(size_of::<Row>() == 24, "a program has millions of rows");

struct Sequence {
    begin: ImageAddress,
    end: ImageAddress,
    rows: std::ops::Range<usize>,
}

type Header<'a> = LineProgramHeader<Reader<'a>>;

impl LineTable {
    /// Reads as much as possible: a broken line program ends the table.
    pub(crate) fn read(unit: UnitRef<'_, Reader<'_>>, is_code: &dyn Fn(ImageAddress) -> bool) -> LineTable {
        let mut table = LineTable::default();
        let Some(program) = unit.line_program.clone() else { return table };
        table.files = files(unit, program.header(), &mut FileNames::new(FILE_NAME_BYTES_MAX));
        let mut rows = program.rows();
        let mut start = 0;
        while let Ok(Some((_, row))) = rows.next_row() {
            if row.end_sequence() {
                table.close_sequence(start, ImageAddress(row.address()), is_code);
                start = table.rows.len();
            } else {
                table.add(start, Row::from_line_row(row));
            }
        }
        table.rows.truncate(start);
        table.rows.shrink_to_fit();
        table.sequences.sort_by_key(|s| s.begin);
        table
    }

    /// Returns the row that covers `address`.
    pub(crate) fn at(&self, address: ImageAddress) -> Option<&Row> {
        let after = self.sequences.partition_point(|s| s.begin <= address);
        let sequence = self.sequences[..after].last().filter(|s| address < s.end)?;
        let rows = &self.rows[sequence.rows.clone()];
        rows[..rows.partition_point(|r| r.address <= address)].last()
    }

    /// Returns the first row of `address`, if a row begins there.
    pub(crate) fn first_at(&self, address: ImageAddress) -> Option<&Row> {
        self.firsts.get(&address).or_else(|| self.at(address).filter(|r| r.address == address))
    }

    pub(crate) fn file(&self, number: u32) -> Option<&Arc<str>> {
        self.files.get(number as usize)?.as_ref()
    }

    /// Returns the file and line of a row; `None` if it has no line.
    pub(crate) fn place(&self, row: &Row) -> Option<(Arc<str>, u32)> {
        (row.line != 0).then_some((self.file(row.file)?.clone(), row.line))
    }

    /// Returns the files of the rows from `begin` to `end`, unsorted and with duplicates.
    pub(crate) fn files_within(&self, begin: ImageAddress, end: ImageAddress) -> Vec<Arc<str>> {
        let mut numbers: Vec<u32> = Vec::new();
        // Sequences overlap only in hostile files. As in `at`, the one with the nearest begin counts.
        let after = self.sequences.partition_point(|s| s.begin < end);
        for sequence in self.sequences[..after].iter().rev().take_while(|s| s.end > begin) {
            let rows = &self.rows[sequence.rows.clone()];
            // The row before the first one of them may extend into the range.
            let first = rows.partition_point(|r| r.address <= begin).saturating_sub(1);
            let within = rows[first..].iter().take_while(|r| r.address < end).filter(|r| r.line != 0);
            numbers.extend(within.map(|r| r.file));
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers.iter().filter_map(|n| self.file(*n).cloned()).collect()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let names: usize = self.files.iter().flatten().map(|name| name.len() + 32).sum();
        names
            + self.rows.capacity() * size_of::<Row>()
            + self.sequences.capacity() * size_of::<Sequence>()
            + self.firsts.capacity() * size_of::<(ImageAddress, Row)>()
    }

    /// Iterates over the contiguous pieces of code as (begin, end).
    pub(crate) fn sequences(&self) -> impl Iterator<Item = (ImageAddress, ImageAddress)> + '_ {
        self.sequences.iter().map(|s| (s.begin, s.end))
    }

    /// Adds a row. If several rows have the same address, the last one counts. A row whose address is below that of an
    /// earlier row of the sequence is ignored.
    fn add(&mut self, start: usize, row: Row) {
        match self.rows[start..].last_mut() {
            Some(last) if last.address == row.address => {
                self.firsts.entry(row.address).or_insert(*last);
                *last = row;
            }
            Some(last) if last.address > row.address => {}
            _ => self.rows.push(row),
        }
    }

    fn close_sequence(&mut self, start: usize, end: ImageAddress, is_code: &dyn Fn(ImageAddress) -> bool) {
        match self.rows.get(start).map(|row| row.address) {
            Some(begin) if begin < end && is_code(begin) => {
                self.sequences.push(Sequence { begin, end, rows: start..self.rows.len() });
            }
            _ => self.rows.truncate(start),
        }
    }
}

impl Row {
    fn from_line_row(row: &gimli::LineRow) -> Row {
        let small = |number: u64| u32::try_from(number).unwrap_or(0);
        Row {
            address: ImageAddress(row.address()),
            file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
            line: row.line().map_or(0, |l| small(l.get())),
            column: match row.column() {
                ColumnType::LeftEdge => 0,
                ColumnType::Column(column) => small(column.get()),
            },
            discriminator: small(row.discriminator()),
        }
    }
}

/// Returns the MD5 of the file with that path in one unit.
pub(crate) fn md5_of<'a>(unit: UnitRef<'_, Reader<'a>>, path: &str) -> Option<[u8; 16]> {
    let header = unit.line_program.as_ref().map(|p| p.header()).filter(|h| h.file_has_md5())?;
    let mut names = FileNames::new(FILE_NAME_BYTES_MAX);
    let mut of_path = |file: &FileEntry<Reader<'a>>| names.path(unit, header, file).as_deref() == Some(path);
    header.file_names().iter().find(|file| of_path(file)).map(|file| *file.md5())
}

/// Returns the names of the files of a unit, without folders.
pub(crate) fn file_names<'a>(unit: UnitRef<'_, Reader<'a>>) -> impl Iterator<Item = Box<str>> {
    let header = unit.line_program.as_ref().map(|p| p.header());
    let own = unit.name.filter(|_| header.is_some_and(|h| h.version() <= 4));
    let listed =
        header.into_iter().flat_map(|h| h.file_names()).filter_map(|f| unit.attr_string(f.path_name()).ok());
    let names: Vec<Reader<'a>> = own.into_iter().chain(listed).collect();
    let last = |name: Reader<'_>| paths::last(&bytes_to_text(cut(&name))).into();
    names.into_iter().map(last)
}

fn files<'a>(
    unit: UnitRef<'_, Reader<'a>>,
    header: &Header<'a>,
    names: &mut FileNames,
) -> Vec<Option<Arc<str>>> {
    // Up to DWARF 4, files are numbered from 1, and 0 is the name of the unit itself.
    let mut files = Vec::new();
    if header.version() <= 4 {
        let own = unit.name.map(|name| names.joined(unit, [Some(name)]).into());
        files.push(own);
    }
    files.extend(header.file_names().iter().map(|file| names.path(unit, header, file).map(Into::into)));
    files
}

fn cut<'a>(part: &Reader<'a>) -> &'a [u8] {
    &part.slice()[..part.len().min(PATH_BYTES_MAX)]
}

/// Builds file names within a limit of bytes.
pub(crate) struct FileNames {
    budget_bytes: usize,
}

impl FileNames {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        FileNames { budget_bytes }
    }

    /// Returns the absolute, normalized path of an entry in a line table.
    fn path<'a>(
        &mut self,
        unit: UnitRef<'_, Reader<'a>>,
        header: &Header<'a>,
        file: &gimli::FileEntry<Reader<'a>>,
    ) -> Option<String> {
        if self.budget_bytes == 0 {
            return None;
        }
        let string = |value: AttributeValue<_>| unit.attr_string(value).ok();
        let name = string(file.path_name())?;
        // Directory 0 is that of the unit; DWARF 5 also lists it explicitly.
        let directory = match file.directory_index() {
            0 if header.version() <= 4 => None,
            _ => file.directory(header).and_then(string),
        };
        Some(self.joined(unit, [directory, Some(name)]))
    }

    fn joined<const N: usize>(
        &mut self,
        unit: UnitRef<'_, Reader<'_>>,
        parts: [Option<Reader<'_>>; N],
    ) -> String {
        let mut path = String::new();
        for part in [unit.comp_dir].into_iter().chain(parts).flatten() {
            paths::push(&mut path, &bytes_to_text(cut(&part)));
        }
        self.budget_bytes = self.budget_bytes.saturating_sub(path.len());
        paths::normalize(&path)
    }
}
