//! `.eh_frame` → where procedures start and how long they are, known even of stripped files.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};

use rustc_hash::FxHashMap;

use crate::elf::{Elf, Section};

/// (start, size) of each procedure with unwind information, sorted, one for each start, none empty.
/// Entries after one that cannot be read are left out.
pub(crate) fn ranges(elf: &Elf, bytes: &[u8]) -> Vec<(u64, u64)> {
    let Some(section) = elf.section(".eh_frame").filter(|_| !elf.relocatable) else {
        return Vec::new();
    };
    ranges_of(section.bytes(bytes), &bases(elf, section))
}

fn bases(elf: &Elf, section: &Section) -> BaseAddresses {
    let address = |name| elf.section(name).map_or(0, |s| s.address);
    BaseAddresses::default()
        .set_eh_frame(section.address)
        .set_eh_frame_hdr(address(".eh_frame_hdr"))
        .set_text(address(".text"))
        .set_got(address(".got"))
}

fn ranges_of(frames: &[u8], bases: &BaseAddresses) -> Vec<(u64, u64)> {
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

/// (start, size) of what is asked for alone.
pub(crate) enum Unwind {
    /// The sorted table of `.eh_frame_hdr`, (start, address of the entry); the entries are in the file.
    Table { table: Vec<u8>, base: u64, entries: Entries },
    /// All of them.
    Ranges(Vec<(u64, u64)>),
}

/// Bytes of the table's header with the encodings that linkers write, and of a row.
const TABLE_AT: usize = 12;
const ROW_BYTES: usize = 8;

impl Unwind {
    /// `bytes` reads a section of `file`.
    pub(crate) fn read(elf: &Elf, bytes: &dyn Fn(&Section) -> Vec<u8>, file: &File) -> Unwind {
        let Some(section) = elf.section(".eh_frame").filter(|_| !elf.relocatable) else {
            return Unwind::Ranges(Vec::new());
        };
        let header = elf.section(".eh_frame_hdr").map(|s| (s.address, bytes(s)));
        match header {
            // Version 1; pointer, count and table as relative, absolute and relative to the section.
            Some((base, table)) if table.starts_with(&[1, 0x1b, 3, 0x3b]) => {
                match Entries::new(section, file) {
                    Some(entries) => Unwind::Table { table, base, entries },
                    None => Unwind::Ranges(Vec::new()),
                }
            }
            _ => Unwind::Ranges(ranges_of(&bytes(section), &bases(elf, section))),
        }
    }

    /// The one around `address`.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, u64)> {
        let (start, size) = match self {
            Unwind::Ranges(ranges) => {
                ranges[..ranges.partition_point(|(start, _)| *start <= address)].last().copied()?
            }
            Unwind::Table { table, base, entries } => {
                let after = partition(table, *base, address);
                let row = row(table, after.checked_sub(1)?)?;
                let start = base.wrapping_add_signed(row.0.into());
                (start, entries.size_of(base.wrapping_add_signed(row.1.into()))?)
            }
        };
        (address.wrapping_sub(start) < size).then_some((start, size))
    }

    /// Where the next one after `address` starts.
    pub(crate) fn next_after(&self, address: u64) -> u64 {
        match self {
            Unwind::Ranges(ranges) => {
                let after = ranges.partition_point(|(start, _)| *start <= address);
                ranges.get(after).map_or(u64::MAX, |(start, _)| *start)
            }
            Unwind::Table { table, base, .. } => {
                let next = row(table, partition(table, *base, address));
                next.map_or(u64::MAX, |(start, _)| base.wrapping_add_signed(start.into()))
            }
        }
    }
}

/// The entries of `.eh_frame`, of which only those are read that are asked for: all of them are megabytes.
pub(crate) struct Entries {
    file: File,
    /// Where the section is in the file, how long it is, and its address.
    offset: u64,
    size: u64,
    address: u64,
    read: RefCell<ReadEntries>,
}

#[derive(Default)]
struct ReadEntries {
    /// Part of the section, and where it begins: neighbours in code are neighbours there.
    window: Vec<u8>,
    window_at: u64,
    /// Common entries by where they begin; most refer to one of a few.
    common: FxHashMap<u64, Box<[u8]>>,
}

/// Bytes that are read at a time.
const WINDOW_BYTES: u64 = 16 << 10;
/// A longer entry is none.
const ENTRY_BYTES_MAX: u64 = 64 << 10;
/// So many common entries are kept.
const COMMON_MAX: usize = 256;

impl Entries {
    fn new(section: &Section, file: &File) -> Option<Entries> {
        let range = section.file_range()?;
        Some(Entries {
            file: file.try_clone().ok()?,
            offset: range.start as u64,
            size: section.size,
            address: section.address,
            read: RefCell::default(),
        })
    }

    /// How much code the entry at an address covers.
    fn size_of(&self, entry: u64) -> Option<u64> {
        let at = entry.checked_sub(self.address)?;
        let read = &mut *self.read.borrow_mut();
        let own = self.entry(read, at)?.to_vec();
        let common_at = (at + 4).checked_sub(u32::from_le_bytes(*own.get(4..)?.first_chunk()?).into())?;
        if !read.common.contains_key(&common_at) {
            let common = self.entry(read, common_at)?.into();
            if read.common.len() >= COMMON_MAX {
                read.common.clear();
            }
            read.common.insert(common_at, common);
        }
        // A section of the two alone, the second of which refers to the first.
        let mut both = read.common[&common_at].to_vec();
        let second = both.len();
        both.extend(own);
        both[second + 4..second + 8].copy_from_slice(&u32::try_from(second + 4).ok()?.to_le_bytes());
        let frames = EhFrame::from(EndianSlice::new(&both, LittleEndian));
        let bases = BaseAddresses::default().set_eh_frame(0).set_text(0).set_got(0);
        let fde = frames.fde_from_offset(&bases, gimli::EhFrameOffset(second), EhFrame::cie_from_offset);
        fde.ok().map(|fde| fde.len())
    }

    /// The bytes of the entry at an offset in the section, with its length.
    fn entry<'r>(&self, read: &'r mut ReadEntries, at: u64) -> Option<&'r [u8]> {
        let length = self.bytes(read, at, 4)?;
        let length = u64::from(u32::from_le_bytes(*length.first_chunk()?));
        // Longer ones in another format begin with as many ones as there are bits.
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
                let want = WINDOW_BYTES.max(count).min(self.size - at) as usize;
                read.window.resize(want, 0);
                read.window_at = at;
                if let Err(_unreadable) =
                    self.file.read_exact_at(&mut read.window, self.offset.checked_add(at)?)
                {
                    read.window.clear();
                    return None;
                }
                0
            }
        } as usize;
        read.window.get(start..start + count as usize)
    }
}

/// How many rows start at or before `address`.
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
