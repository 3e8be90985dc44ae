//! The code of a process: its own, which is written like a debugger does, and the areas of ours, which nobody may write through the
//! process's mapping.
//!
//! Enters: addresses and bytes. Leaves: the same in the process. Never here: whether a thread may execute them.

use std::{fs::File, io, os::unix::fs::FileExt};

use dwell_profile::{Pid, VirtualAddress};

use super::{
    installation::{AREA_BYTES, PAGE},
    placement::Placement,
};

/// Access to a process's code.
pub struct CodeMemory<'m> {
    process: &'m File,
    placement: &'m Placement,
    /// The file that the areas are mapped from.
    areas: &'m File,
}

impl<'m> CodeMemory<'m> {
    /// Returns access through the process's memory and the file of the shared memory.
    pub fn new(process: &'m File, placement: &'m Placement, areas: &'m File) -> Self {
        CodeMemory { process, placement, areas }
    }

    /// Opens the file of the shared memory of a process that another one has probed.
    pub fn open_areas(pid: Pid, placement: &Placement) -> io::Result<File> {
        let (start, end) = (placement.shared_at, placement.shared_at + placement.shared_bytes);
        let options = || File::options().read(true).write(true).clone();
        let (start, end) = (VirtualAddress(start), VirtualAddress(end));
        let linked = |end: VirtualAddress| options().open(format!("/proc/{pid}/map_files/{start}-{end}"));
        // The areas that were never used follow it in one mapping.
        linked(end).or_else(|error| {
            let mapping = super::procfs::mappings(pid)?.into_iter().find(|mapping| mapping.start == start);
            mapping.map_or(Err(error), |mapping| linked(mapping.end))
        })
    }

    /// The process's memory.
    pub fn process(&self) -> &File {
        self.process
    }

    /// Returns whether an address is in an area of ours.
    pub fn is_ours(&self, address: u64) -> bool {
        self.offset(address).is_some()
    }

    /// Writes pieces of code. What is on one page is written at once with what is between it, which does not change: each write costs
    /// more than a microsecond, and threads wait meanwhile.
    pub fn write<'b>(&self, pieces: impl Iterator<Item = (u64, &'b [u8])>) -> io::Result<()> {
        let mut sorted: Vec<(u64, &[u8])> = pieces.collect();
        sorted.sort_by_key(|(address, _)| *address);
        for of_page in sorted.chunk_by(|(a, _), (b, _)| a / PAGE == b / PAGE) {
            let (first, (last, last_bytes)) = (of_page[0].0, of_page[of_page.len() - 1]);
            let mut all = vec![0; (last - first) as usize + last_bytes.len()];
            let (file, offset) =
                self.offset(first).map_or((self.process, first), |offset| (self.areas, offset));
            file.read_exact_at(&mut all, offset)?;
            for (address, bytes) in of_page {
                all[(address - first) as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            file.write_all_at(&all, offset)?;
        }
        Ok(())
    }

    /// Returns where an address of ours is in the file.
    fn offset(&self, address: u64) -> Option<u64> {
        let is_in = |start: &u64| (*start..*start + AREA_BYTES).contains(&address);
        let number = self.placement.areas.iter().position(is_in)?;
        let area = self.placement.shared_bytes + number as u64 * AREA_BYTES;
        Some(area + (address - self.placement.areas[number]))
    }
}
