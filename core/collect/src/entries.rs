//! Entries: samples that the kernel aggregated in a table of counts.
//!
//! Enters: decoded records of the kernel module or of the BPF program. Leaves: plain values. Never here: finding the image
//! of a place (see [`crate::collector`]), the layout of the table (see `kmod/sample_table.h`).

use dwell_attribution::Interval;
use dwell_profile::{CountedEvent, CpuId, EventIndex, Pid, VirtualAddress};

/// The number of samples of one event at one place. All of them lie within the [`Interval`] of the batch that contains the
/// entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The sampled place.
    pub place: Place,
    /// The process that ran. For a place by executable, the first of the processes that were sampled there. 0: the idle
    /// task.
    pub pid: Pid,
    /// The event that was sampled.
    pub event: CountedEvent,
    /// The CPU, where it is known.
    pub cpu: Option<CpuId>,
    /// Number of samples, at least one.
    pub count: u64,
}

/// A sampled place, in the form that the kernel can compute cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The text of a process's executable.
    Executable {
        /// An opaque hash of the executable's inode, generation and device.
        id: u64,
        /// Offset in bytes from `mm->start_code`.
        offset: u64,
    },
    /// Any other place in a process.
    Process {
        /// The virtual address.
        pc: VirtualAddress,
        /// The low 32 bits of the `id` of its executable; 0 where there is none. They distinguish the programs that one
        /// process executed one after the other.
        executable: u32,
    },
    /// The kernel.
    Kernel {
        /// The virtual address.
        pc: VirtualAddress,
        /// The executable of the process that ran. `None` for the kernel's own threads.
        executable: Option<u64>,
    },
}

/// Describes entries that wait to be taken from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The time during which their samples were taken.
    pub interval: Interval,
    /// Whether this is the last batch with samples up to the end of the interval.
    pub ends: bool,
}

/// An entry as the kernel stores it: a word with its key, and a word with place, event and count.
pub type EntryWords = [u64; 2];

/// Number of entries that are passed to the caller at once.
const PIECE: usize = 512;

/// The layout of `struct dwell_entry` (kmod/sample_table.h), from the highest bits: kind, tag, process; address, event,
/// count.
const PID_BITS: u32 = 22;
const TAG_BITS: u32 = 40;
const COUNT_BITS: u32 = 12;
const EVENT_BITS: u32 = 4;
const ADDRESS_BITS: u32 = 48;
/// A bit that is set in the tag of every executable.
const TAG_EXECUTABLE: u64 = 1 << (TAG_BITS - 1);
/// The value of the event's field for a kernel sample that is counted where user code entered the kernel
/// (DWELL_EVENT_ENTERED in kmod/sample_table.h). No backend with tables samples so many events.
pub const EVENT_ENTERED: u8 = 15;
const KIND_PROCESS: u64 = 1;
const KIND_EXECUTABLE: u64 = 2;
const KIND_KERNEL: u64 = 3;

/// Decodes the entries of the kernel and hands them out in pieces of `PIECE`. Entries whose places must be looked up in a
/// process come last, sorted by process: the mappings of thousands of processes fit in no cache.
pub struct EntryChunks<'e> {
    each: &'e mut dyn FnMut(&[Entry]),
    cpu: Option<CpuId>,
    piece: Vec<Entry>,
    in_processes: Vec<EntryWords>,
}

impl<'e> EntryChunks<'e> {
    /// Creates a decoder for the entries of one CPU.
    pub fn new(cpu: Option<CpuId>, each: &'e mut dyn FnMut(&[Entry])) -> Self {
        EntryChunks { each, cpu, piece: Vec::with_capacity(PIECE), in_processes: Vec::new() }
    }

    /// Adds an entry; free ones are skipped.
    pub fn push(&mut self, words: EntryWords) {
        if words[0] >> (PID_BITS + TAG_BITS) == KIND_PROCESS {
            self.in_processes.push(words);
        } else {
            self.hand_out(words);
        }
    }

    /// Hands out the remaining entries.
    pub fn finish(mut self) {
        let mut in_processes = std::mem::take(&mut self.in_processes);
        in_processes.sort_unstable_by_key(|[key, _]| key & ((1 << PID_BITS) - 1));
        in_processes.into_iter().for_each(|words| self.hand_out(words));
        if !self.piece.is_empty() {
            (self.each)(&self.piece);
        }
    }

    fn hand_out(&mut self, words: EntryWords) {
        let cpu = self.cpu;
        self.piece.extend(Entry::from_words(words).map(|entry| Entry { cpu, ..entry }));
        if self.piece.len() == PIECE {
            (self.each)(&self.piece);
            self.piece.clear();
        }
    }
}

