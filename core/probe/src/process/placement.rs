//! Where everything of ours is in a process, and the journal that says so.
//!
//! Enters: addresses. Leaves: the same as bytes in the shared memory, from which another process can undo everything if the one that
//! probes was killed ([`Journal::read`]). Never here: what the payload records.

use std::{collections::BTreeSet, fs::File, io, mem::offset_of, os::unix::fs::FileExt};

use dwell_profile::{Pid, VirtualAddress};

use super::{
    installation::{AREA_BYTES, AREAS_MAX, COUNTERS_TABLE_BYTES, PAGE, Worker, is_gone, is_ours},
    patcher::Change,
    procfs::{Mapping, mappings},
    tracer::Tracer,
};
use crate::{
    layout::{self, JOURNAL_BYTES, Shared, THREADS_MAX, Thread},
    patch::plan::JUMP_BYTES,
};

/// Where the payload is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Address of the shared memory.
    pub shared_at: u64,
    /// Its size.
    pub shared_bytes: u64,
    /// Address of the gate.
    pub gate: u64,
    /// A `syscall` instruction.
    pub syscall_at: u64,
    /// Address of the counters of blocks, or 0.
    pub counters_at: u64,
    /// Addresses of the areas of code.
    pub areas: Vec<u64>,
}

impl Placement {
    /// Returns whether an address is in the payload or a trampoline.
    pub fn contains(&self, address: u64) -> bool {
        self.areas.iter().any(|start| (*start..*start + AREA_BYTES).contains(&address))
    }

    /// Unmaps everything. No thread may be in the payload, and no function may be patched.
    pub fn unmap(&self, tracer: &mut Tracer, pid: Pid, memory: &File) -> io::Result<()> {
        let pages = self.perf_pages(pid, memory)?;
        let mut worker = Worker::begin(tracer, self.syscall_at)?;
        if is_gone(memory, VirtualAddress(self.gate)) {
            worker.end()?;
            return Err(io::Error::from_raw_os_error(libc::ESRCH)); // It has executed another program meanwhile.
        }
        let mut parts: Vec<(u64, u64)> = self.areas.iter().map(|start| (*start, AREA_BYTES)).collect();
        parts.push((self.gate, PAGE));
        if self.counters_at != 0 {
            parts.push((self.counters_at, COUNTERS_TABLE_BYTES));
        }
        parts.extend(pages.into_iter().map(|page| (page, PAGE)));
        // The areas that were not moved away follow the shared memory.
        let moved = self.areas.len() as u64;
        if moved < AREAS_MAX {
            let rest = self.shared_at + self.shared_bytes + moved * AREA_BYTES;
            parts.push((rest, (AREAS_MAX - moved) * AREA_BYTES));
        }
        // The journal goes last, so that the rest can be undone after another death.
        parts.push((self.shared_at, self.shared_bytes));
        let unmapped: io::Result<()> = parts.into_iter().try_for_each(|(start, bytes)| {
            worker.call(libc::SYS_munmap, [start, bytes, 0, 0, 0, 0]).map(drop)
        });
        worker.end()?;
        unmapped
    }
}

impl Placement {
    /// Returns the pages of perf events that the payload has mapped.
    fn perf_pages(&self, pid: Pid, memory: &File) -> io::Result<Vec<u64>> {
        let word = |offset: usize| {
            let mut bytes = [0; size_of::<u64>()];
            memory
                .read_exact_at(&mut bytes, self.shared_at + offset as u64)
                .map(|()| u64::from_ne_bytes(bytes))
        };
        let threads = word(offset_of!(Shared, threads))? as u32 as usize;
        let threads_at = word(offset_of!(Shared, threads_at))? as usize;
        let page = |thread| word(threads_at + thread * size_of::<Thread>() + offset_of!(Thread, page));
        let pages: BTreeSet<u64> = (0..threads.min(THREADS_MAX)).map(page).collect::<io::Result<_>>()?;
        // Only those that are such pages: the program could have written there.
        let is_page = |mapping: &Mapping| {
            let is_event = mapping.path.starts_with("anon_inode:[perf_event]");
            is_event && mapping.bytes() == PAGE && pages.contains(&mapping.start.0)
        };
        Ok(mappings(pid)?.iter().filter(|mapping| is_page(mapping)).map(|mapping| mapping.start.0).collect())
    }
}

