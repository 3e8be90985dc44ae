//! Starts and sizes of procedures from `.eh_frame`, which even stripped files contain.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use rustc_hash::FxHashMap;

use crate::data::ReadAt;
use crate::elf::{Elf, Section};
use crate::elf_file::ElfFile;

pub(crate) fn bases(elf: &Elf, section: &Section) -> BaseAddresses {
    let address = |name| elf.section(name).map_or(0, |s| s.address);
    BaseAddresses::default()
        .set_eh_frame(section.address)
        .set_eh_frame_hdr(address(".eh_frame_hdr"))
        .set_text(address(".text"))
        .set_got(address(".got"))
}

/// Returns (start, size) of each procedure with unwind information: sorted, one for each start, none empty. If an entry
/// cannot be read, those after it are left out.
fn ranges(frames: &[u8], bases: &BaseAddresses) -> Vec<(u64, u64)> {
    let frames = EhFrame::from(EndianSlice::new(frames, LittleEndian));
    let mut ranges = Vec::new();
    let mut entries = frames.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(|frames, bases, offset| frames.cie_from_offset(bases, offset))
            && entry.len() > 0
        {
            ranges.push((entry.initial_address(), entry.len()));
        }
    }
    ranges.sort_unstable();
    ranges.dedup_by_key(|(start, _)| *start);
    ranges
}

/// Ranges of code that have unwind information.
pub(crate) enum Unwind {
    /// The sorted table of `.eh_frame_hdr`: (start, address of the entry). The entries are read on request.
    Index { table: Vec<u8>, base: u64, entries: Entries },
    /// All ranges as (start, size), sorted.
    Ranges(Vec<(u64, u64)>),
}

/// Size in bytes of the table's header with the encodings that linkers write, and of a row.
const TABLE_AT: usize = 12;
const ROW_BYTES: usize = 8;

impl Unwind {
    /// Creates an object without ranges.
    pub(crate) fn none() -> Unwind {
        Unwind::Ranges(Vec::new())
    }

    /// Reads every entry.
    pub(crate) fn all(file: &ElfFile) -> Unwind {
        let read = |section| ranges(&file.section(section), &bases(&file.elf, section));
        Unwind::Ranges(frames(&file.elf).map(read).unwrap_or_default())
    }

    /// Reads the index of the entries if the linker wrote one; otherwise every entry.
    pub(crate) fn index(file: &ElfFile) -> Unwind {
        let Some(section) = frames(&file.elf) else { return Unwind::none() };
        let header = file.elf.section(".eh_frame_hdr").map(|s| (s.address, file.section(s)));
        match header {
            // Version 1; encodings of pointer, count and table: relative, absolute, and relative to the section.
            Some((base, table)) if table.starts_with(&[1, 0x1b, 3, 0x3b]) => {
                match Entries::new(section, file) {
                    Some(entries) => Unwind::Index { table: table.into_owned(), base, entries },
                    None => Unwind::none(),
                }
            }
            _ => Unwind::all(file),
        }
    }

    /// Iterates over the starts of the ranges; empty if only the index was read.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> {
        let ranges = match self {
            Unwind::Ranges(ranges) => &ranges[..],
            Unwind::Index { .. } => &[],
        };
        ranges.iter().map(|(start, _)| *start)
    }

    /// Returns (start, size) of the range around `address`.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, u64)> {
        let (start, size) = match self {
            Unwind::Ranges(ranges) => {
                ranges[..ranges.partition_point(|(start, _)| *start <= address)].last().copied()?
            }
            Unwind::Index { table, base, entries } => {
                let after = partition(table, *base, address);
                let row = row(table, after.checked_sub(1)?)?;
                let start = base.wrapping_add_signed(row.0.into());
                (start, entries.size_of(base.wrapping_add_signed(row.1.into()))?)
            }
        };
        (address.wrapping_sub(start) < size).then_some((start, size))
    }

    /// Returns the index of the entries around `address`, and the address of the entry that may contain it; `None` if only
    /// ranges were read.
    pub(crate) fn entry_at(&self, address: u64) -> Option<(&Entries, Option<u64>)> {
        let Unwind::Index { table, base, entries } = self else { return None };
        let before = partition(table, *base, address).checked_sub(1);
        let entry = before.and_then(|at| row(table, at)).map(|row| base.wrapping_add_signed(row.1.into()));
        Some((entries, entry))
    }

    /// Returns the number of bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Unwind::Index { table, .. } => table.len() + WINDOW_BYTES as usize,
            Unwind::Ranges(ranges) => size_of_val(&ranges[..]),
        }
    }

    /// Returns the start of the next range after `address`, or the highest address if there is none.
    pub(crate) fn next_after(&self, address: u64) -> u64 {
        match self {
            Unwind::Ranges(ranges) => {
                let after = ranges.partition_point(|(start, _)| *start <= address);
                ranges.get(after).map_or(u64::MAX, |(start, _)| *start)
            }
            Unwind::Index { table, base, .. } => {
                let next = row(table, partition(table, *base, address));
                next.map_or(u64::MAX, |(start, _)| base.wrapping_add_signed(start.into()))
            }
        }
    }
}

/// An entry of `.eh_frame`.
pub(crate) type Entry<'a> = gimli::FrameDescriptionEntry<EndianSlice<'a, LittleEndian>>;

/// Entries of `.eh_frame`, read on request, since all of them take megabytes.
pub(crate) struct Entries {
    file: Arc<dyn ReadAt>,
    /// Offset of the section in the file, its size in bytes, and its address.
    offset: u64,
    size: u64,
    address: u64,
    /// The most recently read data.
    read: Mutex<ReadEntries>,
}