impl Entry {
    /// Decodes the two words that the kernel stores. Returns `None` for a free entry, and for words that no kernel writes.
    pub fn from_words([key, place]: EntryWords) -> Option<Entry> {
        let count = place & ((1 << COUNT_BITS) - 1);
        let event = match (place >> COUNT_BITS & ((1 << EVENT_BITS) - 1)) as u8 {
            EVENT_ENTERED => CountedEvent::KERNEL_TIME,
            event => EventIndex(event).into(),
        };
        let address = place >> (COUNT_BITS + EVENT_BITS);
        let pid = (key & ((1 << PID_BITS) - 1)) as u32;
        let tag = key >> PID_BITS & ((1 << TAG_BITS) - 1);
        let place = match key >> (PID_BITS + TAG_BITS) {
            KIND_PROCESS => {
                let pc = VirtualAddress(address | (tag & 0xff) << ADDRESS_BITS);
                Place::Process { pc, executable: (tag >> 8) as u32 }
            }
            KIND_EXECUTABLE => Place::Executable { id: tag, offset: address },
            KIND_KERNEL => {
                let pc = (address << (64 - ADDRESS_BITS)) as i64 >> (64 - ADDRESS_BITS);
                let executable = (tag & TAG_EXECUTABLE != 0).then_some(tag);
                Place::Kernel { pc: VirtualAddress(pc as u64), executable }
            }
            _ => return None,
        };
        (count > 0).then_some(Entry { place, pid: Pid(pid), event, cpu: None, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: u64, tag: u64, pid: u64) -> u64 {
        kind << (PID_BITS + TAG_BITS) | tag << PID_BITS | pid
    }

    #[test]
    fn words_are_decoded_to_entries() {
        let place = 0x0000_7fff_1234_5678 << 16 | 5 << 12 | 4095;
        let read = |kind, tag| Entry::from_words([key(kind, tag, 77), place]);
        let of =
            |place| Some(Entry { place, pid: Pid(77), event: EventIndex(5).into(), cpu: None, count: 4095 });
        let (address, tag) = (0x7fff_1234_5678, TAG_EXECUTABLE | 9);
        assert_eq!(read(2, tag), of(Place::Executable { id: tag, offset: address }));
        let process = Place::Process { pc: VirtualAddress(0x00a0_7fff_1234_5678), executable: 0xdead_beef };
        assert_eq!(read(1, 0xdead_beef << 8 | 0xa0), of(process));
        assert_eq!(read(3, tag), of(Place::Kernel { pc: VirtualAddress(address), executable: Some(tag) }));
        assert_eq!(read(0, tag), None);
        assert_eq!(Entry::from_words([key(2, tag, 77), place & !0xfff]), None);
        let entered = Entry::from_words([key(2, tag, 77), address << 16 | 15 << 12 | 3]).unwrap();
        assert_eq!((entered.event, entered.count), (CountedEvent::KERNEL_TIME, 3));
        let kernel = Entry::from_words([key(3, 77, 77), 0xffff_8123_4567 << 16 | 1]).unwrap();
        let pc = VirtualAddress(0xffff_ffff_8123_4567);
        assert_eq!(kernel.place, Place::Kernel { pc, executable: None });
    }

    #[test]
    fn pieces_contain_all_entries_grouped_by_process() {
        let in_process = |pid: u64| [key(KIND_PROCESS, 0, pid), 0x1000 << 16 | 1];
        let in_kernel = |pid: u64| [key(KIND_KERNEL, 0, pid), 0x1000 << 16 | 1];
        let (mut pids, mut pieces) = (Vec::new(), 0);
        let mut each = |entries: &[Entry]| {
            assert!((1..=PIECE).contains(&entries.len()) && entries.iter().all(|e| e.cpu == Some(CpuId(3))));
            pids.extend(entries.iter().map(|e| e.pid));
            pieces += 1;
        };
        let mut handing_out = EntryChunks::new(Some(CpuId(3)), &mut each);
        for at in 0..2 * PIECE as u64 {
            [in_process(at % 7), in_kernel(9), [0, 0]].into_iter().for_each(|words| handing_out.push(words));
        }
        handing_out.finish();
        let (in_kernel, in_processes) = pids.split_at(2 * PIECE);
        assert!(in_kernel.iter().all(|pid| *pid == Pid(9)) && in_processes.is_sorted());
        assert_eq!((in_processes.len(), pieces), (2 * PIECE, 4));
    }
}