/// What must be undone in a process.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// The process that probes.
    pub controller: u32,
    /// Where everything is.
    pub placement: Placement,
    /// What is patched, as changes that remove it.
    pub changes: Vec<Change>,
}

/// Bytes before the changes: a word for each number of [`Placement`], the areas with their number, the number of changes.
const HEADER_WORDS: usize = 5 + 1 + AREAS_MAX as usize + 1;
const CHANGE_BYTES: usize = 8 + 2 * JUMP_BYTES;

impl Journal {
    /// Formats the journal. Returns an error if it is too long.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let Placement { shared_at, shared_bytes, gate, syscall_at, counters_at, areas } = &self.placement;
        let mut words = vec![*shared_at, *shared_bytes, *gate, *syscall_at, *counters_at, areas.len() as u64];
        words.extend(areas);
        words.resize(HEADER_WORDS - 1, 0);
        words.push(self.changes.len() as u64);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for change in &self.changes {
            bytes.extend(change.address.to_le_bytes());
            bytes.extend(change.from);
            bytes.extend(change.to);
        }
        if bytes.len() > JOURNAL_BYTES { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes) }
    }

    /// Reads the journal of a process that has probes; `None` if it has none, or none that is understood.
    pub fn read(pid: Pid, memory: &File) -> io::Result<Option<Journal>> {
        let mappings = mappings(pid)?;
        let ours = mappings.iter().filter(|mapping| is_ours(mapping) && mapping.offset == 0);
        for mapping in ours {
            let mut header = vec![0; offset_of!(Shared, map)];
            memory.read_exact_at(&mut header, mapping.start.0)?;
            let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
            let version = word(offset_of!(Shared, version));
            if word(0) != layout::MAGIC || version as u32 != layout::VERSION {
                continue;
            }
            let mut bytes = vec![0; JOURNAL_BYTES];
            let journal_at = mapping.start.offset(offset_of!(Shared, journal) as u64);
            memory.read_exact_at(&mut bytes, journal_at.0)?;
            return Ok(Journal::parse(&bytes, (version >> 32) as u32));
        }
        Ok(None)
    }

    fn parse(bytes: &[u8], controller: u32) -> Option<Journal> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        let areas = usize::try_from(word(5)?).ok().filter(|areas| *areas <= AREAS_MAX as usize)?;
        let placement = Placement {
            shared_at: word(0)?,
            shared_bytes: word(1)?,
            gate: word(2)?,
            syscall_at: word(3)?,
            counters_at: word(4)?,
            areas: (0..areas).map(|area| word(6 + area)).collect::<Option<_>>()?,
        };
        let number = usize::try_from(word(HEADER_WORDS - 1)?).ok()?;
        let changes =
            bytes.get(HEADER_WORDS * 8..)?.chunks_exact(CHANGE_BYTES).take(number).map(|change| Change {
                address: u64::from_le_bytes(change[..8].try_into().expect("eight bytes")),
                from: change[8..8 + JUMP_BYTES].try_into().expect("a jump"),
                to: change[8 + JUMP_BYTES..].try_into().expect("a jump"),
                own: change[8 + JUMP_BYTES..].try_into().expect("a jump"),
                copies: Vec::new(),
            });
        Some(Journal { controller, placement, changes: changes.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let placement = Placement {
            shared_at: 0x7000,
            shared_bytes: 0x1000,
            gate: 0x9000,
            syscall_at: 0x42,
            counters_at: 0x4000_0000,
            areas: vec![0x10_0000, 0x50_0000],
        };
        let change = Change { address: 0x1234, from: [1; 5], to: [2; 5], own: [2; 5], copies: Vec::new() };
        let journal = Journal { controller: 7, placement, changes: vec![change] };
        let mut bytes = journal.to_bytes().unwrap();
        bytes.resize(JOURNAL_BYTES, 0xaa);
        let read = Journal::parse(&bytes, 7).unwrap();
        assert_eq!(read.placement, journal.placement);
        assert_eq!((read.changes.len(), read.changes[0].address), (1, 0x1234));
        assert_eq!((read.changes[0].from, read.changes[0].to), ([1; 5], [2; 5]));
        assert!(Journal::parse(&[0xff; 64], 0).is_none());
    }
}
