//! `.eh_frame` → where procedures start and how long they are, known even of stripped files.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};

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
    /// The sorted table of `.eh_frame_hdr`, (start, address of the entry), beside the entries.
    Table { table: Vec<u8>, base: u64, entries: Vec<u8>, at: u64, bases: BaseAddresses },
    /// All of them.
    Ranges(Vec<(u64, u64)>),
}

/// Bytes of the table's header with the encodings that linkers write, and of a row.
const TABLE_AT: usize = 12;
const ROW_BYTES: usize = 8;

impl Unwind {
    /// `bytes` reads a section.
    pub(crate) fn read(elf: &Elf, bytes: &dyn Fn(&Section) -> Vec<u8>) -> Unwind {
        let Some(section) = elf.section(".eh_frame").filter(|_| !elf.relocatable) else {
            return Unwind::Ranges(Vec::new());
        };
        let (entries, bases) = (bytes(section), bases(elf, section));
        let header = elf.section(".eh_frame_hdr").map(|s| (s.address, bytes(s)));
        match header {
            // Version 1; pointer, count and table as relative, absolute and relative to the section.
            Some((base, table)) if table.starts_with(&[1, 0x1b, 3, 0x3b]) => {
                Unwind::Table { table, base, entries, at: section.address, bases }
            }
            _ => Unwind::Ranges(ranges_of(&entries, &bases)),
        }
    }

    /// The one around `address`.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, u64)> {
        let (start, size) = match self {
            Unwind::Ranges(ranges) => {
                ranges[..ranges.partition_point(|(start, _)| *start <= address)].last().copied()?
            }
            Unwind::Table { table, base, entries, at, bases } => {
                let after = partition(table, *base, address);
                let row = row(table, after.checked_sub(1)?)?;
                let entry = base.wrapping_add_signed(row.1.into()).checked_sub(*at)?;
                let frames = EhFrame::from(EndianSlice::new(entries, LittleEndian));
                let offset = gimli::EhFrameOffset(usize::try_from(entry).ok()?);
                let fde = frames.fde_from_offset(bases, offset, EhFrame::cie_from_offset).ok()?;
                (fde.initial_address(), fde.len())
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
