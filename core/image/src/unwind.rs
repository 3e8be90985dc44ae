//! `.eh_frame` → where procedures start and how long they are, known even of stripped files.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};

use crate::elf::Elf;

/// (start, size) of each procedure with unwind information, sorted, one for each start, none empty.
/// Entries after one that cannot be read are left out.
pub(crate) fn ranges(elf: &Elf, bytes: &[u8]) -> Vec<(u64, u64)> {
    let Some(section) = elf.section(".eh_frame").filter(|_| !elf.relocatable) else {
        return Vec::new();
    };
    let frames = EhFrame::from(EndianSlice::new(section.bytes(bytes), LittleEndian));
    let address = |name| elf.section(name).map_or(0, |s| s.address);
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address)
        .set_text(address(".text"))
        .set_got(address(".got"));
    let mut ranges = Vec::new();
    let mut entries = frames.entries(&bases);
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