#[derive(Default)]
struct ReadEntries {
    /// A part of the section and its begin. Neighbours in code are neighbours in the section.
    window: Vec<u8>,
    window_at: u64,
    /// Common entries (CIEs) by their offset. Most entries refer to one of a few.
    common: FxHashMap<u64, Box<[u8]>>,
}

/// Number of bytes that are read at once.
const WINDOW_BYTES: u64 = 16 << 10;
/// Largest size of an entry that is accepted.
const ENTRY_BYTES_MAX: u64 = 64 << 10;
/// Largest number of common entries that are cached.
const COMMON_MAX: usize = 256;

impl Entries {
    fn new(section: &Section, file: &ElfFile) -> Option<Entries> {
        let range = section.file_range()?;
        Some(Entries {
            file: file.reader(),
            offset: range.start as u64,
            size: section.size,
            address: section.address,
            read: Mutex::default(),
        })
    }

    /// Returns the size of the code that the entry at an address covers.
    fn size_of(&self, entry: u64) -> Option<u64> {
        let (both, second) = self.with_common(entry)?;
        let frames = EhFrame::from(EndianSlice::new(&both, LittleEndian));
        let bases = BaseAddresses::default().set_eh_frame(0).set_text(0).set_got(0);
        let fde = frames.fde_from_offset(&bases, gimli::EhFrameOffset(second), EhFrame::cie_from_offset);
        fde.ok().map(|fde| fde.len())
    }

    /// Passes the entry at an address to `read`: the only code range of a section of two entries, at their real addresses
    /// except for what the common entry refers to.
    pub(crate) fn with_entry<T>(
        &self,
        entry: u64,
        bases: &BaseAddresses,
        read: impl FnOnce(&EhFrame<EndianSlice<LittleEndian>>, &BaseAddresses, &Entry<'_>) -> Option<T>,
    ) -> Option<T> {
        let (both, second) = self.with_common(entry)?;
        let frames = EhFrame::from(EndianSlice::new(&both, LittleEndian));
        // Pointers in the entry are relative to where it really is.
        let bases = bases.clone().set_eh_frame(entry.wrapping_sub(second as u64));
        let fde = frames.fde_from_offset(&bases, gimli::EhFrameOffset(second), EhFrame::cie_from_offset);
        read(&frames, &bases, &fde.ok()?)
    }

    /// Returns a section of only two entries, the common one and the one at an address, which refers to it, and where the second
    /// one begins.
    fn with_common(&self, entry: u64) -> Option<(Vec<u8>, usize)> {
        let at = entry.checked_sub(self.address)?;
        let read = &mut *self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let own = self.entry(read, at)?.to_vec();
        let common_at = (at + 4).checked_sub(u32::from_le_bytes(*own.get(4..)?.first_chunk()?).into())?;
        if !read.common.contains_key(&common_at) {
            let common = self.entry(read, common_at)?.into();
            if read.common.len() >= COMMON_MAX {
                read.common.clear();
            }
            read.common.insert(common_at, common);
        }
        let mut both = read.common[&common_at].to_vec();
        let second = both.len();
        both.extend(own);
        both[second + 4..second + 8].copy_from_slice(&u32::try_from(second + 4).ok()?.to_le_bytes());
        Some((both, second))
    }

    /// Returns the bytes of the entry at an offset in the section, including its length.
    fn entry<'r>(&self, read: &'r mut ReadEntries, at: u64) -> Option<&'r [u8]> {
        let length = self.bytes(read, at, 4)?;
        let length = u64::from(u32::from_le_bytes(*length.first_chunk()?));
        // Entries in the 64-bit format begin with a length of all ones and are rejected.
        if !(8..=ENTRY_BYTES_MAX).contains(&length) {
            return None;
        }
        self.bytes(read, at, length + 4)
    }

    fn bytes<'r>(&self, read: &'r mut ReadEntries, at: u64, count: u64) -> Option<&'r [u8]> {
        if at.checked_add(count)? > self.size {
            return None;
        }
        let within = at.checked_sub(read.window_at).filter(|d| d + count <= read.window.len() as u64);
        let start = match within {
            Some(start) => start,
            None => {
                let start = self.offset.checked_add(at)?;
                let window = self
                    .file
                    .read_range(start..start.checked_add(WINDOW_BYTES.max(count).min(self.size - at))?);
                (read.window, read.window_at) = (window.map(Cow::into_owned).unwrap_or_default(), at);
                0
            }
        } as usize;
        read.window.get(start..start + count as usize)
    }
}

/// Returns the section of unwind entries; `None` for a relocatable file, whose addresses are not known yet.
pub(crate) fn frames(elf: &Elf) -> Option<&Section> {
    elf.section(".eh_frame").filter(|_| !elf.relocatable)
}

/// Returns the number of rows that start at or before `address`.
fn partition(table: &[u8], base: u64, address: u64) -> usize {
    let rows = table.get(TABLE_AT..).unwrap_or_default().as_chunks::<ROW_BYTES>().0;
    rows.partition_point(|[a, b, c, d, ..]| {
        base.wrapping_add_signed(i32::from_le_bytes([*a, *b, *c, *d]).into()) <= address
    })
}

fn row(table: &[u8], index: usize) -> Option<(i32, i32)> {
    let [a, b, c, d, e, f, g, h] = *table.get(TABLE_AT..)?.as_chunks::<ROW_BYTES>().0.get(index)?;
    Some((i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h])))
}
