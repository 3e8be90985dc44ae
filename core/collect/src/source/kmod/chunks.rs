//! Parses the bytes of `/dev/dwell` into chunks. Enters: the bytes of a read. Leaves: heads and records. Pure; never panics.

use dwell_profile::{EventIndex, Pid, Tid, VirtualAddress};

use crate::{
    entries::EntryWords,
    registers::{REGISTERS_REPORTED, Registers},
    source::{
        owned_record::OwnedRecord,
        records::{Mode, Sample},
    },
};

/// Bytes of `struct dwell_chunk`.
pub const CHUNK_BYTES: usize = 32;
/// Bytes of `struct dwell_entry`.
pub const ENTRY_BYTES: usize = 16;
/// Bytes of `struct dwell_register_sample`: its head and its registers.
pub const REGISTER_SAMPLE_BYTES: usize = REGISTERS_AT + 8 * REGISTERS_REPORTED;
const REGISTERS_AT: usize = 32;
const ENTRIES: u32 = 1;
const REGISTERS: u32 = 2;
const FLUSHED: u32 = 3;

/// A chunk of the device's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// Entries of samples up to a time.
    Entries {
        /// CLOCK_MONOTONIC in ns.
        until_ns: u64,
        /// The entries, [`ENTRY_BYTES`] each.
        records: &'a [u8],
    },
    /// Samples with registers.
    Registers(&'a [u8]),
    /// All samples up to the flush have been read.
    Flushed,
}

/// Splits off the first chunk. Returns `None` for bytes that are no chunk; where the next one begins is not known then.
pub fn split(bytes: &[u8]) -> Option<(Chunk<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(CHUNK_BYTES)?;
    let (kind, count, record_bytes) =
        (u32_at(head, 0)?, u32_at(head, 8)? as usize, u32_at(head, 12)? as usize);
    let (records, rest) = rest.split_at_checked(count.checked_mul(record_bytes)?)?;
    let chunk = match (kind, record_bytes) {
        (ENTRIES, ENTRY_BYTES) => Chunk::Entries { until_ns: u64_at(head, 24)?, records },
        (REGISTERS, REGISTER_SAMPLE_BYTES) => Chunk::Registers(records),
        (FLUSHED, _) => Chunk::Flushed,
        _ => return None,
    };
    Some((chunk, rest))
}

/// Returns the words of the entries.
pub fn words(records: &[u8]) -> impl Iterator<Item = EntryWords> {
    records.chunks_exact(ENTRY_BYTES).filter_map(|r| Some([u64_at(r, 0)?, u64_at(r, 8)?]))
}

/// Returns samples with registers, each with its time. `event` is the event that they represent.
pub fn registers(records: &[u8], event: EventIndex) -> impl Iterator<Item = (u64, OwnedRecord)> {
    records.chunks_exact(REGISTER_SAMPLE_BYTES).filter_map(move |record| {
        let (pc, mut registers) = (VirtualAddress(u64_at(record, 8)?), [0; REGISTERS_REPORTED]);
        for (at, register) in registers.iter_mut().enumerate() {
            *register = u64_at(record, REGISTERS_AT + 8 * at)?;
        }
        let sample = Sample {
            mode: Mode::User,
            pc,
            pid: Pid(u32_at(record, 16)?),
            tid: Tid(u32_at(record, 20)?),
            cpu: None,
            registers: Some(Box::new(Registers::of_user(pc, &registers))),
        };
        Some((u64_at(record, 0)?, OwnedRecord::Registers(event, sample)))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entries::{Entry, Place};

    fn chunk(kind: u32, count: u32, record_bytes: u32, records: &[u8]) -> Vec<u8> {
        let head = [kind, 0, count, record_bytes].map(u32::to_ne_bytes).concat();
        let times = [5_u64, 9].map(u64::to_ne_bytes).concat();
        [&head[..], &times, records].concat()
    }

    #[test]
    fn chunks_follow_each_other() {
        let entry_words = [2_u64 << 62 | (1 << 39 | 7) << 22 | 77, 0x1234 << 16 | 3 << 12 | 20];
        let entries = chunk(ENTRIES, 1, 16, &entry_words.map(u64::to_ne_bytes).concat());
        let samples = chunk(REGISTERS, 1, REGISTER_SAMPLE_BYTES as u32, &[1; REGISTER_SAMPLE_BYTES]);
        let bytes = [entries, samples, chunk(FLUSHED, 0, 0, &[])].concat();
        let (first, rest) = split(&bytes).unwrap();
        let Chunk::Entries { until_ns: 9, records } = first else { panic!("{first:?}") };
        let read: Vec<Entry> = words(records).filter_map(Entry::from_words).collect();
        let place = Place::Executable { id: 1 << 39 | 7, offset: 0x1234 };
        assert_eq!(read, [Entry { place, pid: Pid(77), event: EventIndex(3).into(), cpu: None, count: 20 }]);
        let (second, rest) = split(rest).unwrap();
        let Chunk::Registers(records) = second else { panic!("{second:?}") };
        assert_eq!(registers(records, EventIndex(0)).count(), 1);
        assert_eq!(split(rest), Some((Chunk::Flushed, &[][..])));
    }

    #[test]
    fn the_pc_is_inserted_among_the_registers() {
        let record: Vec<u8> = (0..REGISTER_SAMPLE_BYTES as u64 / 8).flat_map(u64::to_ne_bytes).collect();
        let (time_ns, item) = registers(&record, EventIndex(0)).next().unwrap();
        let OwnedRecord::Registers(EventIndex(0), Sample { pc, registers: Some(reported), .. }) = item else {
            panic!("{item:?}")
        };
        assert_eq!((time_ns, pc), (0, VirtualAddress(1)));
        // The kernel's place of the pc: after the stack pointer on AArch64, before the flags on x86-64.
        let mut expected: Vec<u64> = (4..).take(REGISTERS_REPORTED).collect();
        expected.insert(if cfg!(target_arch = "aarch64") { 32 } else { 8 }, pc.0);
        assert_eq!(reported.0.to_vec(), expected);
    }

    #[test]
    fn truncated_and_unknown_chunks_are_rejected() {
        let whole = chunk(ENTRIES, 2, 16, &[0; 32]);
        (0..whole.len()).for_each(|end| assert_eq!(split(&whole[..end]), None));
        assert_eq!(split(&chunk(9, 0, 0, &[])), None);
        assert_eq!(split(&chunk(ENTRIES, 1, 8, &[0; 8])), None);
        assert_eq!(split(&chunk(ENTRIES, u32::MAX, 16, &[0; 64])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_without_a_panic(mut bytes: Vec<u8>, kind in 0_u32..5, count in 0_u32..5) {
            bytes.splice(0..0, chunk(kind, count, 16, &[]));
            let mut rest = &bytes[..];
            while let Some((chunk, next)) = split(rest) {
                if let Chunk::Entries { records, .. } | Chunk::Registers(records) = chunk {
                    let _ = words(records).filter_map(Entry::from_words).count();
                    registers(records, EventIndex(1)).for_each(drop);
                }
                prop_assert!(next.len() < rest.len());
                rest = next;
            }
        }
    }
}
